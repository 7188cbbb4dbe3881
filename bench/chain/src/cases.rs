//! The measured cases.

use std::error::Error;

use lucid_chain::{
    Catalogue, Configuration, Decision, Direction, Inputs, Intercept, Overrides, PodView, SidecarMode, plan,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::pods::{self, Shape};

/// The sizes that growth is measured with, in bytes; the last is about what etcd stores at most.
pub const SIZES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 3 << 19];

/// The lengths of chains.
pub const CHAINS: [usize; 6] = [1, 2, 8, 32, 64, 100];

/// Unit of a case's size.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grows {
    /// Bytes of the pod.
    Bytes,
    /// Auditors of the chain, or in the pod.
    Auditors,
}

/// One pod and who plans for it.
#[derive(Debug)]
pub struct Case {
    /// Group of the case. Cases of a group differ only in size; an empty group has no such relation.
    pub group: &'static str,
    /// In words.
    pub name: String,
    /// Unit of the size.
    pub grows: Grows,
    /// Size in that unit.
    pub size: usize,
    /// The pod's JSON.
    pub pod: Vec<u8>,
    /// The operator's part.
    pub configuration: Configuration,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Every case.
///
/// # Errors
///
/// When a pod is none that a chain can be planned for.
pub fn all() -> Outcome<Vec<Case>> {
    let mut cases = vec![
        case("", "ordinary pod", &pods::ordinary(), builtin(Overrides::default())?),
        case("", "pod with 2,000 variables", &pods::with_variables(2000), builtin(Overrides::default())?),
    ];
    let settings = [
        ("env", Overrides { intercept: Some(Intercept::Env), ..Overrides::default() }),
        ("native", Overrides { sidecar_mode: Some(SidecarMode::Native), ..Overrides::default() }),
        ("both directions", Overrides { direction: Some(Direction::Both), ..Overrides::default() }),
    ];
    for (name, overrides) in settings {
        let name = format!("ordinary pod, {name}");
        cases.push(case("", &name, &pods::ordinary(), builtin(overrides)?));
    }
    for sidecar_mode in [SidecarMode::Containers, SidecarMode::Native] {
        let configuration = builtin(Overrides { sidecar_mode: Some(sidecar_mode), ..Overrides::default() })?;
        let pod = injected(pods::ordinary(), &configuration)?;
        cases.push(case("", &format!("ordinary pod with its chain, {sidecar_mode}"), &pod, configuration));
    }
    for shape in Shape::ALL {
        for size in SIZES {
            let configuration = builtin(Overrides::default())?;
            let case = case(shape.name(), shape.name(), &pods::of_size(shape, size), configuration);
            cases.push(Case { size, ..case });
        }
    }
    for size in CHAINS {
        let configuration = chain_of(size)?;
        let pod = pods::ordinary();
        let with_chain = injected(pod.clone(), &configuration)?;
        let stale = stale(&with_chain)?;
        let auditors = |group, pod, configuration| {
            let grows = Grows::Auditors;
            Case { grows, size, ..case(group, group, pod, configuration) }
        };
        cases.push(auditors("chain", &pod, configuration.clone()));
        cases.push(auditors("chain that is there", &with_chain, configuration.clone()));
        cases.push(auditors("chain that is there, each auditor changed", &stale, configuration));
        cases.push(auditors("auditors of another chain", &with_chain, chain("toxicity", 1)?));
    }
    // Cases of a group must be adjacent.
    let groups: Vec<_> = cases.iter().map(|case| case.group).collect();
    cases.sort_by_key(|case| groups.iter().position(|group| *group == case.group));
    Ok(cases)
}

fn case(group: &'static str, name: &str, pod: &Value, configuration: Configuration) -> Case {
    let pod = pod.to_string().into_bytes();
    Case { group, name: name.to_owned(), grows: Grows::Bytes, size: pod.len(), pod, configuration }
}

fn builtin(overrides: Overrides) -> Outcome<Configuration> {
    let mut configuration = Configuration::new(Catalogue::builtin(), None)?;
    configuration.overrides = overrides;
    Ok(configuration)
}

/// The same auditor many times: the names and ports of all but the first have to be made.
fn chain_of(length: usize) -> Outcome<Configuration> {
    chain("injection", length)
}

fn chain(auditor: &str, length: usize) -> Outcome<Configuration> {
    let chain: Vec<_> = std::iter::repeat_n(auditor.to_owned(), length).collect();
    Ok(Configuration::new(Catalogue::builtin(), Some(&chain))?)
}

/// The pod after its patch.
fn injected(mut pod: Value, configuration: &Configuration) -> Outcome<Value> {
    let json = pod.to_string();
    let view = PodView::from_json(&json)?;
    let Decision::Planned(plan) = plan(&view, &Inputs::new(configuration)).decision else {
        return Err("no chain".into());
    };
    json_patch::patch(&mut pod, &plan.patch(&view).operations)?;
    Ok(pod)
}

/// The same pod with another audit mode in each auditor, as if it had been planned for that.
fn stale(pod: &Value) -> Outcome<Value> {
    let mut pod = pod.clone();
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        for variable in container["env"].as_array_mut().into_iter().flatten() {
            if variable["name"] == "LUCID_AUDIT_MODE" {
                variable["value"] = json!("observe");
            }
        }
    }
    Ok(pod)
}
