//! Converts objects, individually and in batches.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lucid_text::Line;
use serde_json::Value;
use snafu::Snafu;
use tokio::time::Instant;
use tower::BoxError;

use super::object::Object;
use super::paths::{Conversion, Convert};
use super::review::{ConversionResponse, ConversionReviewError, Request, ResponseWriter, in_message};
use crate::metrics::Outcome;

/// Maximum time that a batch occupies a runtime worker before it yields.
const SLICE: Duration = Duration::from_millis(2);

/// The object was not converted.
#[derive(Debug, Snafu)]
#[snafu(display("{message}"))]
pub struct ConversionError {
    outcome: Outcome,
    message: String,
    /// The message without causes that may quote the object, for the log.
    redacted: String,
}

impl ConversionError {
    fn bad_request(problem: String) -> Self {
        Self { outcome: Outcome::BadRequest, message: problem.clone(), redacted: problem }
    }

    fn caused(outcome: Outcome, problem: String, cause: &dyn fmt::Display) -> Self {
        Self { outcome, message: format!("{problem}: {cause}"), redacted: problem }
    }

    fn malformed(cause: &dyn fmt::Display) -> Self {
        let problem = "not an object of the Kubernetes API".to_owned();
        Self::caused(Outcome::BadRequest, problem, cause)
    }
}

/// Converts the objects of one custom resource between its versions; cheap to clone. [`Converter::hub`] starts a
/// builder.
///
/// # Definition
///
/// Each version is a type with `#[derive(CustomResource)]`. kube's `merge_crds` makes one CustomResourceDefinition of
/// them, for the manifest and for [`build`](super::ConverterBuilder::build):
///
/// ```
/// use kube::core::crd::merge_crds;
/// use kube::{CustomResource, CustomResourceExt};
/// use lucid_webhook::Converter;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
/// #[kube(group = "example.com", version = "v1", kind = "Tab", root = "TabV1")]
/// pub struct TabV1Spec {
///     pub lines: Option<i32>,
/// }
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
/// #[kube(group = "example.com", version = "v2", kind = "Tab", root = "TabV2")]
/// pub struct TabV2Spec {
///     pub rows: Option<i32>,
/// }
///
/// let up = |v1: TabV1| TabV2 { metadata: v1.metadata, spec: TabV2Spec { rows: v1.spec.lines } };
/// let down = |v2: TabV2| TabV1 { metadata: v2.metadata, spec: TabV1Spec { lines: v2.spec.rows } };
///
/// // Objects are stored as v2.
/// let definition = merge_crds(vec![TabV1::crd(), TabV2::crd()], "v2")?;
/// let converter = Converter::hub::<TabV2>().spoke(up, down).build(&definition)?;
/// # Ok::<(), lucid_webhook::BoxError>(())
/// ```
///
/// # Partial objects
///
/// In a server-side apply, the API server converts the object without the fields that the manager no longer applies,
/// for every other version in which the object was applied (kubernetes/kubernetes#117356). Such an object may lack
/// fields that the schema requires. If it does not convert, the apply fails with `failed to prune fields`.
///
/// An object without `spec` whose type requires one, as those of `#[derive(CustomResource)]` do, is converted with an
/// empty spec, which the result lacks. If the spec does not decode from `{}`, only the `apiVersion` changes.
///
/// Fields of the spec have to be absent in the result if they were absent before: a default that the type fills in
/// looks like a field that is still applied, so it is never removed. Therefore make every field an `Option`, and let
/// the schema state what is required and what has a default. The API server fills in defaults before it stores an
/// object.
///
/// ```
/// use kube::{CustomResource, CustomResourceExt};
/// use lucid_webhook::Converter;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use serde_json::json;
///
/// mod v1 {
///     use super::*;
///
///     #[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
///     #[kube(group = "example.com", version = "v1", kind = "Widget", namespaced)]
///     pub struct WidgetSpec {
///         #[schemars(required)]
///         #[serde(skip_serializing_if = "Option::is_none")]
///         pub image: Option<String>,
///         #[schemars(default = "one")]
///         #[serde(skip_serializing_if = "Option::is_none")]
///         pub size: Option<i32>,
///     }
///
///     fn one() -> Option<i32> {
///         Some(1)
///     }
/// }
///
/// mod v2 {
///     use super::*;
///
///     #[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
///     #[kube(group = "example.com", version = "v2", kind = "Widget", namespaced)]
///     pub struct WidgetSpec {
///         #[schemars(required)]
///         #[serde(skip_serializing_if = "Option::is_none")]
///         pub image: Option<String>,
///         #[schemars(default = "one")]
///         #[serde(skip_serializing_if = "Option::is_none")]
///         pub replicas: Option<i32>,
///     }
///
///     fn one() -> Option<i32> {
///         Some(1)
///     }
/// }
///
/// fn up(v1::Widget { metadata, spec }: v1::Widget) -> v2::Widget {
///     v2::Widget { metadata, spec: v2::WidgetSpec { image: spec.image, replicas: spec.size } }
/// }
///
/// fn down(v2::Widget { metadata, spec }: v2::Widget) -> v1::Widget {
///     v1::Widget { metadata, spec: v1::WidgetSpec { image: spec.image, size: spec.replicas } }
/// }
///
/// # fn main() -> Result<(), lucid_webhook::BoxError> {
/// let spec = serde_json::to_value(v2::Widget::crd())?["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
///     ["spec"]
///     .take();
/// assert_eq!(spec["required"], json!(["image"]));
/// assert_eq!(spec["properties"]["replicas"]["default"], 1);
///
/// let converter = Converter::hub::<v2::Widget>().spoke::<v1::Widget>(up, down).build_for(["v1", "v2"])?;
/// let partial = |spec| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
/// assert_eq!(converter.convert_object(&partial(json!({"size": 3})), "v2")?["spec"], json!({"replicas": 3}));
/// assert_eq!(converter.convert_object(&partial(json!({})), "v2")?["spec"], json!({}));
/// let rest = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
/// assert_eq!(converter.convert_object(&rest, "v2")?.get("spec"), None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Converter {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) group: String,
    pub(super) kind: String,
    #[cfg_attr(not(feature = "operator"), expect(dead_code, reason = "only the registration needs it"))]
    pub(super) plural: String,
    /// The hub comes first.
    pub(super) versions: Vec<String>,
    pub(super) convert: Convert,
}

impl Inner {
    fn index(&self, api_version: &str) -> Option<usize> {
        let version = api_version.strip_prefix(&*self.group)?.strip_prefix('/')?;
        self.versions.iter().position(|known| known == version)
    }

    fn api_versions(&self) -> String {
        let api_versions = self.versions.iter().map(|version| format!("{}/{version}", self.group));
        api_versions.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Debug for Converter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Converter({}.{}: {})", self.kind(), self.group(), self.inner.versions.join(", "))
    }
}

impl Converter {
    /// API group of the resource.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.inner.group
    }

    /// Kind of the resource.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.inner.kind
    }

    /// Name of the CustomResourceDefinition, such as `widgets.example.com`.
    #[cfg(feature = "operator")]
    pub(crate) fn definition(&self) -> String {
        format!("{}.{}", self.inner.plural, self.inner.group)
    }

    /// The hub version, without the group.
    #[must_use]
    pub fn hub_version(&self) -> &str {
        self.inner.versions.first().map(String::as_str).unwrap_or_default()
    }

    /// Handles a ConversionReview (`apiextensions.k8s.io/v1`).
    ///
    /// The response is sent with HTTP 200 even if the conversion failed: the API server shows the message to its user.
    /// Objects are converted in order. If one fails, the response has none. The work runs on the caller's task, which
    /// yields regularly; `deadline` is checked between objects.
    ///
    /// A body that is not a ConversionReview with a uid can only be answered with HTTP 400.
    pub(crate) async fn convert(
        &self,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<ConversionResponse, ConversionReviewError> {
        let request = match Request::read(body) {
            Ok(request) => request,
            Err(ConversionReviewError { uid: Some(uid), problem }) => {
                tracing::warn!(uid = %Line(&uid), kind = self.kind(), "refused a malformed conversion");
                return Ok(ResponseWriter::failure(&uid, Outcome::BadRequest, &problem));
            }
            Err(error) => return Err(error),
        };
        let fail = |outcome: Outcome, message: &str, log: &str| {
            tracing::warn!(
                uid = %Line(&request.uid),
                kind = self.kind(),
                desired = %Line(&request.desired_api_version),
                "a conversion failed: {}",
                Line(log)
            );
            Ok(ResponseWriter::failure(&request.uid, outcome, message))
        };
        let to = match self.index(&request.desired_api_version) {
            Ok(to) => to,
            Err(error) => {
                let message = format!("desiredAPIVersion: {error}");
                return fail(error.outcome, &message, &message);
            }
        };
        let mut response = ResponseWriter::begin(&request.uid, body.len());
        let mut slice = std::time::Instant::now();
        for (index, object) in request.objects().enumerate() {
            if Instant::now() >= deadline {
                let message = format!("objects[{index}]: the time was over before it was converted");
                return fail(Outcome::TimedOut, &message, &message);
            }
            if let Err(error) = self.convert_text(object, to, response.next()) {
                let message = format!("objects[{index}]: {error}");
                let log = format!("objects[{index}]: {}", error.redacted);
                return fail(error.outcome, &message, &log);
            }
            if slice.elapsed() > SLICE {
                tokio::task::yield_now().await;
                slice = std::time::Instant::now();
            }
        }
        Ok(response.end())
    }

    /// Converts one object to a version (without the group), by the same rules as the API server's requests.
    ///
    /// # Errors
    ///
    /// A [`ConversionError`] if the object is of another kind, the version is unknown, or a conversion function fails,
    /// panics or violates a rule.
    pub fn convert_object(&self, object: &Value, version: &str) -> Result<Value, ConversionError> {
        let to = self.index(&format!("{}/{version}", self.group()))?;
        let mut converted = Vec::new();
        self.convert_text(&object.to_string(), to, &mut converted)?;
        serde_json::from_slice(&converted).map_err(|error| ConversionError::malformed(&error))
    }

    fn index(&self, api_version: &str) -> Result<usize, ConversionError> {
        self.inner.index(api_version).ok_or_else(|| {
            let (found, expected) = (in_message(api_version), self.inner.api_versions());
            ConversionError::bad_request(format!("cannot convert to {found:?}; expected one of {expected}"))
        })
    }

    fn convert_text(&self, json: &str, to: usize, out: &mut Vec<u8>) -> Result<(), ConversionError> {
        let Inner { group, kind, versions, convert, .. } = &*self.inner;
        let mut original = Object::read(json).map_err(|error| ConversionError::malformed(&error))?;
        let metadata = original.metadata.get_or_insert_default();
        let found_kind = original.kind.as_deref().unwrap_or("(no kind)");
        let name = in_message(&format!("{found_kind} {}", metadata.full_name())).into_owned();
        let found = original.api_version.as_deref().unwrap_or("(no apiVersion)");
        let from = self.inner.index(found).filter(|_| found_kind == kind).ok_or_else(|| {
            let (found, expected) = (in_message(found), self.inner.api_versions());
            ConversionError::bad_request(format!(
                "{name} is in {found}; expected a {kind} in one of {expected}"
            ))
        })?;
        if from == to {
            out.extend_from_slice(json.as_bytes());
            return Ok(());
        }
        // The indices are valid.
        let [source, target] = [from, to].map(|index| versions.get(index).map_or("", String::as_str));
        // Conversion functions do not get these: the API server restores them in any case, and they are often the
        // larger part of an object.
        let managed_fields = metadata.managed_fields.take();
        let attempt = std::panic::catch_unwind(AssertUnwindSafe(|| -> Result<(), BoxError> {
            let (before, mut after) = (serde_json::to_vec(&original)?, Vec::new());
            let conversion = convert([from, to], &before, &mut after)?;
            if conversion == Conversion::VersionOnly {
                after.clone_from(&before);
            }
            let text = std::str::from_utf8(&after)?;
            let mut converted =
                Object::read(text).map_err(|error| format!("what it became is wrong: {error}"))?;
            if conversion == Conversion::WithoutSpec {
                converted.remove_spec()?;
            }
            if let Some(found) = converted.kind.as_deref().filter(|found| found != kind) {
                return Err(format!("kind must stay {kind}, and was changed to {found:?}").into());
            }
            let own = converted.metadata.take().ok_or("metadata must be handed on, and is missing")?;
            let metadata = original.metadata.take().unwrap_or_default();
            own.check(&metadata)?;
            converted.api_version = Some(format!("{group}/{target}").into());
            converted.kind = Some(kind.into());
            converted.metadata = Some(metadata.restored(managed_fields, &own));
            Ok(serde_json::to_writer(out, &converted)?)
        }));
        let problem = || format!("failed to convert {name} from {source} to {target}");
        match attempt {
            Ok(Ok(())) => Ok(()),
            Ok(Err(cause)) => Err(ConversionError::caused(Outcome::Errored, problem(), &cause)),
            Err(_panic) => {
                let problem = format!("{}: the conversion function panicked", problem());
                Err(ConversionError { outcome: Outcome::Panicked, ..ConversionError::bad_request(problem) })
            }
        }
    }
}
