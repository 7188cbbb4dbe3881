//! Converts objects, individually and in batches.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use snafu::{OptionExt, ResultExt, Snafu, ensure};
use tokio::time::Instant;
use tower::BoxError;

use super::object::Object;
use super::paths::Paths;
use super::review::{
    Answer, ConversionAnswer, ConversionOutcome, ConversionReviewError, Request, in_message,
};
use crate::truncate::excerpt;

/// Maximum time that a batch occupies a runtime worker before it yields.
const SLICE: Duration = Duration::from_millis(2);

/// The object was not converted.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum ConversionError {
    /// The input is not a Kubernetes object.
    #[snafu(display("not an object of the Kubernetes API: {source}"))]
    Malformed {
        /// The cause.
        source: BoxError,
    },
    /// The object is of an unknown apiVersion.
    #[snafu(display("{object} is in {found}, accepted are {accepted}"))]
    NotAccepted {
        /// Kind, namespace and name.
        object: String,
        /// Its apiVersion.
        found: String,
        /// Accepted apiVersions.
        accepted: String,
    },
    /// There is no conversion to the requested version.
    #[snafu(display("cannot convert to {found:?}, accepted are {accepted}"))]
    UnknownVersion {
        /// The requested version.
        found: String,
        /// Accepted apiVersions.
        accepted: String,
    },
    /// A conversion function failed, or its result violates a rule.
    #[snafu(display("failed to convert {object} from {from} to {to}: {source}"))]
    Failed {
        /// Kind, namespace and name.
        object: String,
        /// Version of the object.
        from: String,
        /// The requested version.
        to: String,
        /// The cause.
        source: BoxError,
    },
    /// A conversion function panicked.
    #[snafu(display("failed to convert {object} from {from} to {to}: the conversion function panicked"))]
    Panicked {
        /// Kind, namespace and name.
        object: String,
        /// Version of the object.
        from: String,
        /// The requested version.
        to: String,
    },
}

impl ConversionError {
    const fn outcome(&self) -> ConversionOutcome {
        match self {
            Self::Panicked { .. } => ConversionOutcome::Panicked,
            Self::Failed { .. } => ConversionOutcome::Failed,
            Self::Malformed { .. } | Self::NotAccepted { .. } | Self::UnknownVersion { .. } => {
                ConversionOutcome::BadRequest
            }
        }
    }

    /// Message for the log. It omits causes, which may quote the object.
    fn without_cause(&self) -> String {
        match self {
            Self::Malformed { .. } => "not an object of the Kubernetes API".to_owned(),
            Self::Failed { object, from, to, .. } => {
                format!("failed to convert {object} from {from} to {to}")
            }
            Self::NotAccepted { .. } | Self::UnknownVersion { .. } | Self::Panicked { .. } => {
                self.to_string()
            }
        }
    }
}

/// Converts the objects of one custom resource between its versions; cheap to clone. [`Converter::hub`] starts a
/// builder.
#[derive(Clone)]
pub struct Converter {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) group: String,
    pub(super) kind: String,
    /// The hub comes first.
    pub(super) versions: Vec<String>,
    /// The versions with their group.
    pub(super) api_versions: Vec<String>,
    pub(super) paths: Box<dyn Paths>,
}

impl fmt::Debug for Converter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Converter({}.{}: {})", self.kind(), self.group(), self.inner.versions.join(", "))
    }
}

/// Buffers reused for each object.
#[derive(Default)]
struct Scratch {
    before: Vec<u8>,
    after: Vec<u8>,
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

    /// The hub version, without the group.
    #[must_use]
    pub fn hub_version(&self) -> &str {
        self.inner.versions.first().map(String::as_str).unwrap_or_default()
    }

    /// All versions, without the group; the hub comes first.
    pub fn versions(&self) -> impl Iterator<Item = &str> {
        self.inner.versions.iter().map(String::as_str)
    }

    /// Handles a ConversionReview (`apiextensions.k8s.io/v1`).
    ///
    /// The response is sent with HTTP 200 even if the conversion failed: the API server shows the message to its user.
    /// Objects are converted in order. If one fails, the response has none. The work runs on the caller's task, which
    /// yields regularly; `deadline` is checked between objects.
    ///
    /// # Errors
    ///
    /// A [`ConversionReviewError`] if the body is not a ConversionReview with a uid, which can only be answered with
    /// HTTP 400.
    pub async fn convert(
        &self,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<ConversionAnswer, ConversionReviewError> {
        let request = match Request::read(body)? {
            Ok(request) => request,
            Err(malformed) => {
                tracing::warn!(
                    uid = &*excerpt(&malformed.uid),
                    kind = self.kind(),
                    "refused a malformed conversion"
                );
                return Ok(malformed.answer());
            }
        };
        let fail = |objects, outcome: ConversionOutcome, message: &str, log: &str| {
            tracing::warn!(
                uid = &*excerpt(&request.uid),
                kind = self.kind(),
                desired = &*excerpt(&request.desired_api_version),
                "a conversion failed: {}",
                excerpt(log)
            );
            Ok(Answer::failure(&request.uid, objects, outcome, message))
        };
        let to = match self.index(&request.desired_api_version) {
            Ok(to) => to,
            Err(error) => {
                let message = format!("desiredAPIVersion: {error}");
                return fail(0, error.outcome(), &message, &message);
            }
        };
        let mut answer = Answer::begin(&request.uid, body.len());
        let mut scratch = Scratch::default();
        let mut slice = std::time::Instant::now();
        for (index, object) in request.objects().enumerate() {
            if Instant::now() >= deadline {
                let message = format!("objects[{index}]: the time was over before it was converted");
                return fail(index, ConversionOutcome::TimedOut, &message, &message);
            }
            if let Err(error) = self.convert_text(object, to, &mut scratch, answer.next()) {
                let message = format!("objects[{index}]: {error}");
                let log = format!("objects[{index}]: {}", error.without_cause());
                return fail(index, error.outcome(), &message, &log);
            }
            if slice.elapsed() > SLICE {
                tokio::task::yield_now().await;
                slice = std::time::Instant::now();
            }
        }
        Ok(answer.end())
    }

    /// Converts one object to a version (without the group), by the same rules as [`Self::convert`].
    ///
    /// # Errors
    ///
    /// A [`ConversionError`] if the object is of another kind, the version is unknown, or a conversion function fails,
    /// panics or violates a rule.
    pub fn convert_object(&self, object: &Value, version: &str) -> Result<Value, ConversionError> {
        let to = self.index(&format!("{}/{version}", self.group()))?;
        let mut converted = Vec::new();
        self.convert_text(&object.to_string(), to, &mut Scratch::default(), &mut converted)?;
        serde_json::from_slice(&converted).map_err(BoxError::from).context(MalformedSnafu)
    }

    fn index(&self, api_version: &str) -> Result<usize, ConversionError> {
        let found = self.inner.api_versions.iter().position(|known| known == api_version);
        found.with_context(|| UnknownVersionSnafu {
            found: in_message(api_version),
            accepted: self.inner.api_versions.join(", "),
        })
    }

    /// Appends the converted object to `out`.
    fn convert_text(
        &self,
        json: &str,
        to: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<(), ConversionError> {
        let Inner { kind, versions, api_versions, paths, .. } = &*self.inner;
        let original = Object::read(json).map_err(BoxError::from).context(MalformedSnafu)?;
        let metadata = original.metadata.as_ref();
        let found_kind = original.kind.as_deref().unwrap_or("(no kind)");
        let describe = || {
            let name = metadata.map_or_else(|| "(no name)".to_owned(), |metadata| metadata.full_name());
            in_message(&format!("{found_kind} {name}")).into_owned()
        };
        let found = original.api_version.as_deref().unwrap_or("(no apiVersion)");
        let from = api_versions.iter().position(|known| known == found).filter(|_| found_kind == kind);
        let from = from.with_context(|| NotAcceptedSnafu {
            object: describe(),
            found: in_message(found),
            accepted: format!("{kind} in {}", api_versions.join(", ")),
        })?;
        if from == to {
            out.extend_from_slice(json.as_bytes());
            return Ok(());
        }
        // The indices are valid; names of versions only appear in messages.
        let name = |index: usize| versions.get(index).cloned().unwrap_or_default();
        let api_version = api_versions.get(to).map(String::as_str).unwrap_or_default();
        let attempt = std::panic::catch_unwind(AssertUnwindSafe(|| -> Result<(), BoxError> {
            scratch.before.clear();
            scratch.after.clear();
            original.write_bare(&mut scratch.before);
            paths.convert(from, to, &scratch.before, &mut scratch.after).map_err(as_text)?;
            let text = std::str::from_utf8(&scratch.after)?;
            let converted =
                Object::read(text).map_err(|error| format!("what it became is wrong: {error}"))?;
            if let Some(found) = converted.kind.as_deref() {
                ensure!(found == kind, KindSnafu { found, kind });
            }
            let own = converted.metadata.as_ref().context(NoMetadataSnafu)?;
            own.check(metadata)?;
            converted.write_converted(api_version, kind, metadata, own, out);
            Ok(())
        }));
        match attempt {
            Ok(result) => {
                result.with_context(|_| FailedSnafu { object: describe(), from: name(from), to: name(to) })
            }
            Err(_panic) => PanickedSnafu { object: describe(), from: name(from), to: name(to) }.fail(),
        }
    }
}

/// The result of a conversion function is a different object.
#[derive(Debug, Snafu)]
enum AnswerError {
    #[snafu(display("kind must stay {kind}, and was changed to {found:?}"))]
    Kind { found: String, kind: String },
    #[snafu(display("metadata must be handed on, and is missing"))]
    NoMetadata,
}

/// Formats an error where panics are caught, since the error type belongs to the conversion function.
fn as_text(error: impl fmt::Display) -> BoxError {
    error.to_string().into()
}
