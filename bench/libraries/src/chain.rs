//! From the bytes of a pod to the bytes of its patch. Two programs do it: `bench-chain` measures the time, and
//! `bench-chain-allocations` counts allocations, with an allocator that would falsify the time.

mod pods;

use std::error::Error;

use lucid_chain::{Catalogue, Configuration, Decision, Inputs, Overrides, Plan, PodView, SidecarMode, plan};
use serde_json::Value;

/// A pod and the configuration of the operator.
#[derive(Debug)]
pub struct Case {
    /// Name of the table row.
    pub name: &'static str,
    /// JSON of the pod.
    pub pod: Vec<u8>,
    configuration: Configuration,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

impl Case {
    /// All cases.
    ///
    /// # Errors
    ///
    /// Returns an error if no chain fits into a pod.
    pub fn all() -> Outcome<Vec<Self>> {
        const MOST: usize = 3 << 19;
        let two = Configuration::new(Catalogue::builtin(), None)?;
        let mut native = two.clone();
        native.overrides = Overrides { sidecar_mode: Some(SidecarMode::Native), ..Overrides::default() };
        let chain = vec!["injection".to_owned(); 100];
        let hundred = Configuration::new(Catalogue::builtin(), Some(&chain))?;
        let injected = injected(pods::ordinary(), &two)?;
        let cases = [
            ("10 KB, two auditors", pods::ordinary(), &two),
            ("10 KB, native sidecars", pods::ordinary(), &native),
            ("10 KB, chain already injected", injected, &two),
            ("2,000 variables", pods::with_variables(2000), &two),
            ("1.5 MB of variables", pods::of_size(MOST, pods::with_variables), &two),
            ("1.5 MB of annotations and labels", pods::of_size(MOST, pods::with_annotations), &two),
            ("10 KB, 100 auditors", pods::ordinary(), &hundred),
        ];
        let case = |(name, pod, configuration): (_, Value, &Configuration)| Self {
            name,
            pod: pod.to_string().into_bytes(),
            configuration: configuration.clone(),
        };
        Ok(cases.into_iter().map(case).collect())
    }

    /// Plans, patches, and returns the length of the patch.
    ///
    /// # Errors
    ///
    /// Returns an error if no chain fits into the pod.
    pub fn work(&self) -> Outcome<usize> {
        let pod = PodView::from_json(&self.pod)?;
        let patch = planned(&pod, &self.configuration)?.patch(&pod);
        Ok(serde_json::to_vec(&patch.operations)?.len())
    }
}

fn planned(pod: &PodView<'_>, configuration: &Configuration) -> Outcome<Plan> {
    match plan(pod, &Inputs::new(configuration)).decision {
        Decision::Planned(plan) => Ok(*plan),
        other => Err(format!("no chain: {other:?}").into()),
    }
}

/// The pod after its patch.
fn injected(mut pod: Value, configuration: &Configuration) -> Outcome<Value> {
    let json = pod.to_string();
    let view = PodView::from_json(&json)?;
    let patch = planned(&view, configuration)?.patch(&view);
    json_patch::patch(&mut pod, &patch.operations)?;
    Ok(pod)
}
