//! Preview of the actions on running pods.

use lucid_admission::KeeperAction;
use serde::Serialize;

use crate::fleet::RunningPod;
use crate::state::State;
use crate::steps::Next;
use crate::workload::Workload;

/// A running pod that needs an action, and what a keeper would do.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Planned {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Its workload; `None` without a controller.
    pub workload: Option<Workload>,
    /// State of the pod.
    pub state: State,
    /// Reason of the state.
    pub reason: String,
    /// Action that its namespace asks for.
    pub action: KeeperAction,
    /// Time of the action.
    pub next: When,
    /// Reason to wait, or to do nothing.
    pub why: String,
}

/// Time at which a keeper would act on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Now, or after the actions listed before.
    Now,
    /// When the reason to wait is gone.
    Later,
    /// Not by this action.
    Never,
}

impl Planned {
    pub(crate) fn new(pod: &RunningPod, next: Next, action: KeeperAction, is_permitted: bool) -> Self {
        let (next, why) = match next {
            Next::Act(_) => (When::Now, String::new()),
            Next::Wait(why) => (When::Later, why),
            Next::Never(_) if action != KeeperAction::Report && !is_permitted => {
                (When::Never, format!("{action} is not among the operator's LUCID_KEEPER_ACTIONS"))
            }
            Next::Never(why) => (When::Never, why),
        };
        Self {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            workload: pod.workload.as_deref().cloned(),
            state: pod.state,
            reason: pod.reason().to_owned(),
            action,
            next,
            why,
        }
    }
}
