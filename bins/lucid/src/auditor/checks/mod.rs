//! The checks, in the order in which they run.

mod answers;
mod connections;
mod contract;
mod forwarding;
mod framing;
mod masks;
mod observe;
mod requests;
mod routes;
mod shutdown;
mod streams;

use futures::future::BoxFuture;

use super::bench::{Bench, Outcome};

/// A requirement and its test.
pub(crate) struct Check {
    /// Stable name.
    pub(crate) name: &'static str,
    pub(crate) requirement: &'static str,
    pub(crate) run: Run,
}

type Run = for<'a> fn(&'a mut Bench) -> BoxFuture<'a, Outcome>;

impl Check {
    const fn new(name: &'static str, requirement: &'static str, run: Run) -> Self {
        Self { name, requirement, run }
    }
}

/// Checks of `LUCID_AUDIT_MODE=enforce`. The last one ends the auditor.
pub(crate) fn enforce() -> impl Iterator<Item = &'static Check> {
    let checks = [
        contract::CHECKS,
        forwarding::CHECKS,
        connections::CHECKS,
        requests::CHECKS,
        answers::CHECKS,
        streams::CHECKS,
        masks::CHECKS,
        framing::CHECKS,
        routes::CHECKS,
        shutdown::CHECKS,
    ];
    checks.into_iter().flatten()
}

/// Checks of `LUCID_AUDIT_MODE=observe`.
pub(crate) fn observe() -> impl Iterator<Item = &'static Check> {
    observe::CHECKS.iter()
}
