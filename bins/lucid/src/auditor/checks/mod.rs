//! The checks, in the order in which they run.

mod answers;
mod connections;
mod contract;
mod forwarding;
mod observe;
mod protocols;
mod requests;
mod streams;

use futures::future::BoxFuture;

use super::bench::{Bench, Outcome};

pub(crate) struct Check {
    /// Stable name.
    pub(crate) name: &'static str,
    pub(crate) requirement: &'static str,
    pub(crate) run: for<'a> fn(&'a mut Bench) -> BoxFuture<'a, Outcome>,
}

/// Defines `CHECKS`: names and requirements, each with a function and its arguments after the bench.
macro_rules! checks {
    ($($name:literal, $requirement:literal => $run:ident($($argument:expr),*);)*) => {
        pub(super) const CHECKS: &[$crate::auditor::checks::Check] = &[$($crate::auditor::checks::Check {
            name: $name,
            requirement: $requirement,
            run: |bench| Box::pin($run(bench, $(const { $argument }),*)),
        }),*];
    };
}
use checks;

/// Checks of `LUCID_AUDIT_MODE=enforce`. The last one ends the auditor.
pub(crate) fn enforce() -> impl Iterator<Item = &'static Check> {
    let checks = [
        contract::CHECKS,
        forwarding::CHECKS,
        requests::CHECKS,
        answers::CHECKS,
        streams::CHECKS,
        connections::CHECKS,
        &[contract::LAST],
    ];
    checks.into_iter().flatten()
}

/// Checks of `LUCID_AUDIT_MODE=observe`.
pub(crate) fn observe() -> impl Iterator<Item = &'static Check> {
    observe::CHECKS.iter()
}
