//! Conversion paths between versions, all through the hub.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::BoxError;

/// Return type of conversion functions: the object, or a `Result` of it.
#[diagnostic::on_unimplemented(
    message = "a conversion function returns `{T}` or `Result<{T}, E>`, not `{Self}`",
    note = "`E` has to be an error: `E: Into<Box<dyn std::error::Error + Send + Sync>>`"
)]
pub trait Converted<T> {
    /// Converts into a `Result`.
    ///
    /// # Errors
    ///
    /// The error of the conversion function.
    fn converted(self) -> Result<T, BoxError>;
}

impl<T> Converted<T> for T {
    fn converted(self) -> Result<T, BoxError> {
        Ok(self)
    }
}

impl<T, E: Into<BoxError>> Converted<T> for Result<T, E> {
    fn converted(self) -> Result<T, BoxError> {
        self.map_err(Into::into)
    }
}

/// A function from one version of an object to another: `Fn(A) -> B` or `Fn(A) -> Result<B, E>`.
pub trait ConversionFn<A, B>: Fn(A) -> <Self as ConversionFn<A, B>>::Output + Send + Sync + 'static {
    /// Return type of the function.
    type Output: Converted<B>;
}

impl<F, A, B, R> ConversionFn<A, B> for F
where
    F: Fn(A) -> R + Send + Sync + 'static,
    R: Converted<B>,
{
    type Output = R;
}

type Read<H> = Box<dyn Fn(&[u8]) -> Result<Option<(H, Conversion)>, BoxError> + Send + Sync>;
type Write<H> = Box<dyn Fn(H, &mut Vec<u8>) -> Result<(), BoxError> + Send + Sync>;

/// Extent of a conversion. A server-side apply converts objects whose `spec` is missing, although their type may
/// require one, as those of `#[derive(CustomResource)]` do (kubernetes/kubernetes#117356).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    Whole,
    /// The object had no `spec` and was converted with an empty one, which does not belong into the result.
    WithoutSpec,
    /// The object has no `spec` and its type does not decode an empty one, so nothing was converted.
    VersionOnly,
}

pub(super) struct Version<H> {
    pub(super) name: String,
    /// Converts JSON text of this version to the hub; `None` if it lacks a `spec` that the type requires.
    read: Read<H>,
    write: Write<H>,
}

impl<H: Serialize + DeserializeOwned + 'static> Version<H> {
    pub(super) fn hub(name: String) -> Self {
        Self::spoke(name, |hub: H| hub, |hub: H| hub)
    }
}

impl<H> Version<H> {
    pub(super) fn spoke<S>(
        name: String,
        to_hub: impl ConversionFn<S, H>,
        from_hub: impl ConversionFn<H, S>,
    ) -> Self
    where
        S: Serialize + DeserializeOwned + 'static,
        H: 'static,
    {
        let (decoded, encoded) = (name.clone(), name.clone());
        let read = move |json: &[u8]| {
            let (object, conversion) = match decode::<S>(&decoded, json) {
                Ok(object) => (object, Conversion::Whole),
                Err(error) if error.lacks_spec => match serde_json::from_slice(&with_empty_spec(json)) {
                    Ok(object) => (object, Conversion::WithoutSpec),
                    Err(_) => return Ok(None),
                },
                Err(error) => return Err(error.problem.into()),
            };
            Ok(Some((to_hub(object).converted().map_err(as_text)?, conversion)))
        };
        let write = move |hub: H, out: &mut Vec<u8>| {
            let object = from_hub(hub).converted().map_err(as_text)?;
            serde_json::to_writer(out, &object)
                .map_err(|error| format!("the {encoded} that it became does not encode: {error}").into())
        };
        Self { name, read: Box::new(read), write: Box::new(write) }
    }
}

/// Formats an error where panics are caught, since its type belongs to the conversion function.
fn as_text(error: BoxError) -> BoxError {
    error.to_string().into()
}

struct DecodeError {
    lacks_spec: bool,
    problem: String,
}

fn decode<T: DeserializeOwned>(version: &str, json: &[u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(json).map_err(|error| {
        // Decode again and track the path, which is too expensive for valid objects.
        let tracked: Result<T, _> =
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(json));
        let (lacks_spec, detail) = match tracked.err() {
            // The path of the object itself is empty.
            Some(at) => (
                at.path().iter().next().is_none()
                    && at.inner().to_string().starts_with("missing field `spec`"),
                at.to_string(),
            ),
            None => (false, error.to_string()),
        };
        DecodeError { lacks_spec, problem: format!("it does not decode as {version}: {detail}") }
    })
}

/// Adds an empty `spec` to an object that has none, and at least one member.
fn with_empty_spec(object: &[u8]) -> Vec<u8> {
    let members = object.strip_prefix(b"{").unwrap_or(object);
    [br#"{"spec":{},"#, members].concat()
}

/// Converts JSON text between versions given by index, of which the hub is the first.
pub(super) type Convert =
    Box<dyn Fn([usize; 2], &[u8], &mut Vec<u8>) -> Result<Conversion, BoxError> + Send + Sync>;

/// Erases the type of the hub. `stamp` sets the apiVersion of an untyped hub object.
pub(super) fn through_hub<H: 'static>(
    versions: Vec<Version<H>>,
    stamp: impl Fn(&mut H) + Send + Sync + 'static,
) -> Convert {
    Box::new(move |[from, to], json, out| {
        // The indices are those of the converter that owns this function, so this cannot fail.
        let [Some(hub), Some(source), Some(target)] = [0, from, to].map(|index| versions.get(index)) else {
            return Err("no such version".into());
        };
        // With two steps, name the one that failed.
        let two_steps = from != 0 && to != 0;
        let read = (source.read)(json).map_err(|error| -> BoxError {
            match two_steps {
                true => format!("from {} to the hub {}: {error}", source.name, hub.name).into(),
                false => error,
            }
        })?;
        let Some((mut object, conversion)) = read else { return Ok(Conversion::VersionOnly) };
        stamp(&mut object);
        (target.write)(object, out).map_err(|error| -> BoxError {
            match two_steps {
                true => format!("from the hub {} to {}: {error}", hub.name, target.name).into(),
                false => error,
            }
        })?;
        Ok(conversion)
    })
}
