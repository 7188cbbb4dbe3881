//! Readiness of the process.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// Readiness of this process: a set of named conditions. Clones share the conditions and are cheap.
///
/// ```
/// let readiness = lucid_webhook::Readiness::default();
/// let synced = readiness.condition("configuration synced");
/// assert_eq!(readiness.missing(), ["configuration synced"]);
/// synced.set(true);
/// assert!(readiness.missing().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<watch::Sender<BTreeMap<&'static str, bool>>>);

/// A condition of a [`Readiness`], initially false.
#[derive(Clone, Debug)]
pub struct Condition {
    readiness: Readiness,
    name: &'static str,
}

impl Readiness {
    /// Adds a condition. `name` is shown by `/readyz`.
    #[must_use]
    pub fn condition(&self, name: &'static str) -> Condition {
        let condition = Condition { readiness: self.clone(), name };
        condition.set(false);
        condition
    }

    /// Names of the conditions that do not hold; the process is ready if there are none.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        self.0.borrow().iter().filter(|(_, holds)| !**holds).map(|(name, _)| *name).collect()
    }

    /// Completes when all conditions hold, or if `ready` is false, when one does not.
    pub(crate) async fn wait_until(&self, ready: bool) {
        let mut conditions = self.0.subscribe();
        // `self` holds the sender, so this only ends with the condition.
        let _ = conditions.wait_for(|conditions| conditions.values().all(|holds| *holds) == ready).await;
    }
}

impl Condition {
    /// Sets whether the condition holds.
    pub fn set(&self, holds: bool) {
        self.readiness.0.send_if_modified(|conditions| conditions.insert(self.name, holds) != Some(holds));
    }

    /// Follows `source`, such as `Certificates::ready`, for as long as the future is polled. When the sender is
    /// dropped, the condition becomes false and the future completes.
    pub async fn follow(self, mut source: watch::Receiver<bool>) {
        loop {
            self.set(*source.borrow_and_update());
            if source.changed().await.is_err() {
                return self.set(false);
            }
        }
    }

    /// Completes when the condition holds.
    pub async fn wait(&self) {
        let mut conditions = self.readiness.0.subscribe();
        let holds = |conditions: &BTreeMap<_, _>| conditions.get(self.name).copied().unwrap_or(false);
        // `self` holds the sender, so this only ends with the condition.
        let _ = conditions.wait_for(holds).await;
    }
}
