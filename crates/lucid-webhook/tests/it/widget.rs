//! A resource with two versions whose types derive `CustomResource`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::core::crd::merge_crds;
use lucid_webhook::{Converter, ConverterBuilder};

pub(crate) mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
    #[kube(group = "widgets.example.com", version = "v1", kind = "Widget", namespaced)]
    pub(crate) struct WidgetSpec {
        #[schemars(required)]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) image: Option<String>,
        #[schemars(default = "one")]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) size: Option<i32>,
    }

    fn one() -> Option<i32> {
        Some(1)
    }
}

pub(crate) mod v2 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
    #[kube(group = "widgets.example.com", version = "v2", kind = "Widget", namespaced)]
    pub(crate) struct WidgetSpec {
        #[schemars(required)]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) image: Option<String>,
        #[schemars(default = "one")]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) replicas: Option<i32>,
    }

    fn one() -> Option<i32> {
        Some(1)
    }
}

/// As v1, with a required field.
pub(crate) mod strict {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
    #[kube(group = "widgets.example.com", version = "v1", kind = "Widget", namespaced)]
    pub(crate) struct WidgetSpec {
        pub(crate) image: String,
        #[serde(default)]
        pub(crate) size: i32,
    }
}

fn up(v1::Widget { metadata, spec }: v1::Widget) -> v2::Widget {
    v2::Widget { metadata, spec: v2::WidgetSpec { image: spec.image, replicas: spec.size } }
}

fn down(v2::Widget { metadata, spec }: v2::Widget) -> v1::Widget {
    v1::Widget { metadata, spec: v1::WidgetSpec { image: spec.image, size: spec.replicas } }
}

pub(crate) fn builder() -> ConverterBuilder<v2::Widget> {
    Converter::hub::<v2::Widget>().spoke::<v1::Widget>(up, down)
}

pub(crate) fn strict() -> ConverterBuilder<v2::Widget> {
    let up = |strict::Widget { metadata, spec }: strict::Widget| v2::Widget {
        metadata,
        spec: v2::WidgetSpec { image: Some(spec.image), replicas: Some(spec.size) },
    };
    let down = |v2::Widget { metadata, spec }: v2::Widget| strict::Widget {
        metadata,
        spec: strict::WidgetSpec {
            image: spec.image.unwrap_or_default(),
            size: spec.replicas.unwrap_or_default(),
        },
    };
    Converter::hub::<v2::Widget>().spoke::<strict::Widget>(up, down)
}

/// v2 is stored.
pub(crate) fn definition() -> CustomResourceDefinition {
    merge_crds(vec![v1::Widget::crd(), v2::Widget::crd()], "v2").unwrap()
}
