//! Envelope: an `apiextensions.k8s.io/v1` ConversionReview.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use snafu::{OptionExt, Snafu, ensure};

use super::members::{ObjectWriter, write_text};
use crate::truncate::truncate;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";

/// Outcome of a conversion, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConversionOutcome {
    /// All objects were converted.
    Converted,
    /// A conversion function failed, or its result violates a rule of the API server.
    Failed,
    /// A conversion function panicked.
    Panicked,
    /// The deadline passed.
    TimedOut,
    /// The request is invalid: an unknown version, or objects of another kind.
    BadRequest,
}

/// Response to a ConversionReview.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConversionAnswer {
    /// The ConversionReview to send, as JSON, with HTTP status 200.
    pub body: Bytes,
    /// Outcome of the conversion.
    pub outcome: ConversionOutcome,
    /// Number of converted objects, including those before a failure.
    pub objects: usize,
}

/// The body is not a ConversionReview with a request and a uid, so it cannot be answered with one.
#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub struct ConversionReviewError {
    problem: String,
}

/// The request has no uid to echo.
const NO_UID: &str = "the ConversionReview's request has no uid, which has to be a text";

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    request: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Identity {
    uid: String,
}

/// Request of the API server (`ConversionRequest`).
#[derive(Deserialize)]
pub(super) struct Request<'a> {
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
    #[serde(borrow, rename = "desiredAPIVersion")]
    pub(super) desired_api_version: Cow<'a, str>,
    /// Kept as one text to save memory: a list may have a million empty objects.
    #[serde(borrow, default)]
    objects: Option<&'a RawValue>,
}

/// A malformed request with a uid, so that the response can be a review.
pub(super) struct Malformed {
    pub(super) uid: String,
    message: String,
}

impl Malformed {
    pub(super) fn answer(&self) -> ConversionAnswer {
        Answer::failure(&self.uid, 0, ConversionOutcome::BadRequest, &self.message)
    }
}

impl<'a> Request<'a> {
    /// Parses a ConversionReview. The inner error can be answered with a review.
    pub(super) fn read(body: &'a [u8]) -> Result<Result<Self, Malformed>, ConversionReviewError> {
        let envelope = serde_json::from_slice::<Envelope<'a>>(body).map_err(|error| {
            let problem = format!("the body is not a ConversionReview: {}", in_message(&error.to_string()));
            ConversionReviewSnafu { problem }.build()
        })?;
        let Envelope { api_version, kind, request } = envelope;
        ensure!(api_version == API_VERSION && kind == KIND, {
            let (api_version, kind) = (in_message(&api_version), in_message(&kind));
            let problem = format!(
                "the body is not a ConversionReview: found apiVersion {api_version:?}, kind {kind:?}, accepted is \
                 {API_VERSION} {KIND}"
            );
            ConversionReviewSnafu { problem }
        });
        let text =
            request.context(ConversionReviewSnafu { problem: "the ConversionReview has no request" })?.get();
        match serde_json::from_str::<Self>(text) {
            Ok(request) if request.uid.is_empty() => ConversionReviewSnafu { problem: NO_UID }.fail(),
            Ok(request) if request.objects.is_none_or(|objects| objects.get().starts_with('[')) => {
                Ok(Ok(request))
            }
            Ok(request) => {
                let message = "the ConversionReview's request is malformed: objects is no list".to_owned();
                Ok(Err(Malformed { uid: request.uid.into_owned(), message }))
            }
            Err(error) => match serde_json::from_str::<Identity>(text) {
                Ok(Identity { uid }) if !uid.is_empty() => {
                    let message = format!("the ConversionReview's request is malformed: {error}");
                    Ok(Err(Malformed { uid, message: in_message(&message).into_owned() }))
                }
                _ => ConversionReviewSnafu { problem: NO_UID }.fail(),
            },
        }
    }

    /// Texts of the objects, in order.
    pub(super) fn objects(&self) -> impl Iterator<Item = &'a str> {
        // The envelope was already validated as JSON. Only the ends of the items are missing.
        let list = self.objects.map(RawValue::get).unwrap_or_default();
        let mut rest = list.strip_prefix('[').unwrap_or_default();
        std::iter::from_fn(move || {
            let text = rest.trim_start().trim_start_matches(',').trim_start();
            let item = <&RawValue>::deserialize(&mut serde_json::Deserializer::from_str(text)).ok()?;
            rest = text.get(item.get().len()..)?;
            Some(item.get())
        })
    }
}

/// Response written object by object, so that no batch is held twice.
pub(super) struct Answer {
    out: Vec<u8>,
    objects: usize,
}

impl Answer {
    /// Begins a response; `expected` is its approximate size in bytes.
    pub(super) fn begin(uid: &str, expected: usize) -> Self {
        let mut out = Vec::with_capacity(expected + 256);
        write_head(uid, &mut out);
        out.extend_from_slice(br#""result":{"status":"Success"},"convertedObjects":["#);
        Self { out, objects: 0 }
    }

    /// Returns the buffer for the next object.
    pub(super) fn next(&mut self) -> &mut Vec<u8> {
        if self.objects > 0 {
            self.out.push(b',');
        }
        self.objects += 1;
        &mut self.out
    }

    pub(super) fn end(mut self) -> ConversionAnswer {
        self.out.extend_from_slice(b"]}}");
        ConversionAnswer {
            body: self.out.into(),
            outcome: ConversionOutcome::Converted,
            objects: self.objects,
        }
    }

    /// Builds a response without objects. Of a failure, the API server only reads the message.
    pub(super) fn failure(
        uid: &str,
        objects: usize,
        outcome: ConversionOutcome,
        message: &str,
    ) -> ConversionAnswer {
        let mut out = Vec::new();
        write_head(uid, &mut out);
        out.extend_from_slice(br#""convertedObjects":[],"result":"#);
        let mut result = ObjectWriter::begin(&mut out);
        result.text("status", "Failure");
        result.text("message", &in_message(message));
        result.end();
        out.extend_from_slice(b"}}");
        ConversionAnswer { body: out.into(), outcome, objects }
    }
}

/// Truncates text sent by the caller for a message.
pub(super) fn in_message(text: &str) -> Cow<'_, str> {
    truncate(text, 600)
}

/// Writes the beginning, up to the other members of the response.
fn write_head(uid: &str, out: &mut Vec<u8>) {
    let mut review = ObjectWriter::begin(out);
    review.text("apiVersion", API_VERSION);
    review.text("kind", KIND);
    let response = review.nested("response");
    response.extend_from_slice(br#"{"uid":"#);
    write_text(uid, response);
    response.push(b',');
}
