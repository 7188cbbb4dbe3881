//! RBAC permissions of the programs, and detection of missing ones.
//!
//! [`Needs`] lists the permissions that a program needs with its settings. [`missing`] asks the API server for those
//! that are not granted, and [`watch`] reports them in the log of a running process.

mod needed;
mod watch;

use std::fmt;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::api::PostParams;
use kube::{Api, Client};

pub use needed::{Need, Needs};
pub use watch::watch;

const CONCURRENCY: usize = 8;
/// API groups that are displayed with their resources: Lucid's own, and one whose resources exist in another group as
/// well.
const NAMED_GROUPS: [&str; 2] = ["lucid.computing", "events.k8s.io"];

/// Verbs on a resource, as in a rule of a Role or ClusterRole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permission {
    /// Verbs such as `get`
    pub verbs: Vec<&'static str>,
    /// API group such as `apps`; empty for core/v1
    pub group: &'static str,
    /// Plural name, with the subresource if any, such as `deployments/scale`
    pub resource: &'static str,
    /// Name of the object; `None` for all objects
    pub name: Option<String>,
    /// Namespace; `None` for all namespaces or for cluster-scoped resources
    pub namespace: Option<String>,
}

impl Permission {
    /// Creates a permission for all objects of the resource in all namespaces.
    #[must_use]
    pub fn new(verbs: &[&'static str], group: &'static str, resource: &'static str) -> Self {
        Self { verbs: verbs.to_vec(), group, resource, name: None, namespace: None }
    }

    /// Restricts the permission to one object.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Restricts the permission to one namespace.
    #[must_use]
    pub fn within(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    fn attributes(&self, verb: &str) -> ResourceAttributes {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ResourceAttributes {
            namespace: self.namespace.clone(),
            verb: given(verb),
            group: given(self.group),
            resource: given(resource),
            subresource: given(subresource),
            name: self.name.clone(),
            ..ResourceAttributes::default()
        }
    }
}

/// Formats the permission as in `get and update secrets lucid-operator-ca in namespace lucid-system`.
impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verbs.as_slice() {
            [but_last @ .., last] if !but_last.is_empty() => write!(f, "{} and {last}", but_last.join(", "))?,
            verbs => f.write_str(&verbs.concat())?,
        }
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        write!(f, " {resource}")?;
        if NAMED_GROUPS.contains(&self.group) {
            write!(f, ".{}", self.group)?;
        }
        if !subresource.is_empty() {
            write!(f, "/{subresource}")?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        Ok(())
    }
}

/// Subject whose permissions are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The client itself. Needs no permission.
    Own,
    /// A ServiceAccount. Needs permission to create SubjectAccessReviews.
    ServiceAccount {
        /// Namespace of the ServiceAccount
        namespace: String,
        /// Name of the ServiceAccount
        name: String,
    },
}

impl Subject {
    async fn may(&self, client: &Client, attributes: ResourceAttributes) -> kube::Result<bool> {
        let params = PostParams::default();
        let resource_attributes = Some(attributes);
        let status = match self {
            Self::Own => {
                let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..Default::default() };
                let review = SelfSubjectAccessReview { spec, ..Default::default() };
                Api::all(client.clone()).create(&params, &review).await?.status
            }
            Self::ServiceAccount { namespace, name } => {
                // User and groups as in requests with a token of the ServiceAccount.
                let all = "system:serviceaccounts";
                let groups =
                    [all.to_owned(), format!("{all}:{namespace}"), "system:authenticated".to_owned()];
                let spec = SubjectAccessReviewSpec {
                    user: Some(format!("system:serviceaccount:{namespace}:{name}")),
                    groups: Some(groups.to_vec()),
                    resource_attributes,
                    ..Default::default()
                };
                let review = SubjectAccessReview { spec, ..Default::default() };
                Api::all(client.clone()).create(&params, &review).await?.status
            }
        };
        Ok(status.is_some_and(|status: SubjectAccessReviewStatus| status.allowed))
    }
}

/// Returns those of `needs` whose permissions are missing, in their order, each reduced to its missing verbs.
pub async fn missing(
    client: &Client,
    needs: impl IntoIterator<Item = Need>,
    subject: &Subject,
) -> kube::Result<Vec<Need>> {
    let of_one = async |mut need: Need| {
        let mut verbs = Vec::new();
        for verb in &need.permission.verbs {
            if !subject.may(client, need.permission.attributes(verb)).await? {
                verbs.push(*verb);
            }
        }
        need.permission.verbs = verbs;
        Ok::<_, kube::Error>(need)
    };
    let reviews: Vec<_> = needs.into_iter().map(of_one).collect();
    let mut needs: Vec<Need> = stream::iter(reviews).buffered(CONCURRENCY).try_collect().await?;
    needs.retain(|need| !need.permission.verbs.is_empty());
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_display_verbs_resource_name_and_namespace() {
        let get = Permission::new(&["get"], "", "secrets");
        for (permission, text) in [
            (get.clone(), "get secrets"),
            (get.named("a").within("b"), "get secrets a in namespace b"),
            (
                Permission::new(&["get", "patch"], "apps", "deployments/scale"),
                "get and patch deployments/scale",
            ),
            (Permission::new(&["get", "list", "watch"], "", "pods"), "get, list and watch pods"),
            (
                Permission::new(&["patch"], "lucid.computing", "auditors/status"),
                "patch auditors.lucid.computing/status",
            ),
            (Permission::new(&["create"], "events.k8s.io", "events"), "create events.events.k8s.io"),
        ] {
            assert_eq!(permission.to_string(), text);
        }
    }
}
