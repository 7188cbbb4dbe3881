//! Requests of an `admission.k8s.io/v1` AdmissionReview.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use http::Extensions;
use kube_core::gvk::{GroupVersionKind, GroupVersionResource};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use snafu::{OptionExt, Snafu};
use tokio::time::Instant;

use crate::peer_certificate::PeerCertificate;
use crate::raw_object::RawObject;
use crate::trace_parent::TraceParent;
use crate::truncate::excerpt;

/// The supported `apiVersion`.
pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";
/// The `kind` of the envelope.
pub(crate) const KIND: &str = "AdmissionReview";

/// An admission request (`AdmissionRequest` of `admission.k8s.io/v1`).
///
/// Objects stay JSON text inside the request's body. Handlers decode only the fields that they read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdmissionRequest {
    /// Identifies this call; echoed in the response.
    pub uid: String,
    /// Kind of the object, as the webhook's rules matched it.
    pub kind: GroupVersionKind,
    /// Resource, as the webhook's rules matched it.
    pub resource: GroupVersionResource,
    /// Subresource, such as `ephemeralcontainers`.
    pub sub_resource: Option<String>,
    /// Name of the object; empty on CREATE with `generateName`.
    pub name: String,
    /// Namespace of the object; `None` for cluster-scoped ones.
    pub namespace: Option<String>,
    /// The operation.
    pub operation: Operation,
    /// The user that makes the request.
    pub user_info: UserInfo,
    /// The object as it would be stored; `None` on DELETE and for some CONNECTs.
    pub object: Option<RawObject>,
    /// The object as it is stored; `None` on CREATE and CONNECT.
    pub old_object: Option<RawObject>,
    /// Options of the operation, such as `CreateOptions`.
    pub options: Option<RawObject>,
    /// `true` if nothing will be stored: the handler must have no side effects.
    pub dry_run: bool,
    /// Kind as requested by the client. It differs from `kind` in version or group if `matchPolicy: Equivalent`
    /// converted the object for this webhook.
    pub request_kind: GroupVersionKind,
    /// Resource as requested by the client.
    pub request_resource: GroupVersionResource,
    /// Subresource as requested by the client.
    pub request_sub_resource: Option<String>,
    /// Time at which the request arrived.
    pub(crate) arrival: Instant,
    /// Time by which the response has to be sent; afterwards the API server has given up.
    pub deadline: Instant,
    /// Trace context of the API server (W3C `traceparent`), if tracing is enabled there.
    pub(crate) trace_parent: Option<TraceParent>,
    /// Values that layers pass to the handler, starting with the extensions of the HTTP request.
    pub extensions: Extensions,
}

/// Formats as `core/v1 Pod`.
pub(crate) fn describe(kind: &GroupVersionKind) -> String {
    let group = if kind.group.is_empty() { "core" } else { &kind.group };
    format!("{group}/{} {}", kind.version, kind.kind)
}

/// The operation on the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object is changed.
    Update,
    /// The object is deleted.
    Delete,
    /// A client connects to the object (`exec`, `attach`, `portforward`, `proxy`).
    Connect,
}

impl Operation {
    /// The name in the API, such as `CREATE`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The user that makes the request (`UserInfo` of `authentication.k8s.io/v1`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// Name, such as `system:serviceaccount:default:builder`.
    #[serde(deserialize_with = "null_is_default")]
    pub username: String,
    /// Identifies the user across time: a recreated user of the same name has another UID.
    #[serde(deserialize_with = "null_is_default")]
    pub uid: String,
    /// Groups.
    #[serde(deserialize_with = "null_is_default")]
    pub groups: Vec<String>,
    /// Further attributes set by the authenticator.
    #[serde(deserialize_with = "extra")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Go writes an absent list, map or pointer as null.
pub(crate) fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn extra<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let extra: BTreeMap<String, Option<Vec<String>>> = null_is_default(deserializer)?;
    Ok(extra.into_iter().map(|(key, values)| (key, values.unwrap_or_default())).collect())
}

/// The body is not a valid request.
#[derive(Debug, Snafu)]
#[snafu(display("{problem}"), visibility(pub(crate)))]
pub struct ReviewError {
    problem: String,
    /// Identifies the call, if the request has a uid but is malformed. The response is then an AdmissionReview.
    pub(crate) uid: Option<String>,
}

/// Maximum length of a uid in bytes. API servers send UUIDs of 36 bytes; the response repeats the uid.
const LONGEST_UID: usize = 128;

fn not_a_review(problem: &str) -> ReviewError {
    let problem = format!("the body is not an AdmissionReview: {problem}");
    ReviewSnafu { problem, uid: None }.build()
}

fn no_uid() -> ReviewError {
    let problem = format!(
        "the AdmissionReview's request has no uid, which has to be a text of at most {LONGEST_UID} bytes"
    );
    ReviewSnafu { problem, uid: None }.build()
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de>"))]
struct Envelope<'a, R> {
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    request: Option<R>,
}

impl<R> Envelope<'_, R> {
    fn open(self) -> Result<R, ReviewError> {
        let Self { api_version, kind, request } = self;
        if api_version != API_VERSION || kind != KIND {
            let (api_version, kind) = (format!("{api_version:?}"), format!("{kind:?}"));
            return Err(not_a_review(&format!(
                "found apiVersion {}, kind {}, accepted is {API_VERSION} {KIND}",
                excerpt(&api_version),
                excerpt(&kind)
            )));
        }
        request.context(ReviewSnafu { problem: "the AdmissionReview has no request", uid: None })
    }
}

#[derive(Deserialize)]
struct Identity {
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireKind {
    group: String,
    version: String,
    kind: String,
}

impl From<WireKind> for GroupVersionKind {
    fn from(WireKind { group, version, kind }: WireKind) -> Self {
        Self { group, version, kind }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireResource {
    group: String,
    version: String,
    resource: String,
}

impl From<WireResource> for GroupVersionResource {
    fn from(WireResource { group, version, resource }: WireResource) -> Self {
        Self::gvr(&group, &version, &resource)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRequest<'a> {
    uid: String,
    #[serde(default, deserialize_with = "null_is_default")]
    kind: WireKind,
    #[serde(default, deserialize_with = "null_is_default")]
    resource: WireResource,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    operation: Operation,
    #[serde(default, deserialize_with = "null_is_default")]
    user_info: UserInfo,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    options: Option<&'a RawValue>,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default, deserialize_with = "null_is_default")]
    request_kind: WireKind,
    #[serde(default, deserialize_with = "null_is_default")]
    request_resource: WireResource,
    #[serde(default)]
    request_sub_resource: Option<String>,
}

impl AdmissionRequest {
    /// Parses an AdmissionReview as sent by the API server; `deadline` is the time by which the response has to be
    /// sent.
    ///
    /// The server calls this. It is public so that handlers can be tested without a server.
    ///
    /// ```
    /// use lucid_webhook::{AdmissionRequest, Operation};
    /// use tokio::time::{Duration, Instant};
    ///
    /// let review = br#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
    ///     "request": {"uid": "1", "operation": "CREATE", "object": {"kind": "Pod"}}}"#;
    /// let deadline = Instant::now() + Duration::from_secs(10);
    /// let request = AdmissionRequest::from_json(&review.as_slice().into(), deadline)?;
    /// assert_eq!(request.operation, Operation::Create);
    /// # Ok::<(), lucid_webhook::ReviewError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A [`ReviewError`] if `body` is not an AdmissionReview of `admission.k8s.io/v1`, or its request is malformed.
    pub fn from_json(body: &Bytes, deadline: Instant) -> Result<Self, ReviewError> {
        let wire = match serde_json::from_slice::<Envelope<'_, WireRequest<'_>>>(body) {
            Ok(envelope) => envelope.open()?,
            Err(error) => return Err(Self::diagnose(body, error)),
        };
        if !(1..=LONGEST_UID).contains(&wire.uid.len()) {
            return Err(no_uid());
        }
        let raw = |object: &RawValue| RawObject::new(body.slice_ref(object.get().as_bytes()));
        Ok(Self {
            object: wire.object.map(raw),
            old_object: wire.old_object.map(raw),
            options: wire.options.map(raw),
            uid: wire.uid,
            kind: wire.kind.into(),
            resource: wire.resource.into(),
            sub_resource: wire.sub_resource.filter(|name| !name.is_empty()),
            name: wire.name,
            namespace: wire.namespace.filter(|name| !name.is_empty()),
            operation: wire.operation,
            user_info: wire.user_info,
            dry_run: wire.dry_run.unwrap_or(false),
            request_kind: wire.request_kind.into(),
            request_resource: wire.request_resource.into(),
            request_sub_resource: wire.request_sub_resource.filter(|name| !name.is_empty()),
            arrival: Instant::now(),
            deadline,
            trace_parent: None,
            extensions: Extensions::new(),
        })
    }

    /// Diagnoses a `body` that does not decode with a second, more lenient parse. It looks for the uid above all: the
    /// API server shows an error to the user only in a response that carries the uid.
    fn diagnose(body: &[u8], source: serde_json::Error) -> ReviewError {
        let request = match serde_json::from_slice::<Envelope<'_, &RawValue>>(body) {
            Ok(envelope) => envelope.open(),
            Err(error) => return not_a_review(&excerpt(&error.to_string())),
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => return error,
        };
        match serde_json::from_str::<Identity>(request.get()) {
            Ok(Identity { uid }) if (1..=LONGEST_UID).contains(&uid.len()) => {
                let source = source.to_string();
                let problem = format!("the AdmissionReview's request is malformed: {}", excerpt(&source));
                ReviewSnafu { problem, uid: Some(uid) }.build()
            }
            _ => no_uid(),
        }
    }

    /// Returns `true` if the server verified the caller's client certificate. Otherwise every field of the request is unverified.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.extensions.get::<PeerCertificate>().is_some()
    }

    /// The subject of the request: the new object, or on DELETE the old one.
    #[must_use]
    pub const fn subject(&self) -> Option<&RawObject> {
        match &self.object {
            None => self.old_object.as_ref(),
            object => object.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1", "kind":"AdmissionReview","request":{"uid":"u-1",
"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},
"subResource":"resize","name":"web","namespace":"shop","operation":"UPDATE","userInfo":{"username":"jané"},
"new":{"in":[1.5]},"object":{"kind":"Pod","metadata":{"name":"web \"\\"}},"oldObject":{"kind":"Pod"} ,"options":null}}"#;

    fn parse(body: impl Into<Bytes>) -> Result<AdmissionRequest, ReviewError> {
        AdmissionRequest::from_json(&body.into(), Instant::now())
    }

    #[test]
    fn objects_are_slices_of_the_body() {
        let request = parse(REVIEW).unwrap();
        let text = |object: Option<RawObject>| object.map(|object| object.as_bytes().to_vec());
        assert_eq!(text(request.object).unwrap(), br#"{"kind":"Pod","metadata":{"name":"web \"\\"}}"#);
        assert_eq!(text(request.old_object).unwrap(), br#"{"kind":"Pod"}"#);
        assert_eq!(text(request.options), None);
        assert_eq!(request.user_info.username, "jané");
        assert_eq!(request.sub_resource.as_deref(), Some("resize"));
    }

    #[test]
    fn members_may_be_reordered_or_escaped() {
        let reordered = r#" {"request" : { "operation" : "DELETE" , "oldObject" : {} , "u\u0069d" : "1" } ,
            "kind" : "AdmissionReview" , "apiVersion" : "admission.k8s.io/v1" } "#;
        assert_eq!(parse(reordered).unwrap().uid, "1");
    }

    #[test]
    fn malformed_reviews_are_refused() {
        for (from, to, expected) in [
            ("AdmissionReview", "AdmissionRevie", "found apiVersion"),
            ("k8s.io/v1", "k8s.io/v1beta1", "found apiVersion"),
            ("\"request\"", "\"requests\"", "has no request"),
            ("\"uid\"", "\"id\"", "has no uid"),
            ("\"u-1\"", "\"\"", "has no uid"),
            ("\"operation\"", "\"operatio\"", "request is malformed"),
            ("\"oldObject\"", "\"object\"", "request is malformed"),
            ("UPDATE", "update", "request is malformed"),
            ("\"options\":null}}", "\"options\":null}}}", "is not an AdmissionReview: "),
            ("\"options\":null}}", "\"options\":null,}}", "is not an AdmissionReview: "),
            ("[1.5]", "[1.]", "is not an AdmissionReview: "),
            ("\"new\"", "\"ne\n\"", "is not an AdmissionReview: "),
            (r#""kind":"Pod","metadata""#, r#""kind":"Pod","metadata":1 "x""#, "is not an AdmissionReview: "),
        ] {
            assert!(REVIEW.contains(from));
            let error = parse(REVIEW.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn a_malformed_request_keeps_its_uid() {
        let error = parse(REVIEW.replace("UPDATE", "update")).unwrap_err();
        assert_eq!(error.uid.as_deref(), Some("u-1"));
    }

    #[test]
    fn truncated_reviews_are_refused() {
        for end in 0..REVIEW.len() {
            parse(&REVIEW.as_bytes()[..end]).unwrap_err();
        }
    }
}
