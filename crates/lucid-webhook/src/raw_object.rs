//! JSON text of objects, decoded on demand.

use std::fmt;

use bytes::Bytes;
use kube_core::response::StatusCause;
use lucid_text::Line;
use serde::Deserialize;
use snafu::Snafu;

/// JSON text of one object of the request; cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct RawObject(Bytes);

impl RawObject {
    /// Wraps `text`, which has to be JSON.
    pub(crate) const fn new(text: Bytes) -> Self {
        Self(text)
    }

    /// The JSON text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Decodes the object. The type may borrow from its JSON text:
    ///
    /// ```
    /// # use lucid_webhook::RawObject;
    /// #[derive(serde::Deserialize)]
    /// struct View<'a> {
    ///     #[serde(borrow)]
    ///     kind: std::borrow::Cow<'a, str>,
    /// }
    /// let object = RawObject::from_value(&serde_json::json!({"kind": "Pod", "spec": {}}));
    /// let view: View<'_> = object.decode()?;
    /// assert_eq!(view.kind, "Pod");
    /// # Ok::<(), lucid_webhook::DecodeError>(())
    /// ```
    ///
    /// Strings that contain escapes decode into `Cow<str>` but not into `&str`.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] if the JSON does not fit `T`.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Result<T, DecodeError> {
        serde_json::from_slice(&self.0).map_err(|source| {
            // Decodes again for the path: tracking it would slow down every successful decode.
            let mut deserializer = serde_json::Deserializer::from_slice(&self.0);
            let path = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
                Err(error) => error.path().to_string(),
                Ok(_) => ".".to_owned(),
            };
            DecodeError { path, source }
        })
    }

    /// Creates an object from a JSON value, for tests of handlers.
    #[must_use]
    pub fn from_value(value: &serde_json::Value) -> Self {
        Self::new(Bytes::from(value.to_string()))
    }
}

/// Omits the content: objects are long and may hold secrets.
impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawObject({} bytes)", self.0.len())
    }
}

/// An object does not fit the type that the handler expects.
#[derive(Debug, Snafu)]
#[snafu(display("failed to decode the object{}: {}", at(path), Line(&without_text(source))))]
pub struct DecodeError {
    /// Location in the object, such as `spec.containers[0].image`; `.` is the object itself.
    pub(crate) path: String,
    pub(crate) source: serde_json::Error,
}

impl DecodeError {
    pub(crate) fn cause(&self) -> StatusCause {
        StatusCause {
            reason: "FieldValueTypeInvalid".to_owned(),
            message: format!("Invalid value: {}", Line(&without_text(&self.source))),
            field: if self.path == "." { String::new() } else { self.path.clone() },
        }
    }
}

/// Removes text of the object from the decoder's message: it may be secret, and the API server's audit log records the
/// message.
fn without_text(source: &serde_json::Error) -> String {
    let message = source.to_string();
    match (message.find("string \""), message.rfind("\", expected")) {
        (Some(begin), Some(end)) if begin < end => {
            format!("{}string{}", &message[..begin], &message[end + 1..])
        }
        _ => message,
    }
}

fn at(path: &str) -> String {
    if path == "." { String::new() } else { format!(" at {path}") }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Nested {
        #[serde(rename = "inner")]
        _inner: Option<Box<Nested>>,
    }

    #[test]
    fn deeply_nested_objects_do_not_overflow_the_stack() {
        for depth in [126, 127, 200, 100_000] {
            let lists = format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
            let object = RawObject::new(lists.into());
            assert_eq!(object.decode::<Value>().is_ok(), depth < 127, "{depth}");
            object.decode::<Nested>().unwrap();
            let objects = r#"{"inner":"#.repeat(depth) + "{}" + &"}".repeat(depth);
            assert_eq!(RawObject::new(objects.into()).decode::<Nested>().is_ok(), depth < 127, "{depth}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_do_not_decode() {
        let object = RawObject::new(Bytes::from_static(b"{\"kind\":\"\xff\"}"));
        object.decode::<Value>().unwrap_err();
    }
}
