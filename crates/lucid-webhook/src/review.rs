//! Requests of an `admission.k8s.io/v1` AdmissionReview.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use http::Extensions;
use kube_core::gvk::{GroupVersionKind, GroupVersionResource};
use lucid_text::json::{self, Reader, Text};
use lucid_text::{Excerpt, Line};
use serde::{Deserialize, Deserializer};
use snafu::{OptionExt, Snafu};
use tokio::time::Instant;

use crate::peer_certificate::PeerCertificate;
use crate::raw_object::RawObject;
use crate::trace_parent::TraceParent;

pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";
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
    /// The stored object; `None` on CREATE and CONNECT.
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
    pub(crate) arrival: Instant,
    /// Time by which the response has to be sent; after it, the API server no longer waits.
    pub deadline: Instant,
    /// Trace context of the API server (W3C `traceparent`), if tracing is enabled there.
    pub(crate) trace_parent: Option<TraceParent>,
    /// Values that layers pass to the handler, starting with the extensions of the HTTP request.
    pub extensions: Extensions,
}

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

fn not_a_review(problem: impl fmt::Display) -> ReviewError {
    let problem = format!("the body is not an AdmissionReview: {problem}");
    ReviewSnafu { problem, uid: None }.build()
}

#[derive(Default)]
struct Review<'a> {
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    request: Option<Members<'a>>,
}

impl<'a> Review<'a> {
    fn read(body: &'a [u8]) -> Result<Self, json::Error> {
        let mut review = Self::default();
        let mut reader = Reader::new(str::from_utf8(body).map_err(json::Error::new)?);
        reader.object(|reader, key| match key {
            "apiVersion" => reader.member(&mut review.api_version, Reader::text),
            "kind" => reader.member(&mut review.kind, Reader::text),
            "request" => reader.member(&mut review.request, Members::read),
            _ => reader.skip(),
        })?;
        reader.end()?;
        Ok(review)
    }
}

/// JSON of the members of an `AdmissionRequest` that are not null.
#[derive(Default)]
struct Members<'a> {
    uid: Option<&'a str>,
    kind: Option<&'a str>,
    resource: Option<&'a str>,
    sub_resource: Option<&'a str>,
    name: Option<&'a str>,
    namespace: Option<&'a str>,
    operation: Option<&'a str>,
    user_info: Option<&'a str>,
    object: Option<&'a str>,
    old_object: Option<&'a str>,
    options: Option<&'a str>,
    dry_run: Option<&'a str>,
    request_kind: Option<&'a str>,
    request_resource: Option<&'a str>,
    request_sub_resource: Option<&'a str>,
    /// Name of a duplicate member.
    twice: Option<String>,
}

/// Decodes a member; an absent one is the default.
fn decode<'a, T: Deserialize<'a> + Default>(member: Option<&'a str>, name: &str) -> Result<T, json::Error> {
    let decode = |json| serde_json::from_str(json).map_err(|error| json::Error::from(error).within(name));
    member.map_or_else(|| Ok(T::default()), decode)
}

impl<'a> Members<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, json::Error> {
        let mut members = Self::default();
        reader.object(|reader, key| {
            let member = match key {
                "uid" => &mut members.uid,
                "kind" => &mut members.kind,
                "resource" => &mut members.resource,
                "subResource" => &mut members.sub_resource,
                "name" => &mut members.name,
                "namespace" => &mut members.namespace,
                "operation" => &mut members.operation,
                "userInfo" => &mut members.user_info,
                "object" => &mut members.object,
                "oldObject" => &mut members.old_object,
                "options" => &mut members.options,
                "dryRun" => &mut members.dry_run,
                "requestKind" => &mut members.request_kind,
                "requestResource" => &mut members.request_resource,
                "requestSubResource" => &mut members.request_sub_resource,
                _ => return reader.skip(),
            };
            if member.is_some() {
                members.twice = Some(key.to_owned());
            }
            *member = Some(reader.raw()?).filter(|json| *json != "null");
            Ok(())
        })?;
        Ok(members)
    }

    fn uid(&self) -> Result<String, ReviewError> {
        let uid = decode::<String>(self.uid, "uid").ok().filter(|uid| (1..=LONGEST_UID).contains(&uid.len()));
        uid.with_context(|| {
            let problem = format!(
                "the AdmissionReview's request has no uid, which must be a string of at most {LONGEST_UID} bytes"
            );
            ReviewSnafu { problem, uid: None }
        })
    }
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
        let review = Review::read(body).map_err(|error| not_a_review(Line(&error.to_string())))?;
        let (api_version, kind) = (review.api_version.unwrap_or_default(), review.kind.unwrap_or_default());
        if api_version != API_VERSION || kind != KIND {
            return Err(not_a_review(format_args!(
                "expected {API_VERSION} {KIND}, found apiVersion {}, kind {}",
                Excerpt(&api_version),
                Excerpt(&kind)
            )));
        }
        let problem = "the AdmissionReview has no request";
        let request = review.request.context(ReviewSnafu { problem, uid: None })?;
        // The API server shows an error to the user only in a response that carries the uid.
        let uid = request.uid()?;
        Self::read(body, deadline, &request, uid.clone()).map_err(|error| {
            let error = error.to_string();
            let problem = format!("the AdmissionReview's request is malformed: {}", Line(&error));
            ReviewSnafu { problem, uid: Some(uid) }.build()
        })
    }

    fn read(
        body: &Bytes,
        deadline: Instant,
        request: &Members<'_>,
        uid: String,
    ) -> Result<Self, json::Error> {
        if let Some(name) = &request.twice {
            return Err(json::Error::new("duplicate field").within(name));
        }
        let object = |json: Option<&str>| json.map(|json| RawObject::new(body.slice_ref(json.as_bytes())));
        let text =
            |json, name| decode(json, name).map(|text: Option<String>| text.filter(|text| !text.is_empty()));
        let operation: Option<Operation> = decode(request.operation, "operation")?;
        Ok(Self {
            uid,
            kind: decode::<WireKind>(request.kind, "kind")?.into(),
            resource: decode::<WireResource>(request.resource, "resource")?.into(),
            sub_resource: text(request.sub_resource, "subResource")?,
            name: decode(request.name, "name")?,
            namespace: text(request.namespace, "namespace")?,
            operation: operation.ok_or_else(|| json::Error::new("missing").within("operation"))?,
            user_info: decode(request.user_info, "userInfo")?,
            object: object(request.object),
            old_object: object(request.old_object),
            options: object(request.options),
            dry_run: decode(request.dry_run, "dryRun")?,
            request_kind: decode::<WireKind>(request.request_kind, "requestKind")?.into(),
            request_resource: decode::<WireResource>(request.request_resource, "requestResource")?.into(),
            request_sub_resource: text(request.request_sub_resource, "requestSubResource")?,
            arrival: Instant::now(),
            deadline,
            trace_parent: None,
            extensions: Extensions::new(),
        })
    }

    /// Returns `true` if the server verified the caller's client certificate. Otherwise every field of the request is
    /// unverified.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.extensions.get::<PeerCertificate>().is_some()
    }

    /// Returns the kind, such as `core/v1 Pod`.
    #[must_use]
    pub fn describe_kind(&self) -> String {
        describe(&self.kind)
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
