//! From the bytes of a pod to the bytes of its patch: CPU time and allocations.

use std::time::{Duration, Instant};

use lucid_chain::{Catalogue, Configuration, Decision, Inputs, Overrides, Plan, PodView, SidecarMode, plan};
use serde_json::Value;

use crate::{Figure, Outcome, cpu_time, pods};

/// Each case comes once in each round, so that a machine that slows down affects all.
const ROUNDS: u32 = 10;

struct Case {
    name: &'static str,
    pod: Vec<u8>,
    configuration: Configuration,
}

pub(crate) fn measure(time: Duration) -> Outcome<Vec<Figure>> {
    let cases = Case::all()?;
    let mut all = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (case, times) in cases.iter().zip(&mut all) {
            let begin = Instant::now();
            // The first run of a round fills caches.
            case.work()?;
            while begin.elapsed() < time / ROUNDS || times.len() < 3 {
                let begin = cpu_time();
                case.work()?;
                times.push(cpu_time() - begin);
            }
        }
    }
    let figures = cases.iter().zip(all).map(|(case, times)| Figure {
        bytes: Some(case.pod.len() as u64),
        count: Some(allocation_counter::measure(|| drop(case.work())).count_total),
        ..Figure::new(case.name, times)
    });
    Ok(figures.collect())
}

impl Case {
    fn all() -> Outcome<Vec<Self>> {
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
    fn work(&self) -> Outcome<usize> {
        let pod = PodView::from_json(&self.pod)?;
        let patch = planned(&pod, &self.configuration)?.patch(&pod);
        Ok(patch.text.len())
    }
}

fn planned(pod: &PodView<'_>, configuration: &Configuration) -> Outcome<Plan> {
    match plan(pod, &Inputs::new(configuration)).decision {
        Decision::Planned(plan) => Ok(*plan),
        other => Err(format!("no chain: {other:?}").into()),
    }
}

fn injected(mut pod: Value, configuration: &Configuration) -> Outcome<Value> {
    let json = pod.to_string();
    let view = PodView::from_json(&json)?;
    let patch = planned(&view, configuration)?.patch(&view);
    json_patch::patch(&mut pod, &patch.operations())?;
    Ok(pod)
}
