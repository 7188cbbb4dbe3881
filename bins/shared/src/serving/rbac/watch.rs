//! Reports of missing permissions in a running process.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Need, Permission, Subject, missing};

/// Initial delay before a failed check is retried.
const SOON: Duration = Duration::from_secs(1);
/// Interval of the checks while a permission is missing.
const MISSING: Duration = Duration::from_secs(15);
/// Interval of the checks otherwise, to notice revoked permissions.
const COMPLETE: Duration = Duration::from_mins(10);

/// Metric with the number of missing permissions, one per verb.
#[derive(Clone, Debug, Default)]
pub struct MissingPermissions(Gauge);

impl MissingPermissions {
    /// Registers `missing_permissions`, which is 0 until the first check.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register(
            "missing_permissions",
            "Permissions that the settings need and RBAC does not grant",
            this.0.clone(),
        );
        this
    }
}

/// Logs missing permissions, one line per verb, and logs when they are granted, for as long as it is polled.
pub async fn watch(client: Client, needs: Vec<Need>, metric: MissingPermissions) {
    let mut reported = BTreeSet::new();
    let mut pause = SOON;
    loop {
        let permissions = needs.iter().map(|need| need.permission.clone());
        match missing(&client, permissions, &Subject::Own).await {
            Ok(missing) => {
                metric.0.set(
                    missing
                        .iter()
                        .map(|permission| permission.verbs.len())
                        .sum::<usize>()
                        .try_into()
                        .unwrap_or(i64::MAX),
                );
                pause = if missing.is_empty() { COMPLETE } else { MISSING };
                report(&needs, &missing, &mut reported);
            }
            Err(error) => {
                tracing::debug!(error = crate::with_causes(&error), "failed to check permissions");
                pause = (pause * 2).min(MISSING);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

fn report(needs: &[Need], missing: &[Permission], reported: &mut BTreeSet<Permission>) {
    let missing: BTreeSet<_> = missing.iter().flat_map(Permission::of_each_verb).collect();
    for permission in missing.difference(reported) {
        match needs.iter().find(|need| need.permission.contains(permission)) {
            Some(Need { is_vital: true, loss, .. }) => {
                tracing::error!("missing permission to {permission}: {loss}")
            }
            Some(Need { loss, .. }) => tracing::warn!("missing permission to {permission}: {loss}"),
            None => {}
        }
    }
    for permission in reported.difference(&missing) {
        tracing::info!("the permission to {permission} is granted now");
    }
    *reported = missing;
}
