//! Envelope: an `apiextensions.k8s.io/v1` ConversionReview.

use std::borrow::Cow;

use bytes::Bytes;
use lucid_text::truncate;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use snafu::{OptionExt, Snafu, ensure};

use crate::metrics::Outcome;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";

#[derive(Clone, Debug)]
pub(crate) struct ConversionResponse {
    /// The ConversionReview to send, as JSON, with HTTP status 200.
    pub(crate) body: Bytes,
    pub(crate) outcome: Outcome,
}

/// The body is not a ConversionReview with a request and a uid, so it cannot be answered with one.
#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub(crate) struct ConversionReviewError {
    /// A malformed request may have a uid, so that it can be answered. The error is not returned then.
    pub(super) uid: Option<String>,
    pub(super) problem: String,
}

fn unanswerable(problem: impl Into<String>) -> ConversionReviewSnafu<Option<String>, String> {
    ConversionReviewSnafu { uid: None, problem: problem.into() }
}

const NO_UID: &str = "the ConversionReview's request has no uid, which must be a string";

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

impl<'a> Request<'a> {
    /// Parses a ConversionReview. An error with a uid can be answered with a review.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, ConversionReviewError> {
        let envelope = serde_json::from_slice::<Envelope<'a>>(body).map_err(|error| {
            let problem = in_message(&error.to_string()).into_owned();
            unanswerable(format!("the body is not a ConversionReview: {problem}")).build()
        })?;
        let Envelope { api_version, kind, request } = envelope;
        ensure!(api_version == API_VERSION && kind == KIND, {
            let (api_version, kind) = (in_message(&api_version), in_message(&kind));
            unanswerable(format!(
                "the body is not a ConversionReview: expected {API_VERSION} {KIND}, found \
                 apiVersion {api_version:?}, kind {kind:?}"
            ))
        });
        let text = request.context(unanswerable("the ConversionReview has no request"))?.get();
        let malformed = |uid: String, problem: &str| {
            ensure!(!uid.is_empty(), unanswerable(NO_UID));
            let problem = format!("the ConversionReview's request is malformed: {problem}");
            ConversionReviewSnafu { uid, problem }.fail()
        };
        match serde_json::from_str::<Self>(text) {
            Ok(request) if request.objects.is_some_and(|objects| !objects.get().starts_with('[')) => {
                malformed(request.uid.into_owned(), "objects is not a list")
            }
            Ok(request) if request.uid.is_empty() => unanswerable(NO_UID).fail(),
            Ok(request) => Ok(request),
            Err(error) => match serde_json::from_str(text) {
                Ok(Identity { uid }) => malformed(uid, &error.to_string()),
                Err(_) => unanswerable(NO_UID).fail(),
            },
        }
    }

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
pub(super) struct ResponseWriter {
    out: Vec<u8>,
    objects: usize,
}

impl ResponseWriter {
    /// Begins a response; `expected` is its approximate size in bytes.
    pub(super) fn begin(uid: &str, expected: usize) -> Self {
        let mut out = Vec::with_capacity(expected + 256);
        let uid = Value::from(uid);
        let head = format!(
            r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","response":{{"uid":{uid},"result":{{"status":"Success"}},"#
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(br#""convertedObjects":["#);
        Self { out, objects: 0 }
    }

    pub(super) fn next(&mut self) -> &mut Vec<u8> {
        if self.objects > 0 {
            self.out.push(b',');
        }
        self.objects += 1;
        &mut self.out
    }

    pub(super) fn end(mut self) -> ConversionResponse {
        self.out.extend_from_slice(b"]}}");
        ConversionResponse { body: self.out.into(), outcome: Outcome::Converted }
    }

    /// Builds a response without objects. If the conversion failed, the API server reads only the message.
    pub(super) fn failure(uid: &str, outcome: Outcome, message: &str) -> ConversionResponse {
        let result = json!({"status": "Failure", "message": in_message(message)});
        let response = json!({"uid": uid, "convertedObjects": [], "result": result});
        let review = json!({"apiVersion": API_VERSION, "kind": KIND, "response": response});
        ConversionResponse { body: review.to_string().into(), outcome }
    }
}

/// Truncates text sent by the caller for a message.
pub(super) fn in_message(text: &str) -> Cow<'_, str> {
    truncate(text, 600)
}
