//! The webhooks and the custom resource: change them to yours.

use k8s_openapi::api::core::v1::Pod;
use kube::CustomResource;
use lucid_webhook::{AdmissionResponse, Changed, FieldErrors, FieldPath, Object, UserInfo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Defaulting: a pod is annotated with the user who creates it.
pub async fn name_owner(Object(mut pod): Object<Pod>, user: UserInfo) -> Changed<Pod> {
    pod.metadata.annotations.get_or_insert_default().insert("{{group}}/owner".into(), user.username);
    Changed::new(pod)
}

/// A team. Version 1 has its members in one text, separated by commas.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "{{group}}", version = "v1", kind = "Team", root = "OldTeam")]
pub struct OldTeamSpec {
    // Absent rather than empty, so that server-side apply of other fields does not take it over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<String>,
}

/// A team. Version 2 has its members in a list.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "{{group}}", version = "v2", kind = "Team")]
pub struct TeamSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<String>>,
}

/// Validation: a team has members.
pub async fn has_members(Object(team): Object<Team>) -> Result<AdmissionResponse, FieldErrors> {
    let mut errors = FieldErrors::new();
    if team.spec.members.is_none_or(|members| members.is_empty()) {
        errors.required(FieldPath::new("spec").child("members"), "a team has at least one member");
    }
    errors.into_result().map(|()| AdmissionResponse::allow())
}

/// Conversion from version 1, which must lose nothing.
pub fn to_v2(old: OldTeam) -> Team {
    let names = |text: &str| text.split([',', ' ']).filter(|it| !it.is_empty()).map(str::to_owned).collect();
    Team { metadata: old.metadata, spec: TeamSpec { members: old.spec.members.as_deref().map(names) } }
}

/// Conversion to version 1.
pub fn to_v1(new: Team) -> OldTeam {
    let spec = OldTeamSpec { members: new.spec.members.map(|names| names.join(", ")) };
    OldTeam { metadata: new.metadata, spec }
}
