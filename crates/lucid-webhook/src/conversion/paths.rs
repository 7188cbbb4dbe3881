//! Conversion paths between versions, all through the hub.

use serde::Serialize;
use serde::de::DeserializeOwned;
use snafu::{IntoError, ResultExt, Snafu};
use tower::BoxError;

use super::function::{ConversionFn, Converted};

/// A conversion step failed.
#[derive(Debug, Snafu)]
pub(super) enum StepError {
    #[snafu(display("it does not decode as {version}: {detail}"))]
    Decode { version: String, detail: String },
    #[snafu(display("{source}"))]
    Function { source: BoxError },
    #[snafu(display("the {version} that it became does not encode: {source}"))]
    Encode { version: String, source: serde_json::Error },
    #[snafu(display("from {from} to the hub {to}: {source}"))]
    ToHub { from: String, to: String, source: Box<StepError> },
    #[snafu(display("from the hub {from} to {to}: {source}"))]
    FromHub { from: String, to: String, source: Box<StepError> },
}

type Read<H> = Box<dyn Fn(&[u8]) -> Result<H, StepError> + Send + Sync>;
type Write<H> = Box<dyn Fn(H, &mut Vec<u8>) -> Result<(), StepError> + Send + Sync>;

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
            to_hub(object).converted().context(FunctionSnafu)
        };
        let write = move |hub: H, out: &mut Vec<u8>| {
            let object = from_hub(hub).converted().context(FunctionSnafu)?;
            serde_json::to_writer(out, &object).context(EncodeSnafu { version: &encoded })
        };
        Self { name, read: Box::new(read), write: Box::new(write) }
    }
}

fn decode<T: DeserializeOwned>(version: &str, json: &[u8]) -> Result<T, StepError> {
    serde_json::from_slice(json).or_else(|error| {
        // Decode again and track the path, which is too expensive for valid objects.
        let tracked = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(json));
        let detail = match &tracked {
            Err(at) => at.to_string(),
            Ok(_) => error.to_string(),
        };
        tracked.or_else(|_| DecodeSnafu { version, detail }.fail())
    })
}

/// Erases the type of the hub.
pub(super) trait Paths: Send + Sync {
    /// Converts JSON text between versions given by index.
    fn convert(&self, from: usize, to: usize, json: &[u8], out: &mut Vec<u8>) -> Result<(), StepError>;
}

/// All versions; the hub comes first.
pub(super) struct Star<H> {
    pub(super) versions: Vec<Version<H>>,
    /// Sets the apiVersion of an untyped hub object.
    pub(super) stamp: fn(&mut H, &str),
    pub(super) hub_api_version: String,
}

impl<H> Paths for Star<H> {
    fn convert(&self, from: usize, to: usize, json: &[u8], out: &mut Vec<u8>) -> Result<(), StepError> {
        // The indices are those of the converter that owns this value, so this cannot fail.
        let [Some(hub), Some(source), Some(target)] = [0, from, to].map(|index| self.versions.get(index))
        else {
            return DecodeSnafu { version: "", detail: "no such version" }.fail();
        };
        // With two steps, name the one that failed.
        let two_steps = from != 0 && to != 0;
        let mut object = (source.read)(json).map_err(|error| match two_steps {
            true => ToHubSnafu { from: &source.name, to: &hub.name }.into_error(Box::new(error)),
            false => error,
        })?;
        (self.stamp)(&mut object, &self.hub_api_version);
        (target.write)(object, out).map_err(|error| match two_steps {
            true => FromHubSnafu { from: &hub.name, to: &target.name }.into_error(Box::new(error)),
            false => error,
        })
    }
}
