//! Converts objects, individually and in batches.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
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
#[derive(Debug)]
pub struct ConversionError {
    outcome: ConversionOutcome,
    problem: String,
    /// Omitted in the log, as it may quote the object.
    cause: Option<BoxError>,
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        match &self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConversionError {}

impl ConversionError {
    const fn bad_request(problem: String) -> Self {
        Self { outcome: ConversionOutcome::BadRequest, problem, cause: None }
    }

    fn malformed(cause: impl Into<BoxError>) -> Self {
        let problem = "not an object of the Kubernetes API".to_owned();
        Self { outcome: ConversionOutcome::BadRequest, problem, cause: Some(cause.into()) }
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
                return fail(0, error.outcome, &message, &message);
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
                let log = format!("objects[{index}]: {}", error.problem);
                return fail(index, error.outcome, &message, &log);
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
        serde_json::from_slice(&converted).map_err(ConversionError::malformed)
    }

    fn index(&self, api_version: &str) -> Result<usize, ConversionError> {
        let found = self.inner.api_versions.iter().position(|known| known == api_version);
        found.ok_or_else(|| {
            let accepted = self.inner.api_versions.join(", ");
            let found = in_message(api_version);
            ConversionError::bad_request(format!("cannot convert to {found:?}, accepted are {accepted}"))
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
        let original = Object::read(json).map_err(ConversionError::malformed)?;
        let metadata = original.metadata.as_ref();
        let found_kind = original.kind.as_deref().unwrap_or("(no kind)");
        let describe = || {
            let name = metadata.map_or_else(|| "(no name)".to_owned(), |metadata| metadata.full_name());
            in_message(&format!("{found_kind} {name}")).into_owned()
        };
        let found = original.api_version.as_deref().unwrap_or("(no apiVersion)");
        let from = api_versions.iter().position(|known| known == found).filter(|_| found_kind == kind);
        let from = from.ok_or_else(|| {
            ConversionError::bad_request(format!(
                "{} is in {}, accepted are {kind} in {}",
                describe(),
                in_message(found),
                api_versions.join(", ")
            ))
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
            paths.convert(from, to, &scratch.before, &mut scratch.after)?;
            let text = std::str::from_utf8(&scratch.after)?;
            let converted =
                Object::read(text).map_err(|error| format!("what it became is wrong: {error}"))?;
            if let Some(found) = converted.kind.as_deref().filter(|found| found != kind) {
                return Err(format!("kind must stay {kind}, and was changed to {found:?}").into());
            }
            let own = converted.metadata.as_ref();
            let own = own.ok_or("metadata must be handed on, and is missing")?;
            own.check(metadata)?;
            converted.write_converted(api_version, kind, metadata, own, out);
            Ok(())
        }));
        let failed = |outcome, reason: &str, cause| {
            let (from, to) = (name(from), name(to));
            let problem = format!("failed to convert {} from {from} to {to}{reason}", describe());
            Err(ConversionError { outcome, problem, cause })
        };
        match attempt {
            Ok(Ok(())) => Ok(()),
            Ok(Err(cause)) => failed(ConversionOutcome::Failed, "", Some(cause)),
            Err(_panic) => failed(ConversionOutcome::Panicked, ": the conversion function panicked", None),
        }
    }
}
