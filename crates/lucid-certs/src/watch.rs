//! Watches with retries.

use std::{fmt::Debug, future, time::Duration};

use backon::ExponentialBuilder;
use futures::{Stream, StreamExt, stream::BoxStream};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{Config, Event, ExponentialBackoff, watcher},
    },
};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use crate::last_problem::LastProblem;

/// Delays between retries: short, so that a change is noticed soon after an outage of the API server.
pub(crate) fn backoff() -> ExponentialBackoff {
    let delays = ExponentialBuilder::default().with_max_delay(Duration::from_secs(5)).with_jitter();
    delays.without_max_times().into()
}

/// Watches objects. Never ends; failures are retried. Each failure is logged once, not at each retry. `what` names
/// the objects in logs.
pub(crate) fn events<K>(api: Api<K>, config: Config, what: String) -> impl Stream<Item = Event<K>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut last_problem = LastProblem::default();
    watcher(api, config).backoff(backoff()).filter_map(move |event| {
        let event = match event {
            Ok(event) => {
                // A list that has only started does not prove that the watch works.
                if !matches!(event, Event::Init) && last_problem.resolve() {
                    info!("watching {what} again");
                }
                Some(event)
            }
            Err(error) => {
                let error = lucid_text::with_causes(&error);
                if last_problem.is_new(&error) {
                    warn!(error, "failed to watch {what}; retrying");
                }
                None
            }
        };
        future::ready(event)
    })
}

/// Selects one object. RBAC permissions with `resourceNames` are sufficient for such a watch.
pub(crate) fn only(name: &str) -> Config {
    Config::default().fields(&format!("metadata.name={name}"))
}

/// Yields when an object was changed or deleted, or may have been while the watch was disconnected. Never ends.
pub(crate) fn changes<K>(api: Api<K>, config: Config, what: String) -> BoxStream<'static, ()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let is_change = |event: &Event<K>| matches!(event, Event::Apply(_) | Event::Delete(_) | Event::InitDone);
    Box::pin(
        events(api, config, what).filter_map(move |event| future::ready(is_change(&event).then_some(()))),
    )
}
