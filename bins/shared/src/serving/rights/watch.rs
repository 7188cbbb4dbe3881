//! Reports of missing permissions in a running process.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Need, Right, Whose, missing};

/// Initial delay before a failed check is retried.
const SOON: Duration = Duration::from_secs(1);
/// Interval of the checks while a permission is missing.
const MISSING: Duration = Duration::from_secs(15);
/// Interval of the checks otherwise, to notice revoked permissions.
const COMPLETE: Duration = Duration::from_mins(10);

/// Metric with the number of missing permissions, one per verb.
#[derive(Clone, Debug, Default)]
pub struct MissingRights(Gauge);

impl MissingRights {
    /// Registers `missing_rights`, which is 0 until the first check.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register(
            "missing_rights",
            "Permissions that the settings need and RBAC does not grant",
            this.0.clone(),
        );
        this
    }
}

/// Logs missing permissions, one line per verb, and logs when they are granted, for as long as it is polled.
pub async fn watch(client: Client, needs: Vec<Need>, metric: MissingRights) {
    let mut told = BTreeSet::new();
    let mut pause = SOON;
    loop {
        let rights = needs.iter().map(|need| need.right.clone());
        match missing(&client, rights, &Whose::Own).await {
            Ok(missing) => {
                metric.0.set(
                    missing
                        .iter()
                        .map(|right| right.verbs.len())
                        .sum::<usize>()
                        .try_into()
                        .unwrap_or(i64::MAX),
                );
                pause = if missing.is_empty() { COMPLETE } else { MISSING };
                tell(&needs, &missing, &mut told);
            }
            Err(error) => {
                tracing::debug!(error = crate::with_causes(&error), "failed to check permissions");
                pause = (pause * 2).min(MISSING);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

fn tell(needs: &[Need], missing: &[Right], told: &mut BTreeSet<Right>) {
    let missing: BTreeSet<_> = missing.iter().flat_map(Right::of_each_verb).collect();
    for right in missing.difference(told) {
        let need = needs.iter().find(|need| need.right.contains(right));
        match need {
            Some(Need { is_vital: true, loss, .. }) => {
                tracing::error!("the right to {right} is missing: {loss}")
            }
            Some(Need { loss, .. }) => tracing::warn!("the right to {right} is missing: {loss}"),
            None => {}
        }
    }
    for right in told.difference(&missing) {
        tracing::info!("the right to {right} is not missing any more");
    }
    *told = missing;
}
