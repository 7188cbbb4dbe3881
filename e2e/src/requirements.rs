//! Requirements of clusters on this machine.

use lucid_testbed::{Builder, Cluster};

use crate::skip;

/// Returns `true` if [`Builder::webhooks_by_service`] works here. Otherwise [skips](skip()) the test.
///
/// # Panics
///
/// See [`skip()`].
#[must_use]
pub fn can_use_namespaces() -> bool {
    can_start(&Cluster::builder().webhooks_by_service())
}

/// Returns `true` if a node can run here. Otherwise [skips](skip()) the test.
///
/// # Panics
///
/// See [`skip()`].
#[must_use]
pub fn can_run_nodes() -> bool {
    can_start(&Cluster::builder().nodes(1))
}

fn can_start(cluster: &Builder) -> bool {
    let can = cluster.check();
    if let Err(error) = &can {
        skip(format!("{error:?}").trim_end());
    }
    can.is_ok()
}
