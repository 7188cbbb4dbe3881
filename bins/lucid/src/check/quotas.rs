//! Checks that ResourceQuotas and LimitRanges of the namespaces admit pods with auditors.
//!
//! The rules are those of the plugins ResourceQuota and LimitRanger, applied to the chain alone: a chain that they refuse is
//! refused in every pod.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

use k8s_openapi::api::core::v1::{
    LimitRange, LimitRangeItem, LimitRangeSpec, ResourceQuota, ResourceQuotaSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use lucid_admission::{ClusterConfiguration, NamespaceView};
use lucid_chain::{Decision, Inputs, Plan, PodView, Quantity, plan};
use serde_json::Value;

use super::namespaces::Namespace;
use super::report::{Check, Status, Unread};

const CHECK: &str = "quotas";
const ACTION: &str = "set `resources` of its `defaults` or entries in auditors.yaml, or change the object";

type Quantities = BTreeMap<String, Quantity>;

#[derive(Clone, Debug)]
struct Container {
    name: String,
    requests: Quantities,
    limits: Quantities,
}

#[derive(Clone, Debug)]
struct Chain {
    auditors: Vec<Container>,
    init: Option<Container>,
    /// `true` if the auditors run while the init container does.
    is_native: bool,
}

type Problem = (Status, String);

pub(super) async fn check(
    client: &Client,
    cluster: &ClusterConfiguration,
    namespaces: &[Namespace],
) -> Vec<Check> {
    let quotas = list::<ResourceQuota>(client, "list resourcequotas").await;
    let ranges = list::<LimitRange>(client, "list limitranges").await;
    let mut checks = Vec::new();
    for unread in [quotas.as_ref().err(), ranges.as_ref().err()].into_iter().flatten() {
        checks.push(Check::unread(CHECK, unread));
    }
    let (quotas, ranges) = (quotas.unwrap_or_default(), ranges.unwrap_or_default());
    for namespace in namespaces.iter().filter(|it| it.is_audited()).map(|it| it.name.as_str()) {
        let quotas: Vec<_> =
            quotas.iter().filter(|it| it.metadata.namespace.as_deref() == Some(namespace)).collect();
        let ranges: Vec<_> =
            ranges.iter().filter(|it| it.metadata.namespace.as_deref() == Some(namespace)).collect();
        if quotas.is_empty() && ranges.is_empty() {
            continue;
        }
        // Problems of the configuration are those of another check.
        let Some(chain) =
            cluster.namespace(namespace).await.ok().and_then(|view| Chain::of(&view, namespace))
        else {
            continue;
        };
        let chain = chain.with_defaults(ranges.iter().filter_map(|range| range.spec.as_ref()));
        let of_ranges = ranges
            .iter()
            .filter_map(|it| Some(("LimitRange", it.name_any(), range_problems(it.spec.as_ref()?, &chain))));
        let of_quotas = quotas.iter().filter_map(|it| {
            Some(("ResourceQuota", it.name_any(), quota_problems(it.spec.as_ref()?, &chain)))
        });
        for (kind, name, problems) in of_ranges.chain(of_quotas).filter(|(.., problems)| !problems.is_empty())
        {
            checks.push(report(&format!("{kind} {namespace}/{name}"), &problems));
        }
    }
    if checks.is_empty() {
        checks.push(Check::ok(CHECK, "no ResourceQuota or LimitRange refuses pods with auditors"));
    }
    checks
}

async fn list<K>(client: &Client, permission: &str) -> Result<Vec<K>, Unread>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let objects = Api::<K>::all(client.clone()).list(&ListParams::default()).await;
    objects.map(|list| list.items).map_err(|error| Unread::of(&error, permission))
}

fn report(object: &str, problems: &[Problem]) -> Check {
    let status = problems.iter().map(|(status, _)| *status).max().unwrap_or(Status::Failed);
    let texts: Vec<_> = problems.iter().map(|(_, text)| text.as_str()).collect();
    let effect = match status {
        Status::Failed => "refuses every pod with auditors",
        _ => "does not count all of the auditors",
    };
    Check::new(CHECK, status, format!("{object} {effect}: {}", texts.join("; "))).of(object).action(ACTION)
}

impl Chain {
    /// Returns the chain of a pod that has only a model; `None` if no chain can be planned.
    fn of(view: &NamespaceView, namespace: &str) -> Option<Self> {
        let pod = r#"{"spec": {"containers": [{"name": "model", "ports": [{"containerPort": 5000}]}]}}"#;
        let pod = PodView::from_json(pod).ok()?;
        let inputs = Inputs { namespace: Some(namespace), forced: true, ..view.inputs() };
        match plan(&pod, &inputs).decision {
            Decision::Planned(plan) => Some(Self::planned(&plan)),
            _ => None,
        }
    }

    fn planned(plan: &Plan) -> Self {
        let auditors = plan.containers.iter().map(|it| Container::new(&it.name, &it.manifest()));
        let init = plan.init.as_ref().map(|it| Container::new(&it.name, &it.manifest()));
        Self { auditors: auditors.collect(), init, is_native: plan.is_native() }
    }

    /// Adds the requests and limits that LimitRanges add to containers without them.
    fn with_defaults<'r>(mut self, ranges: impl Iterator<Item = &'r LimitRangeSpec>) -> Self {
        let items = ranges.flat_map(|range| &range.limits).filter(|item| item.type_ == "Container");
        for item in items {
            for container in self.auditors.iter_mut().chain(&mut self.init) {
                for (name, limit) in quantities(item.default.as_ref()) {
                    container.limits.entry(name).or_insert(limit);
                }
                for (name, request) in quantities(item.default_request.as_ref()) {
                    container.requests.entry(name).or_insert(request);
                }
            }
        }
        self
    }

    fn containers(&self) -> impl Iterator<Item = &Container> {
        self.auditors.iter().chain(&self.init)
    }

    /// Returns what the pod has of a resource in `list` at the least, as counted by the API server.
    fn total(&self, list: List, name: &str) -> Quantity {
        let of = |container: &Container| list.of(container).get(name).copied().unwrap_or_default();
        let auditors = self.auditors.iter().map(of).fold(Quantity::default(), Add::add);
        let init = self.init.as_ref().map_or_else(Quantity::default, of);
        auditors.max(if self.is_native { auditors + init } else { init })
    }

    /// Returns the problem of the containers for which `problem` returns the same text, once for each text.
    fn problems(&self, problem: impl Fn(&Container) -> Option<String>) -> Vec<Problem> {
        let mut found = BTreeMap::<_, BTreeSet<_>>::new();
        for container in self.containers() {
            if let Some(problem) = problem(container) {
                found.entry(problem).or_default().insert(container.name.as_str());
            }
        }
        let text = |(problem, names): (String, BTreeSet<&str>)| {
            format!("{problem} in {}", names.into_iter().collect::<Vec<_>>().join(", "))
        };
        found.into_iter().map(|found| (Status::Failed, text(found))).collect()
    }
}

impl Container {
    fn new(name: &str, manifest: &Value) -> Self {
        let list = |list: &str| -> Quantities {
            let all = manifest["resources"][list].as_object().into_iter().flatten();
            all.filter_map(|(name, quantity)| Some((name.clone(), quantity.as_str()?.parse().ok()?)))
                .collect()
        };
        Self { name: name.to_owned(), requests: list("requests"), limits: list("limits") }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Requests,
    Limits,
}

impl List {
    fn of(self, container: &Container) -> &Quantities {
        match self {
            Self::Requests => &container.requests,
            Self::Limits => &container.limits,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

fn quantities(written: Option<&BTreeMap<String, Written>>) -> Quantities {
    let all = written.into_iter().flatten();
    all.filter_map(|(name, quantity)| Some((name.clone(), quantity.0.parse().ok()?))).collect()
}

fn quota_problems(quota: &ResourceQuotaSpec, chain: &Chain) -> Vec<Problem> {
    // Other scopes select some pods only; pods with auditors always have requests.
    let is_general = |scope: &String| matches!(scope.as_str(), "NotBestEffort" | "NotTerminating");
    if quota.scope_selector.is_some() || !quota.scopes.iter().flatten().all(is_general) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (key, hard) in quantities(quota.hard.as_ref()) {
        let (list, name) = match (key.strip_prefix("limits."), key.strip_prefix("requests.")) {
            (Some(name), _) => (List::Limits, name),
            (_, Some(name)) => (List::Requests, name),
            _ => (List::Requests, key.as_str()),
        };
        // The API server requires cpu and memory of each container, and counts other resources where they are set.
        let status = match name {
            "cpu" | "memory" => Status::Failed,
            "ephemeral-storage" => Status::Warning,
            _ => Status::Ok,
        };
        if status != Status::Ok {
            let missing = chain.problems(|container| {
                let is_missing = !list.of(container).contains_key(name);
                is_missing.then(|| format!("{}.{name}: expected a quantity, found none", list.name()))
            });
            problems.extend(missing.into_iter().map(|(_, text)| (status, text)));
        }
        let total = chain.total(list, name);
        if total > hard {
            let text =
                format!("{}.{name}: expected at most {hard}, found {total} in the chain alone", list.name());
            problems.push((Status::Failed, text));
        }
    }
    problems
}

fn range_problems(range: &LimitRangeSpec, chain: &Chain) -> Vec<Problem> {
    range.limits.iter().flat_map(|item| item_problems(item, chain)).collect()
}

fn item_problems(item: &LimitRangeItem, chain: &Chain) -> Vec<Problem> {
    let [min, max, ratio] =
        [&item.min, &item.max, &item.max_limit_request_ratio].map(|written| quantities(written.as_ref()));
    let mut problems = Vec::new();
    if item.type_ == "Pod" {
        for (name, max) in max {
            for list in [List::Requests, List::Limits] {
                let total = chain.total(list, &name);
                if total > max {
                    let list = list.name();
                    problems.push((
                        Status::Failed,
                        format!(
                            "{list}.{name}: expected at most {max} in a pod, found {total} in the chain alone"
                        ),
                    ));
                }
            }
        }
        return problems;
    }
    if item.type_ != "Container" {
        return problems;
    }
    let bounds = min.iter().map(|it| (it, true)).chain(max.iter().map(|it| (it, false)));
    for ((name, bound), is_min) in bounds {
        for list in [List::Requests, List::Limits] {
            problems.extend(chain.problems(|container| {
                let side = if is_min { "least" } else { "most" };
                let expected = format!("{}.{name}: expected at {side} {bound}, found", list.name());
                match list.of(container).get(name) {
                    // A minimum requires a request, a maximum a limit.
                    None => (is_min == (list == List::Requests)).then(|| format!("{expected} none")),
                    Some(found) if if is_min { found < bound } else { found > bound } => {
                        Some(format!("{expected} {found}"))
                    }
                    Some(_) => None,
                }
            }));
        }
    }
    for (name, ratio) in &ratio {
        problems.extend(chain.problems(|container| {
            let expected = format!("limits.{name}: expected at most {ratio} times requests.{name}, found");
            let of = |list: List| list.of(container).get(name).filter(|it| **it > Quantity::default());
            match (of(List::Requests), of(List::Limits)) {
                (Some(request), Some(limit)) => {
                    let most = u128::from(*ratio).saturating_mul(u128::from(*request));
                    let is_above = u128::from(*limit).saturating_mul(1000) > most;
                    is_above.then(|| format!("{expected} {limit} and {request}"))
                }
                (request, limit) => {
                    let text =
                        |it: Option<&Quantity>| it.map_or_else(|| "none".to_owned(), ToString::to_string);
                    Some(format!("{expected} {} and {}", text(limit), text(request)))
                }
            }
        }));
    }
    problems
}

#[cfg(test)]
mod tests;
