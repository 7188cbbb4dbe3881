//! From the bytes of a pod to the bytes of its patch. Two programs do it: `bench-chain` measures the time, and
//! `bench-chain-allocations` what is allocated, with an allocator that would falsify the time.

pub mod cases;
pub mod pods;

use lucid_chain::{Decision, Inputs, PodView, plan};
use serde::Serialize;

use crate::cases::Case;

/// The steps, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// `PodView::from_json`.
    Read,
    /// `plan`.
    Plan,
    /// `Plan::patch`.
    Patch,
    /// Writing the patch as JSON.
    Write,
    /// Giving everything back.
    Drop,
}

/// Does all of a case once and says how long the patch is; `ended` hears of the end of each step.
///
/// # Errors
///
/// When no chain fits into the pod.
pub fn work(case: &Case, mut ended: impl FnMut(Step)) -> Result<usize, Box<dyn std::error::Error>> {
    let pod = PodView::from_json(&case.pod)?;
    ended(Step::Read);
    let outcome = plan(&pod, &Inputs::new(&case.configuration));
    let Decision::Planned(plan) = &outcome.decision else {
        return Err(format!("{}: {:?}", case.name, outcome.decision).into());
    };
    ended(Step::Plan);
    let patch = plan.patch(&pod);
    ended(Step::Patch);
    let bytes = serde_json::to_vec(&patch.operations)?;
    ended(Step::Write);
    let length = bytes.len();
    drop((bytes, patch, outcome, pod));
    ended(Step::Drop);
    Ok(length)
}
