//! Rules that match requests.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use kube_core::Resource;

use crate::review::Operation;

/// Rule that matches requests (`RuleWithOperations`, `admissionregistration.k8s.io/v1`).
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use lucid_webhook::Operation;
/// use lucid_webhook::registration::Rule;
///
/// let pods = Rule::of::<Pod>([Operation::Create, Operation::Update]);
/// let debug = Rule::of::<Pod>([Operation::Update]).subresource("ephemeralcontainers");
/// let things = Rule::new("example.com", ["v1", "v2"], ["things"], [Operation::Create]).namespaced();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rule {
    pub(super) group: String,
    pub(super) versions: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) operations: Vec<Operation>,
    /// `*`, `Namespaced` or `Cluster`.
    scope: &'static str,
}

impl Rule {
    /// Matches `operations` on `K`, in the version of `K`.
    ///
    /// The API server also matches and converts other versions, unless the webhook's match policy is `Exact`.
    pub fn of<K: Resource<DynamicType = ()>>(operations: impl IntoIterator<Item = Operation>) -> Self {
        Self::new(K::group(&()), [K::version(&())], [K::plural(&())], operations)
    }

    /// Matches `operations` on these resources (plural, lower case). The core group is the empty text; `*` matches any.
    pub fn new<V: Into<String>, R: Into<String>>(
        group: impl Into<String>,
        versions: impl IntoIterator<Item = V>,
        resources: impl IntoIterator<Item = R>,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Self {
        let mut operations: Vec<Operation> = operations.into_iter().collect();
        operations.sort_by_key(|operation| *operation as u8);
        operations.dedup();
        Self {
            group: group.into(),
            versions: sorted(versions),
            resources: sorted(resources),
            operations,
            scope: "*",
        }
    }

    /// Matches this subresource of the resources instead of the resources themselves; `*` matches any.
    pub fn subresource(mut self, name: &str) -> Self {
        for resource in &mut self.resources {
            let end = resource.find('/').unwrap_or(resource.len());
            resource.truncate(end);
            resource.push('/');
            resource.push_str(name);
        }
        self
    }

    /// Restricts the rule to namespaced objects.
    pub const fn namespaced(mut self) -> Self {
        self.scope = "Namespaced";
        self
    }

    /// Restricts the rule to cluster-scoped objects, including Namespaces.
    pub const fn cluster_scoped(mut self) -> Self {
        self.scope = "Cluster";
        self
    }

    /// Returns `true` if the rule may match resources that are not custom.
    pub(super) fn matches_builtin(&self) -> bool {
        !self.group.contains('.') || self.group.ends_with(".k8s.io")
    }

    /// Returns `true` if the rule matches no objects of other types than `other`. Subresources may be of any type.
    pub(super) fn is_only_of(&self, other: &Self) -> bool {
        let is_same = self.group == other.group && self.versions == other.versions;
        self.resources.iter().all(|resource| match resource.split_once('/') {
            Some((_, name)) if name != "*" => true,
            // `pods/*` includes `pods`.
            found => {
                is_same
                    && other.resources.iter().any(|it| it == found.map_or(&**resource, |(parent, _)| parent))
            }
        })
    }

    /// Formats the resources, such as `pods in v1`.
    pub(super) fn resources(&self) -> String {
        let separator = if self.group.is_empty() { "" } else { "/" };
        format!("{} in {}{separator}{}", self.resources.join(", "), self.group, self.versions.join(", "))
    }

    pub(super) fn to_api(&self) -> RuleWithOperations {
        RuleWithOperations {
            api_groups: Some(vec![self.group.clone()]),
            api_versions: Some(self.versions.clone()),
            operations: Some(self.operations.iter().map(|operation| operation.as_str().to_owned()).collect()),
            resources: Some(self.resources.clone()),
            scope: Some(self.scope.to_owned()),
        }
    }
}

/// Sorts and deduplicates, so that equal rules are written equally.
fn sorted<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Vec<String> {
    let mut texts: Vec<String> = texts.into_iter().map(Into::into).collect();
    texts.sort();
    texts.dedup();
    texts
}
