//! Teams, a custom resource with two versions: v1 has its members in one text, v2 in a list.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, CustomResource, ResourceExt};
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, BoxError, Converter, ConverterError, FieldErrors, FieldPath, Router,
    Validator, Webhook,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "tidy.example.com", version = "v1", kind = "Team")]
pub(crate) struct OldTeamSpec {
    /// Names, separated by commas.
    // Not a default: server-side apply removes fields, and what a type fills in would look like applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) members: Option<String>,
}

mod v2 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "tidy.example.com", version = "v2", kind = "Team")]
    pub(crate) struct TeamSpec {
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) members: Option<Vec<String>>,
    }
}

fn to_v2(old: Team) -> v2::Team {
    let names =
        |text: &str| text.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect();
    v2::Team {
        metadata: old.metadata,
        spec: v2::TeamSpec { members: old.spec.members.as_deref().map(names) },
    }
}

fn to_v1(new: v2::Team) -> Team {
    Team {
        metadata: new.metadata,
        spec: OldTeamSpec { members: new.spec.members.map(|names| names.join(", ")) },
    }
}

/// Teams need members, and stay while a namespace refers to them.
struct Teams {
    client: Client,
}

impl Validator<v2::Team> for Teams {
    async fn create(&self, new: v2::Team, _: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        let mut errors = FieldErrors::new();
        if new.spec.members.is_none_or(|members| members.is_empty()) {
            errors.required(FieldPath::new("spec").child("members"), "a team has at least one member");
        }
        errors.into_result()?;
        Ok(AdmissionResponse::allow())
    }

    async fn update(
        &self,
        _: v2::Team,
        new: v2::Team,
        request: &AdmissionRequest,
    ) -> Result<AdmissionResponse, BoxError> {
        self.create(new, request).await
    }

    async fn delete(&self, old: v2::Team, _: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        let owned = ListParams::default().labels(&format!("tidy.example.com/team={}", old.name_any()));
        let namespaces = Api::<Namespace>::all(self.client.clone()).list_metadata(&owned.limit(1)).await?;
        Ok(match namespaces.items.first() {
            Some(namespace) => {
                let message = format!("namespace {} belongs to this team", namespace.name_any());
                AdmissionResponse::deny(409, "Conflict", message)
            }
            None => AdmissionResponse::allow(),
        })
    }
}

/// Adds the validation and the conversion of teams.
///
/// # Errors
///
/// Returns an error if a version has no conversion.
pub(crate) fn serve(router: Router, client: Client) -> Result<Router, ConverterError> {
    let converter = Converter::hub::<v2::Team>().spoke::<Team>(to_v2, to_v1).build_for(["v1", "v2"])?;
    let validator = Webhook::validator::<v2::Team>("teams.tidy.example.com", Teams { client });
    Ok(router.webhook("/teams", validator).convert("/convert", converter))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::CustomResourceExt;
    use kube::core::crd::merge_crds;

    use super::*;

    #[test]
    fn the_manifest_defines_teams() {
        let wanted = merge_crds(vec![Team::crd(), v2::Team::crd()], "v2").unwrap();
        let manifest = include_str!("../deploy.yaml");
        let definitions = serde_yaml::Deserializer::from_str(manifest).filter_map(|document| {
            let value = serde_yaml::Value::deserialize(document).unwrap();
            (value["kind"] == "CustomResourceDefinition").then(|| serde_yaml::from_value(value).unwrap())
        });
        let definitions: Vec<CustomResourceDefinition> = definitions.collect();
        assert_eq!(definitions, std::slice::from_ref(&wanted), "{}", serde_yaml::to_string(&wanted).unwrap());
    }
}
