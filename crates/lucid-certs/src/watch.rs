//! Hearing that one object of the API server changed

use std::{fmt::Debug, future};

use futures::{StreamExt, stream::BoxStream};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tracing::warn;

/// Yields whenever the object `name` changed, was deleted, or may have changed while the watch was cut off; never ends.
/// `what` it is, for the log.
pub(crate) fn changes<K>(api: Api<K>, name: &str, what: String) -> BoxStream<'static, ()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // By this selector, a right by resourceNames is enough.
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let changes = watcher(api, config).default_backoff();
    let mut is_failing = false;
    Box::pin(changes.filter_map(move |event| {
        let change = match event {
            Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) => {
                is_failing = false;
                Some(())
            }
            Ok(Event::Init | Event::InitApply(_)) => None,
            Err(error) => {
                // Once, and not at each retry
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
