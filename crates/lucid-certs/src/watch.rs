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
    Box::pin(changes.filter_map(move |event| {
        let change = match event {
            Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) => Some(()),
            Ok(Event::Init | Event::InitApply(_)) => None,
            Err(error) => {
                warn!(error = crate::chain(&error), "watch of {what} failed");
                None
            }
        };
        future::ready(change)
    }))
}
