//! A conversion webhook: CronTabs are stored in v2, and clients of v1 keep using v1.

mod serve;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lucid_webhook::{BoxError, Converter, Router};
use serde::{Deserialize, Serialize};

const DEFINITION: &str = include_str!("crontab-crd.yaml");

/// Annotation that holds the time zone in v1, which has no field for it.
const TIME_ZONE: &str = "example.com/time-zone";

// Everything is optional regardless of the schema: for a server-side apply, the API server converts partial objects.

#[derive(Serialize, Deserialize)]
struct V1 {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SpecV1,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecV1 {
    /// Such as `localhost:1234`.
    #[serde(skip_serializing_if = "Option::is_none")]
    host_port: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct V2 {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SpecV2,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecV2 {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
}

fn to_v2(v1: V1) -> Result<V2, BoxError> {
    let V1 { mut metadata, spec: SpecV1 { host_port, image } } = v1;
    let [host, port] = match host_port {
        Some(host_port) => split(&host_port)?,
        None => [None, None],
    };
    let time_zone = metadata.annotations.as_mut().and_then(|annotations| annotations.remove(TIME_ZONE));
    Ok(V2 { metadata, spec: SpecV2 { host, port, time_zone, image } })
}

/// Returns host and port. One of both is empty in a partial object.
fn split(host_port: &str) -> Result<[Option<String>; 2], BoxError> {
    let (host, port) =
        host_port.rsplit_once(':').ok_or_else(|| format!("spec.hostPort: {host_port:?} is not HOST:PORT"))?;
    Ok([host, port].map(|part| (!part.is_empty()).then(|| part.to_owned())))
}

fn to_v1(v2: V2) -> V1 {
    let V2 { mut metadata, spec: SpecV2 { host, port, time_zone, image } } = v2;
    if let Some(time_zone) = time_zone {
        metadata.annotations.get_or_insert_default().insert(TIME_ZONE.into(), time_zone);
    }
    let is_set = host.is_some() || port.is_some();
    let host_port = is_set.then(|| [host, port].map(Option::unwrap_or_default).join(":"));
    V1 { metadata, spec: SpecV1 { host_port, image } }
}

/// Implements the resource traits of a type, like `#[derive(kube::CustomResource)]`, which also generates the
/// definition.
macro_rules! crontab {
    ($type:ty, $version:literal) => {
        impl k8s_openapi::Resource for $type {
            const API_VERSION: &'static str = concat!("example.com/", $version);
            const GROUP: &'static str = "example.com";
            const KIND: &'static str = "CronTab";
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = "crontabs";
            type Scope = NamespaceResourceScope;
        }

        impl k8s_openapi::Metadata for $type {
            type Ty = ObjectMeta;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

crontab!(V1, "v1");
crontab!(V2, "v2");

pub(crate) fn definition() -> Result<CustomResourceDefinition, BoxError> {
    Ok(serde_yaml::from_str(DEFINITION)?)
}

/// Converts between the versions of the definition. `lucid_webhook_test::round_trip` tests that conversions are
/// lossless.
pub(crate) fn converter() -> Result<Converter, BoxError> {
    Ok(Converter::hub::<V2>().spoke::<V1>(to_v2, to_v1).build(&definition()?)?)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let router = Router::new().convert("/convert", converter()?);
    serve::serve(router).await
}
