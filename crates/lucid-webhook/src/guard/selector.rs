//! Selectors of objects that a webhook handles.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use kube_core::gvk::GroupVersionKind;
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserializer, IntoDeserializer, SeqAccess, Visitor};
use snafu::ensure;

use super::labels::{InvalidSelector, InvalidSelectorSnafu, Labels, Requirement};
use super::metadata::Metadata;
use crate::raw_object::DecodeError;
use crate::review::AdmissionRequest;

/// Namespace of the control plane; a failing webhook there can break the cluster.
pub(crate) const KUBE_SYSTEM: &str = "kube-system";

/// Selects objects by labels, namespace, kind and name.
///
/// All of them have to match. An empty condition matches everything, but `kube-system` is excluded unless `namespace`
/// has it literally or `kubeSystem` is true. Neither an empty list nor a `*` includes it.
///
/// ```
/// use lucid_webhook::guard::Selector;
///
/// let selector: Selector = serde_json::from_str(r#"{
///     "matchLabels": {"app": "web"},
///     "matchExpressions": [{"key": "tier", "operator": "Exists"}],
///     "namespace": ["team-*", "kube-system"],
///     "resourceKind": ["Pod", "Deployment.apps", "batch/v1/Job"],
///     "resourceName": "web-*"
/// }"#)?;
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// `namespace`, `resourceKind` and `resourceName` are one value or a list.
///
/// - `matchLabels` and `matchExpressions` are those of a `LabelSelector`. As with `objectSelector`, the object or the
///   old object has to match, so that removing a label does not bypass the webhook. Objects without metadata, such as
///   `PodExecOptions`, match an empty selector only.
/// - `namespace` and `resourceName` are patterns in which `*` matches any characters. A Namespace object is in the
///   namespace of its own name. Cluster-scoped objects are in no namespace: only `*` includes them. Until the name of
///   an object is generated, its `generateName` is compared.
/// - `kubeSystem` includes `kube-system` in addition to `namespace`; false by default.
/// - `resourceKind` is `Kind` (of any group), `Kind.group`, `group/version/Kind`, or `version/Kind` for the core group.
///   It is compared with [`AdmissionRequest::kind`], which for a subresource may be the kind of the sent object, such
///   as `Scale`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Labels,
    namespaces: Vec<Pattern>,
    kinds: Vec<KindPattern>,
    names: Vec<Pattern>,
    kube_system: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WireSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
    #[serde(deserialize_with = "one_or_many")]
    namespace: Vec<Pattern>,
    #[serde(deserialize_with = "one_or_many")]
    resource_kind: Vec<KindPattern>,
    #[serde(deserialize_with = "one_or_many")]
    resource_name: Vec<Pattern>,
    kube_system: bool,
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = WireSelector::deserialize(deserializer)?;
        Ok(Self {
            labels: Labels::new(wire.match_labels, wire.match_expressions).map_err(de::Error::custom)?,
            namespaces: wire.namespace,
            kinds: wire.resource_kind,
            names: wire.resource_name,
            kube_system: wire.kube_system,
        })
    }
}

fn one_or_many<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct OneOrMany<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text or a list of texts")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![T::deserialize(text.into_deserializer())?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }

    deserializer.deserialize_any(OneOrMany(PhantomData))
}

impl Selector {
    /// Returns the label keys that the selector reads.
    pub fn label_keys(&self) -> impl Iterator<Item = &str> {
        self.labels.keys()
    }

    /// Includes `kube-system` in addition to the selected namespaces.
    pub(crate) const fn with_kube_system(mut self) -> Self {
        self.kube_system = true;
        self
    }

    /// Decodes the metadata if the selector depends on it: this requires scanning the whole object.
    pub(crate) fn metadata(&self, request: &AdmissionRequest) -> Result<Metadata, DecodeError> {
        let name_matters = is_namespace(request) || !self.names.is_empty();
        if !self.labels.is_empty() || (request.name.is_empty() && name_matters) {
            Metadata::of(request)
        } else {
            Ok(Metadata::default())
        }
    }

    /// Evaluates the conditions that do not need the object.
    pub(crate) fn matches_request(&self, request: &AdmissionRequest) -> bool {
        (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind.matches(&request.kind)))
            && (is_namespace(request)
                || self.includes_namespace(request.namespace.as_deref().unwrap_or_default()))
    }

    pub(crate) fn matches_metadata(&self, request: &AdmissionRequest, metadata: &Metadata) -> bool {
        let name = Some(&*request.name)
            .filter(|name| !name.is_empty())
            .or_else(|| metadata.name())
            .unwrap_or_default();
        (!is_namespace(request) || self.includes_namespace(name))
            && (self.names.is_empty() || self.names.iter().any(|pattern| pattern.matches(name)))
            && (self.labels.is_empty() || metadata.each().any(|object| self.labels.matches(object)))
    }

    fn includes_namespace(&self, namespace: &str) -> bool {
        if namespace == KUBE_SYSTEM {
            return self.kube_system || self.namespaces.iter().any(|pattern| pattern.0 == KUBE_SYSTEM);
        }
        self.namespaces.is_empty() || self.namespaces.iter().any(|pattern| pattern.matches(namespace))
    }
}

fn is_namespace(request: &AdmissionRequest) -> bool {
    request.resource.group.is_empty() && request.resource.resource == "namespaces"
}

/// A pattern in which `*` matches any characters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
struct Pattern(String);

impl From<String> for Pattern {
    fn from(pattern: String) -> Self {
        Self(pattern)
    }
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(text) = text.strip_prefix(first) else { return false };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        // The first occurrence of each part leaves the most text for the following ones.
        let after_middle =
            middle.split('*').try_fold(text, |text, part| text.split_once(part).map(|(_, after)| after));
        after_middle.is_some_and(|text| text.ends_with(last))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct KindPattern {
    group: Option<String>,
    version: Option<String>,
    kind: String,
}

impl KindPattern {
    fn matches(&self, found: &GroupVersionKind) -> bool {
        self.kind == found.kind
            && self.group.as_ref().is_none_or(|group| *group == found.group)
            && self.version.as_ref().is_none_or(|version| *version == found.version)
    }
}

impl TryFrom<String> for KindPattern {
    type Error = InvalidSelector;

    fn try_from(text: String) -> Result<Self, InvalidSelector> {
        let invalid = || InvalidSelectorSnafu {
            problem: format!(
                "kind {text:?}: expected Kind, Kind.group, group/version/Kind or, for the core group, version/Kind"
            ),
        };
        let some = |text: &str| Some(text.to_owned());
        let parts: Vec<&str> = text.split('/').collect();
        let (group, version, kind) = match parts[..] {
            [kind] => match kind.split_once('.') {
                Some((kind, group)) => (some(group), None, kind),
                None => (None, None, kind),
            },
            [version, kind] => (Some(String::new()), some(version), kind),
            [group, version, kind] => (some(group), some(version), kind),
            _ => return invalid().fail(),
        };
        let is_dotted = |text: &str| {
            text.split('.').all(|label| !label.is_empty())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        };
        let has_group = parts.len() != 2 && group.is_some();
        let is_valid = kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && kind.starts_with(|first: char| first.is_ascii_uppercase())
            && version.as_deref().is_none_or(is_dotted)
            && (!has_group || group.as_deref().is_some_and(is_dotted));
        ensure!(is_valid, invalid());
        Ok(Self { group, version, kind: kind.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_matches_any_characters() {
        for (pattern, text, expected) in [
            ("web", "web", true),
            ("web", "webs", false),
            ("", "", true),
            ("*", "", true),
            ("*", "anything", true),
            ("web-*", "web-", true),
            ("web-*", "web", false),
            ("*-web", "a-web", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*a*a*", "a", false),
            ("**", "x", true),
            ("a*bc*c", "abc", false),
        ] {
            assert_eq!(Pattern(pattern.to_owned()).matches(text), expected, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn patterns_match_like_a_reference_implementation(
            pattern in "[ab*]{0,8}", text in "[ab]{0,10}"
        ) {
            fn slow(pattern: &[u8], text: &[u8]) -> bool {
                match pattern {
                    [] => text.is_empty(),
                    [b'*', rest @ ..] => (0..=text.len()).any(|skip| slow(rest, &text[skip..])),
                    [first, rest @ ..] => text.first() == Some(first) && slow(rest, &text[1..]),
                }
            }
            prop_assert_eq!(Pattern(pattern.clone()).matches(&text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }

    #[test]
    fn kinds_are_parsed_as_documented() {
        let kind = |group: Option<&str>, version: Option<&str>, kind: &str| KindPattern {
            group: group.map(str::to_owned),
            version: version.map(str::to_owned),
            kind: kind.to_owned(),
        };
        for (text, expected) in [
            ("Pod", kind(None, None, "Pod")),
            ("Deployment.apps", kind(Some("apps"), None, "Deployment")),
            ("Certificate.cert-manager.io", kind(Some("cert-manager.io"), None, "Certificate")),
            ("v1/Pod", kind(Some(""), Some("v1"), "Pod")),
            ("batch/v1/Job", kind(Some("batch"), Some("v1"), "Job")),
        ] {
            assert_eq!(KindPattern::try_from(text.to_owned()), Ok(expected), "{text}");
        }
        for text in ["", "pods", "Pod.", "/v1/Pod", "v1/", "a/b/c/D", "apps//Deployment", "Po*", " Pod"] {
            assert!(KindPattern::try_from(text.to_owned()).is_err(), "{text:?}");
        }
    }
}
