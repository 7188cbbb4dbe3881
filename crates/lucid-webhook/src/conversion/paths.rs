//! Conversion paths between versions, all through the hub.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::BoxError;

use super::function::{ConversionFn, Converted};

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

/// Erases the type of the hub.
pub(super) trait Paths: Send + Sync {
    /// Converts JSON text between versions given by index.
    fn convert(&self, from: usize, to: usize, json: &[u8], out: &mut Vec<u8>) -> Result<(), BoxError>;
}

/// All versions; the hub comes first.
pub(super) struct Star<H> {
    pub(super) versions: Vec<Version<H>>,
    /// Sets the apiVersion of an untyped hub object.
    pub(super) stamp: fn(&mut H, &str),
    pub(super) hub_api_version: String,
}

impl<H> Paths for Star<H> {
    fn convert(&self, from: usize, to: usize, json: &[u8], out: &mut Vec<u8>) -> Result<(), BoxError> {
        // The indices are those of the converter that owns this value, so this cannot fail.
        let [Some(hub), Some(source), Some(target)] = [0, from, to].map(|index| self.versions.get(index))
        else {
            return Err("no such version".into());
        };
        // With two steps, name the one that failed.
        let two_steps = from != 0 && to != 0;
        let mut object = (source.read)(json).map_err(|error| match two_steps {
            true => format!("from {} to the hub {}: {error}", source.name, hub.name).into(),
            false => error,
        })?;
        (self.stamp)(&mut object, &self.hub_api_version);
        (target.write)(object, out).map_err(|error| match two_steps {
            true => format!("from the hub {} to {}: {error}", hub.name, target.name).into(),
            false => error,
        })
    }
}
