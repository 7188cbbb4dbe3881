//! What a program may do by the cluster's RBAC, and what of that is missing.
//!
//! [`Needs`] is the list of what Lucid's programs need by their settings. [`missing`] asks the API server for whom it does
//! not hold, and [`watch`] says so in the log of a process that runs; [`Host`](crate::Host) does that for its process.

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
pub use watch::{MissingRights, watch};

/// How many questions are on their way at once.
const AT_ONCE: usize = 8;
/// Groups that are named with their resources: ours, and one whose resources are in another group as well.
const NAMED_GROUPS: [&str; 2] = ["lucid.computing", "events.k8s.io"];

/// Verbs on a resource, as a rule of a Role or ClusterRole has them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Right {
    /// Such as `get`
    pub verbs: Vec<&'static str>,
    /// The API group, such as `apps`; empty for core/v1
    pub group: &'static str,
    /// In the plural, with the subresource if there is one, such as `deployments/scale`
    pub resource: &'static str,
    /// Of one object; otherwise of all
    pub name: Option<String>,
    /// In one namespace; otherwise in all, or of what has none
    pub namespace: Option<String>,
}

impl Right {
    /// Everywhere, on all objects of the resource.
    #[must_use]
    pub fn new(verbs: &[&'static str], group: &'static str, resource: &'static str) -> Self {
        Self { verbs: verbs.to_vec(), group, resource, name: None, namespace: None }
    }

    /// The same on one object only.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// The same in one namespace only.
    #[must_use]
    pub fn within(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Whether who has this has `other` as well.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        let (group, resource) = (other.group, other.resource);
        (self.group, self.resource, &self.name, &self.namespace)
            == (group, resource, &other.name, &other.namespace)
            && other.verbs.iter().all(|verb| self.verbs.contains(verb))
    }

    fn of_each_verb(&self) -> impl Iterator<Item = Self> {
        self.verbs.iter().map(|verb| Self { verbs: vec![verb], ..self.clone() })
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

/// Such as `get and update secrets lucid-operator-ca in namespace lucid-system`.
impl fmt::Display for Right {
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

/// Whose rights are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Those of the client that asks. Takes no right.
    Own,
    /// Those of a ServiceAccount. Takes the right to create SubjectAccessReviews.
    ServiceAccount {
        /// Where it is
        namespace: String,
        /// What it is called
        name: String,
    },
}

impl Whose {
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
                // As the API server knows who shows its token.
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

/// Which of `rights` are missing, in their order, each with the verbs that are missing of it.
///
/// # Errors
///
/// When the API server does not tell.
pub async fn missing(
    client: &Client,
    rights: impl IntoIterator<Item = Right>,
    whose: &Whose,
) -> kube::Result<Vec<Right>> {
    let of_one = async |right: Right| {
        let mut verbs = Vec::new();
        for verb in &right.verbs {
            if !whose.may(client, right.attributes(verb)).await? {
                verbs.push(*verb);
            }
        }
        Ok::<_, kube::Error>(Right { verbs, ..right })
    };
    let asked: Vec<_> = rights.into_iter().map(of_one).collect();
    let answered: Vec<Right> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    Ok(answered.into_iter().filter(|right| !right.verbs.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_told_with_verbs_resource_name_and_namespace() {
        let get = Right::new(&["get"], "", "secrets");
        for (right, text) in [
            (get.clone(), "get secrets"),
            (get.named("a").within("b"), "get secrets a in namespace b"),
            (Right::new(&["get", "patch"], "apps", "deployments/scale"), "get and patch deployments/scale"),
            (Right::new(&["get", "list", "watch"], "", "pods"), "get, list and watch pods"),
            (
                Right::new(&["patch"], "lucid.computing", "auditors/status"),
                "patch auditors.lucid.computing/status",
            ),
            (Right::new(&["create"], "events.k8s.io", "events"), "create events.events.k8s.io"),
        ] {
            assert_eq!(right.to_string(), text);
        }
    }
}
