//! Presence of the parts of a registration.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(super) struct Presence {
    parts: Arc<Mutex<Vec<bool>>>,
    all: Arc<watch::Sender<bool>>,
}

#[derive(Clone, Debug)]
pub(super) struct PartPresence {
    presence: Presence,
    part: usize,
}

impl Presence {
    /// Creates the presence of a registration without parts, which is complete.
    pub(super) fn new() -> Self {
        Self { parts: Arc::default(), all: Arc::new(watch::Sender::new(true)) }
    }

    pub(super) fn part(&self) -> PartPresence {
        self.update(|parts| {
            parts.push(false);
            PartPresence { presence: self.clone(), part: parts.len() - 1 }
        })
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<bool> {
        self.all.subscribe()
    }

    fn update<T>(&self, change: impl FnOnce(&mut Vec<bool>) -> T) -> T {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut parts);
        let are_all = parts.iter().all(|is_present| *is_present);
        self.all.send_if_modified(|all| std::mem::replace(all, are_all) != are_all);
        changed
    }
}

impl PartPresence {
    pub(super) fn set(&self, is_present: bool) {
        self.presence.update(|parts| parts.get_mut(self.part).map(|part| *part = is_present));
    }
}
