//! A resource with two versions. Fields unknown to the older one are kept in an annotation.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::Resource;
use lucid_webhook::{Converter, ConverterBuilder};
use serde::{Deserialize, Serialize};
use serde_json::json;
use snafu::Snafu;

const TIME_ZONE: &str = "stable.example.com/time-zone";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CronTabV1 {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: SpecV1,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SpecV1 {
    /// Schedule such as `* * * * */5`.
    pub(crate) cron_spec: String,
    pub(crate) image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<i32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CronTabV2 {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: SpecV2,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SpecV2 {
    pub(crate) schedule: Schedule,
    pub(crate) image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_zone: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Schedule {
    pub(crate) minute: String,
    pub(crate) hour: String,
    pub(crate) day_of_month: String,
    pub(crate) month: String,
    pub(crate) day_of_week: String,
}

macro_rules! resource {
    ($type:ty, $version:literal) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                "CronTab".into()
            }

            fn group((): &()) -> Cow<'_, str> {
                "stable.example.com".into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                "crontabs".into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(CronTabV1, "v1");
resource!(CronTabV2, "v2");

#[derive(Debug, Snafu)]
#[snafu(display("spec.cronSpec: expected 5 fields, found {found}: {cron_spec:?}"))]
pub(crate) struct CronSpecError {
    found: usize,
    cron_spec: String,
}

pub(crate) fn v1_to_v2(v1: CronTabV1) -> Result<CronTabV2, CronSpecError> {
    let CronTabV1 { mut metadata, spec: SpecV1 { cron_spec, image, replicas } } = v1;
    let fields: Vec<_> = cron_spec.split_whitespace().map(str::to_owned).collect();
    let [minute, hour, day_of_month, month, day_of_week] =
        fields.try_into().map_err(|fields: Vec<_>| CronSpecError { found: fields.len(), cron_spec })?;
    let mut annotations = metadata.annotations.take().unwrap_or_default();
    let time_zone = annotations.remove(TIME_ZONE);
    metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    let schedule = Schedule { minute, hour, day_of_month, month, day_of_week };
    Ok(CronTabV2 { metadata, spec: SpecV2 { schedule, image, replicas, time_zone } })
}

pub(crate) fn v2_to_v1(v2: CronTabV2) -> CronTabV1 {
    let CronTabV2 { mut metadata, spec: SpecV2 { schedule, image, replicas, time_zone } } = v2;
    let Schedule { minute, hour, day_of_month, month, day_of_week } = schedule;
    let cron_spec = [minute, hour, day_of_month, month, day_of_week].join(" ");
    if let Some(time_zone) = time_zone {
        metadata.annotations.get_or_insert_with(BTreeMap::new).insert(TIME_ZONE.to_owned(), time_zone);
    }
    CronTabV1 { metadata, spec: SpecV1 { cron_spec, image, replicas } }
}

pub(crate) fn builder() -> ConverterBuilder<CronTabV2> {
    Converter::hub::<CronTabV2>().spoke::<CronTabV1>(v1_to_v2, v2_to_v1)
}

pub(crate) fn definition() -> CustomResourceDefinition {
    let field = json!({"type": "string", "pattern": "^[0-9*/,-]+$", "maxLength": 20});
    let version = |name: &str, stored: bool, spec: serde_json::Value| {
        let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": spec}});
        json!({"name": name, "served": true, "storage": stored, "schema": {"openAPIV3Schema": schema}})
    };
    let replicas = json!({"type": "integer", "format": "int32", "minimum": 0, "nullable": true});
    let v1 = json!({
        "type": "object",
        "required": ["cronSpec", "image"],
        "properties": {
            "cronSpec": {"type": "string", "pattern": r"^[\d*/,-]+( [\d*/,-]+){4}$"},
            "image": {"type": "string"},
            "replicas": replicas,
        },
    });
    let v2 = json!({
        "type": "object",
        "required": ["schedule", "image"],
        "properties": {
            "schedule": {
                "type": "object",
                "required": ["minute", "hour", "dayOfMonth", "month", "dayOfWeek"],
                "properties": {
                    "minute": field, "hour": field, "dayOfMonth": field, "month": field, "dayOfWeek": field,
                },
            },
            "image": {"type": "string"},
            "replicas": replicas,
            "timeZone": {"type": "string", "maxLength": 40},
        },
    });
    let definition = json!({
        "metadata": {"name": "crontabs.stable.example.com"},
        "spec": {
            "group": "stable.example.com",
            "names": {"kind": "CronTab", "plural": "crontabs"},
            "scope": "Namespaced",
            "versions": [version("v1", false, v1), version("v2", true, v2)],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}},
        },
    });
    serde_json::from_value(definition).unwrap()
}
