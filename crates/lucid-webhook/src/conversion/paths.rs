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
pub trait ConversionFn<A, B>: Fn(A) -> <Self as ConversionFn<A, B>>::Answer + Send + Sync + 'static {
    /// Return type of the function.
    type Answer: Converted<B>;
}

impl<F, A, B, R> ConversionFn<A, B> for F
where
    F: Fn(A) -> R + Send + Sync + 'static,
    R: Converted<B>,
{
    type Answer = R;
}

type Read<H> = Box<dyn Fn(&[u8]) -> Result<H, BoxError> + Send + Sync>;
type Write<H> = Box<dyn Fn(H, &mut Vec<u8>) -> Result<(), BoxError> + Send + Sync>;

/// A version and its conversions from and to the hub.
pub(super) struct Version<H> {
    pub(super) name: String,
    /// Converts JSON text of this version to the hub.
    read: Read<H>,
    /// Converts the hub to JSON text of this version.
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
            let object = decode::<S>(&decoded, json)?;
            to_hub(object).converted().map_err(as_text)
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

fn decode<T: DeserializeOwned>(version: &str, json: &[u8]) -> Result<T, BoxError> {
    serde_json::from_slice(json).or_else(|error| {
        // Decode again and track the path, which is too expensive for valid objects.
        let tracked = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(json));
        let detail = match &tracked {
            Err(at) => at.to_string(),
            Ok(_) => error.to_string(),
        };
        tracked.map_err(|_| format!("it does not decode as {version}: {detail}").into())
    })
}

/// Converts JSON text between versions given by index, of which the hub is the first.
pub(super) type Convert = Box<dyn Fn([usize; 2], &[u8], &mut Vec<u8>) -> Result<(), BoxError> + Send + Sync>;

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
        let mut object = (source.read)(json).map_err(|error| match two_steps {
            true => format!("from {} to the hub {}: {error}", source.name, hub.name).into(),
            false => error,
        })?;
        stamp(&mut object);
        (target.write)(object, out).map_err(|error| match two_steps {
            true => format!("from the hub {} to {}: {error}", hub.name, target.name).into(),
            false => error,
        })
    })
}
