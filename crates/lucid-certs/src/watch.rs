//! Change notifications for a single object.

use std::{fmt::Debug, future, time::Duration};

use backon::ExponentialBuilder;
use futures::{StreamExt, stream::BoxStream};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, ExponentialBackoff, watcher},
    },
};
use serde::de::DeserializeOwned;
use tracing::warn;

/// Delays between retries: short, so that a change is noticed soon after an outage of the API server.
pub(crate) fn backoff() -> ExponentialBackoff {
    let delays = ExponentialBuilder::default().with_max_delay(Duration::from_secs(5)).with_jitter();
    delays.without_max_times().into()
}

/// Yields when the object `name` was changed or deleted, or may have changed while the watch was
/// disconnected. Never ends. `what` names the object in logs.
pub(crate) fn changes<K>(api: Api<K>, name: &str, what: String) -> BoxStream<'static, ()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // With this field selector, RBAC permissions with `resourceNames` are sufficient.
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let changes = watcher(api, config).backoff(backoff());
    let mut is_failing = false;
    Box::pin(changes.filter_map(move |event| {
        let change = match event {
            Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) => {
                is_failing = false;
                Some(())
            }
            Ok(Event::Init | Event::InitApply(_)) => None,
            Err(error) => {
                // Log once, not at each retry.
                if !is_failing {
                    warn!(error = crate::chain(&error), "watch of {what} failed; it is tried again");
                }
                is_failing = true;
                None
            }
        };
        future::ready(change)
    }))
}
