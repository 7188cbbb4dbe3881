//! Annotations that request a CA.

use std::{collections::BTreeMap, fmt};

use super::{object::Kind, problem::Problem};

pub(super) const FROM_SECRET: &str = "cert-manager.io/inject-ca-from-secret";
pub(super) const FROM_CERTIFICATE: &str = "cert-manager.io/inject-ca-from";
pub(super) const FROM_API_SERVER: &str = "cert-manager.io/inject-apiserver-ca";
const OPENSHIFT: &str = "service.beta.openshift.io/inject-cabundle";
const OPENSHIFT_ALPHA: &str = "service.alpha.openshift.io/inject-cabundle";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl ObjectName {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn parse(annotation: &str, value: &str) -> Result<Self, Problem> {
        match value.split_once('/') {
            Some((namespace, name)) if is_path_segment(namespace) && is_path_segment(name) => {
                Ok(Self::new(namespace, name))
            }
            _ => {
                let problem = format!("annotation {annotation}: expected NAMESPACE/NAME, found {value:?}");
                Err(Problem::malformed(problem))
            }
        }
    }
}

/// Returns `true` if the text is safe as a path segment of a request. Other invalid names are reported as not
/// found by the API server.
fn is_path_segment(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let has_ends = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    has_ends && text.len() <= 253 && text.bytes().all(is_allowed)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CaReference {
    /// CA of a Secret that allows direct injection.
    Secret(ObjectName),
    Certificate(ObjectName),
    ApiServer,
    OpenShift,
}

impl fmt::Display for CaReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(name) => write!(f, "Secret {name}"),
            Self::Certificate(name) => write!(f, "Certificate {name}"),
            Self::ApiServer => f.write_str("API server"),
            Self::OpenShift => f.write_str("service CA"),
        }
    }
}

impl CaReference {
    /// Returns the requested CA, if any. Evaluates annotations in the order of cert-manager, then
    /// OpenShift's. The first one present is used, even if it is malformed.
    pub(super) fn of(kind: Kind, annotations: &BTreeMap<String, String>) -> Result<Option<Self>, Problem> {
        let value = |annotation: &str| annotations.get(annotation).map(String::as_str);
        // cert-manager does not support ConfigMaps.
        if kind != Kind::ConfigMap {
            if let Some(name) = value(FROM_SECRET) {
                return ObjectName::parse(FROM_SECRET, name).map(Self::Secret).map(Some);
            }
            if let Some(name) = value(FROM_CERTIFICATE) {
                return ObjectName::parse(FROM_CERTIFICATE, name).map(Self::Certificate).map(Some);
            }
            if value(FROM_API_SERVER) == Some("true") {
                return Ok(Some(Self::ApiServer));
            }
        }
        let is_true = |annotation| value(annotation).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        // OpenShift supports the older annotation on these two kinds only.
        let alpha = matches!(kind, Kind::ConfigMap | Kind::ApiService) && is_true(OPENSHIFT_ALPHA);
        Ok((alpha || is_true(OPENSHIFT)).then_some(Self::OpenShift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(kind: Kind, annotations: &[(&str, &str)]) -> Result<Option<CaReference>, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        CaReference::of(kind, &annotations.iter().map(owned).collect()).map_err(|problem| problem.to_string())
    }

    const FOUR: [Kind; 4] = [
        Kind::MutatingWebhookConfiguration,
        Kind::ValidatingWebhookConfiguration,
        Kind::CustomResourceDefinition,
        Kind::ApiService,
    ];

    #[test]
    fn annotations_are_evaluated_in_the_order_of_cert_manager() {
        let secret = (FROM_SECRET, "a/b");
        let certificate = (FROM_CERTIFICATE, "c/d");
        let (api_server, openshift) = ((FROM_API_SERVER, "true"), (OPENSHIFT, "true"));
        for kind in FOUR {
            let all = [openshift, api_server, certificate, secret];
            assert_eq!(requested(kind, &all), Ok(Some(CaReference::Secret(ObjectName::new("a", "b")))));
            assert_eq!(
                requested(kind, &all[..3]),
                Ok(Some(CaReference::Certificate(ObjectName::new("c", "d"))))
            );
            assert_eq!(requested(kind, &all[..2]), Ok(Some(CaReference::ApiServer)));
            assert_eq!(requested(kind, &all[..1]), Ok(Some(CaReference::OpenShift)));
            assert_eq!(requested(kind, &[]), Ok(None));
        }
        assert!(
            requested(FOUR[0], &[(FROM_SECRET, "b"), certificate]).is_err(),
            "a malformed one counts as well"
        );
    }

    #[test]
    fn annotation_values_are_parsed_as_by_their_owners() {
        assert_eq!(requested(FOUR[0], &[(FROM_API_SERVER, "True")]), Ok(None));
        assert_eq!(requested(FOUR[0], &[(OPENSHIFT, "True")]), Ok(Some(CaReference::OpenShift)));
        assert_eq!(requested(FOUR[0], &[(OPENSHIFT, "yes")]), Ok(None));
    }

    #[test]
    fn openshift_annotations_apply_by_kind() {
        assert_eq!(requested(Kind::ConfigMap, &[(FROM_SECRET, "a/b"), (FROM_API_SERVER, "true")]), Ok(None));
        for (kind, known) in
            FOUR.map(|kind| (kind, kind == Kind::ApiService)).into_iter().chain([(Kind::ConfigMap, true)])
        {
            assert_eq!(
                requested(kind, &[(OPENSHIFT_ALPHA, "true")]),
                Ok(known.then_some(CaReference::OpenShift)),
                "{kind}"
            );
        }
    }

    #[test]
    fn malformed_names_are_rejected() {
        for value in ["", "name", "/name", "namespace/", "a/b/c", "a/../b", "../b", "a/b?x=y", "a/..", "A/b"]
        {
            for annotation in [FROM_SECRET, FROM_CERTIFICATE] {
                let problem = requested(FOUR[0], &[(annotation, value)]).unwrap_err();
                let expected = format!("annotation {annotation}: expected NAMESPACE/NAME, found {value:?}");
                assert_eq!(problem, expected);
            }
        }
    }
}
