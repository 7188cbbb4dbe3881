//! The text of an object, and what is read of it.

use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use snafu::Snafu;

use super::cursor::Cursor;
use super::outline::Outline;
use super::reader;
use crate::review::excerpt;

/// JSON text of one object of the request; cheap to clone.
///
/// The text is UTF-8 and its brackets match; what is between them is read when it is decoded, and may only then turn out
/// to be no JSON. What a view does not have is not read at all.
#[derive(Clone)]
pub struct RawObject {
    text: Bytes,
    /// None if it is unusual: serde_json reads it then.
    outline: Option<Outline>,
}

impl RawObject {
    /// Takes the object that `cursor`, which is in `body`, is at; none if it is no object.
    pub(crate) fn pass(cursor: &mut Cursor<'_>, body: &Bytes) -> Option<Self> {
        if cursor.peek()? != b'{' {
            return None;
        }
        let start = cursor.at;
        let outline = Outline::pass(cursor);
        if outline.is_none() {
            cursor.at = start;
            cursor.skip()?;
        }
        Some(Self { text: body.slice(start..cursor.at), outline })
    }

    /// Takes `text`, which has to be JSON.
    pub(crate) fn new(text: Bytes) -> Self {
        let mut cursor = Cursor::new(&text);
        let outline = Outline::pass(&mut cursor).filter(|_| cursor.is_at_end());
        Self { text, outline }
    }

    /// The JSON text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// Decodes the object into a type of its own.
    ///
    /// # Errors
    ///
    /// When the JSON does not fit `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        self.view()
    }

    /// Decodes the object into a type that borrows from its JSON text.
    ///
    /// ```
    /// # use lucid_webhook::RawObject;
    /// #[derive(serde::Deserialize)]
    /// struct View<'a> {
    ///     #[serde(borrow)]
    ///     kind: std::borrow::Cow<'a, str>,
    /// }
    /// let object = RawObject::from_value(&serde_json::json!({"kind": "Pod", "spec": {}}));
    /// let view: View<'_> = object.view()?;
    /// assert_eq!(view.kind, "Pod");
    /// # Ok::<(), lucid_webhook::DecodeError>(())
    /// ```
    ///
    /// A `&str` in the view does not fit text with escapes in it; `Cow<str>` fits every text.
    ///
    /// # Errors
    ///
    /// When the JSON does not fit `T`.
    pub fn view<'a, T: Deserialize<'a>>(&'a self) -> Result<T, DecodeError> {
        let read = self.outline.as_ref().and_then(|outline| reader::read(&self.text, outline));
        read.map_or_else(|| parse(&self.text), Ok)
    }

    /// Makes an object from a JSON value, for tests of handlers.
    #[must_use]
    pub fn from_value(value: &serde_json::Value) -> Self {
        Self::new(Bytes::from(value.to_string()))
    }
}

/// Reads all of `text`, and tells what is wrong with it.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(text).map_err(|source| {
        // Once more, for the path: it is worth nothing while all goes well, and keeping it costs time.
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let path = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
            Err(error) => error.path().to_string(),
            Ok(_) => ".".to_owned(),
        };
        DecodeError { path, source }
    })
}

impl PartialEq for RawObject {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for RawObject {}

impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Objects may hold secrets, and are long.
        write!(f, "RawObject({} bytes)", self.text.len())
    }
}

/// An object does not fit the type that a handler wants.
#[derive(Debug, Snafu)]
#[snafu(display("failed to decode the object{}: {}", place(path), excerpt(&without_text(source))))]
#[non_exhaustive]
pub struct DecodeError {
    /// Where in the object, such as `spec.containers[0].image`; `.` is the object itself.
    pub path: String,
    /// What the decoder said.
    pub source: serde_json::Error,
}

/// A decoder's message without the text that it quotes: the object may hold secrets, and what a user is told stands in
/// the API server's audit log too.
fn without_text(source: &serde_json::Error) -> String {
    let message = source.to_string();
    match (message.find("string \""), message.rfind("\", expected")) {
        (Some(begin), Some(end)) if begin < end => {
            format!("{}string{}", &message[..begin], &message[end + 1..])
        }
        _ => message,
    }
}

fn place(path: &str) -> String {
    if path == "." { String::new() } else { format!(" at {path}") }
}
