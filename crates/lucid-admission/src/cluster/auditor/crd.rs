//! CustomResourceDefinition of `auditors.lucid.computing`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lucid_chain::{DEFAULT_PORT, RESERVED_ENV};
use serde_json::json;

use super::schema::{
    MEMBERS, Schema, any_number, list, map, none, object, one_of, only, quantity, short_text, some, text,
    time, whole_number,
};
use super::{CRD_NAME, GROUP, KIND, PLURAL, VERSION};

/// Returns the CustomResourceDefinition.
///
/// [`read`](super::read) checks the rules that a schema cannot express, such as requests within limits. Violations are
/// reported in the status of the object.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    CustomResourceDefinition {
        metadata: ObjectMeta { name: Some(CRD_NAME.to_owned()), ..ObjectMeta::default() },
        spec: CustomResourceDefinitionSpec {
            group: GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: KIND.to_owned(),
                list_kind: Some("AuditorList".to_owned()),
                plural: PLURAL.to_owned(),
                singular: Some("auditor".to_owned()),
                short_names: Some(vec!["aud".to_owned()]),
                categories: Some(vec!["lucid".to_owned()]),
            },
            scope: "Cluster".to_owned(),
            versions: vec![version()],
            ..CustomResourceDefinitionSpec::default()
        },
        ..CustomResourceDefinition::default()
    }
}

fn version() -> CustomResourceDefinitionVersion {
    let column = |name: &str, type_: &str, path: &str, description: &str, priority: Option<i32>| {
        CustomResourceColumnDefinition {
            name: name.to_owned(),
            type_: type_.to_owned(),
            json_path: path.to_owned(),
            description: Some(description.to_owned()).filter(|text| !text.is_empty()),
            priority,
            format: None,
        }
    };
    let condition = |type_: &str, field: &str| format!(".status.conditions[?(@.type==\"{type_}\")].{field}");
    let wide = Some(1);
    CustomResourceDefinitionVersion {
        name: VERSION.to_owned(),
        served: true,
        storage: true,
        schema: Some(CustomResourceValidation { open_api_v3_schema: Some(auditor()) }),
        subresources: Some(CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(json!({}))),
            scale: None,
        }),
        additional_printer_columns: Some(vec![
            column("Image", "string", ".spec.image", "", None),
            column("Port", "integer", ".spec.container.port", "The port while it is free in the pod", None),
            column("Notarized", "string", ".status.notarized", "Whether the image is notarized", None),
            column("Age", "date", ".metadata.creationTimestamp", "", None),
            column("Ready", "string", &condition("Ready", "status"), "Whether pods get it as it is", wide),
            column("Reason", "string", &condition("Ready", "reason"), "Why they do not", wide),
            column(
                "Verdict",
                "string",
                &condition("Notarized", "reason"),
                "Why it is notarized or not",
                wide,
            ),
        ]),
        ..CustomResourceDefinitionVersion::default()
    }
}

fn auditor() -> JSONSchemaProps {
    object([("apiVersion", text()), ("kind", text()), ("metadata", object([])), ("spec", spec()), ("status", status())])
        .required(["spec"])
        .described("An auditor of the cluster's catalogue, under its own name.")
        .with_rule(
            "self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "the name of an auditor is a DNS label: at most 63 lower-case letters, digits and hyphens, a letter or \
             digit at both ends",
        )
}

fn spec() -> JSONSchemaProps {
    let variable = object([
        ("name", variable_name().described("The variable's name.")),
        ("value", text().described("Its value.")),
    ]);
    let env = list(variable.required(["name", "value"]), "name")
        .described("Environment variables, besides those that Lucid sets.");
    let container = object([
        ("port", port()),
        ("env", env),
        ("resources", resources()),
        ("securityContext", security_context()),
        ("probes", probes()),
    ]);
    object([
        ("image", image()),
        ("description", description()),
        ("labels", labels()),
        ("container", container.with_default(json!({})).described("The container that a pod gets.")),
    ])
    .required(["image"])
}

fn image() -> JSONSchemaProps {
    short_text(512)
        .described("The image reference. In production it carries a digest: <image>@sha256:<64 hex digits>.")
        .with_rule(
            "self.matches('^[A-Za-z0-9\\\\[][^\\\\s]*$')",
            "must be an image reference such as registry.example/auditor:1.0@sha256:…, without white space",
        )
}

fn description() -> JSONSchemaProps {
    text().described("What the auditor does, in words.")
}

fn labels() -> JSONSchemaProps {
    map(text()).described("Describes the auditor; no pod gets these labels.")
}

fn port() -> JSONSchemaProps {
    whole_number(1, 65535)
        .with_default(json!(DEFAULT_PORT))
        .described("Where the auditor listens while that port is free in the pod.")
}

fn variable_name() -> JSONSchemaProps {
    short_text(256)
        .with_rule(
            "self.matches('^[A-Za-z_.-][A-Za-z0-9_.-]*$')",
            "must be a name of letters, digits, '-', '_' and '.' that starts with no digit",
        )
        .with_rule(&format!("!(self in {RESERVED_ENV:?})"), &reserved())
}

fn reserved() -> String {
    format!("{} are set by Lucid", RESERVED_ENV.join(", "))
}

fn resources() -> JSONSchemaProps {
    object([
        ("requests", map(quantity()).described("What the scheduler reserves.")),
        ("limits", map(quantity()).described("What the container may use at most.")),
    ])
    .described("Compute resources by name, such as memory: 128Mi.")
}

fn probes() -> JSONSchemaProps {
    let probe = |successes: i32| {
        object([
            ("path", text().with_rule("self.startsWith('/')", "must be a path such as /health")),
            ("initialDelaySeconds", whole_number(0, i32::MAX)),
            ("periodSeconds", whole_number(1, i32::MAX)),
            ("timeoutSeconds", whole_number(1, i32::MAX)),
            ("successThreshold", whole_number(1, successes)),
            ("failureThreshold", whole_number(1, i32::MAX)),
        ])
    };
    object([
        ("readiness", probe(i32::MAX).described("Whether the pod may get traffic.")),
        ("liveness", probe(1).described("Whether the container has to be restarted.")),
        ("startup", probe(1).described("Whether it has come up; the other two wait for it.")),
    ])
    .described("HTTP GET requests to the auditor's port, by default of /health.")
}

fn security_context() -> JSONSchemaProps {
    let profile = || {
        object([("type", one_of(&["RuntimeDefault", "Localhost"])), ("localhostProfile", text())])
            .required(["type"])
            .with_rule(
                "has(self.localhostProfile) == (self.type == 'Localhost')",
                "localhostProfile is needed with the type Localhost, and goes with no other",
            )
    };
    let dropped =
        some(short_text(64), MEMBERS).with_rule("self.exists(name, name == 'ALL')", "must name ALL");
    object([
        ("allowPrivilegeEscalation", only(false)),
        ("privileged", only(false)),
        ("readOnlyRootFilesystem", only(true)),
        ("runAsNonRoot", only(true)),
        ("procMount", one_of(&["Default"])),
        ("runAsGroup", whole_number(1, i32::MAX)),
        ("capabilities", object([("add", none(short_text(64))), ("drop", dropped)])),
        ("seLinuxOptions", object([("type", one_of(&["container_t"]))])),
        ("seccompProfile", profile()),
        ("appArmorProfile", profile()),
    ])
    .described("Tightens the container further; what is written for every auditor cannot be loosened.")
}

fn status() -> JSONSchemaProps {
    let condition = object([
        ("type", short_text(316)),
        ("status", one_of(&["True", "False", "Unknown"])),
        ("observedGeneration", any_number()),
        ("lastTransitionTime", time()),
        ("reason", short_text(1024)),
        ("message", text()),
    ]);
    object([
        (
            "notarized",
            one_of(&["True", "False", "Unknown"]).described("Whether the image is notarized, by its digest."),
        ),
        ("observedGeneration", any_number().described("The generation of the object that this is about.")),
        (
            "conditions",
            list(condition.required(["type", "status", "lastTransitionTime", "reason", "message"]), "type"),
        ),
    ])
    .described("Written by the operator.")
}
