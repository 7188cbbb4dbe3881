//! Reports of missing permissions in a running process.

use std::collections::{BTreeMap, BTreeSet};
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

/// Registers `missing_permissions`, the number of missing permissions, one per verb, which is 0 until the first check.
/// Logs missing permissions, one line per verb, and logs when they are granted, for as long as the future is polled.
pub fn watch(client: Client, needs: Vec<Need>, registry: &mut Registry) -> impl Future<Output = ()> + use<> {
    let metric = Gauge::default();
    let help = "Permissions that the settings need and RBAC does not grant";
    registry.register("missing_permissions", help, metric.clone());
    follow(client, needs, metric)
}

async fn follow(client: Client, needs: Vec<Need>, metric: Gauge) {
    let mut reported = BTreeSet::new();
    let mut pause = SOON;
    loop {
        match missing(&client, needs.iter().cloned(), &Subject::Own).await {
            Ok(missing) => {
                let missing = by_verb(missing);
                metric.set(missing.len().try_into().unwrap_or(i64::MAX));
                pause = if missing.is_empty() { COMPLETE } else { MISSING };
                for (permission, Need { is_vital, loss, .. }) in &missing {
                    match (reported.contains(permission), is_vital) {
                        (true, _) => {}
                        (false, true) => tracing::error!("missing permission to {permission}: {loss}"),
                        (false, false) => tracing::warn!("missing permission to {permission}: {loss}"),
                    }
                }
                for permission in reported.iter().filter(|it| !missing.contains_key(*it)) {
                    tracing::info!("the permission to {permission} is granted now");
                }
                reported = missing.into_keys().collect();
            }
            Err(error) => {
                tracing::debug!(error = crate::with_causes(&error), "failed to check permissions");
                pause = (pause * 2).min(MISSING);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Splits needs into one per verb, by their permission as text.
fn by_verb(needs: Vec<Need>) -> BTreeMap<String, Need> {
    let of_each_verb = |need: Need| {
        need.permission.verbs.clone().into_iter().map(move |verb| {
            let permission = Permission { verbs: vec![verb], ..need.permission.clone() };
            (permission.to_string(), Need { permission, ..need.clone() })
        })
    };
    needs.into_iter().flat_map(of_each_verb).collect()
}
