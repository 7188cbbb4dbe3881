//! Destinations of requests that are in the chain.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use hyper::header::{HeaderName, HeaderValue};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::target::Target;

/// Header with the token of a destination. Auditors forward it as any header that they do not know.
pub(crate) const ROUTE: HeaderName = HeaderName::from_static("lucid-route");

/// Targets of requests that are in the chain, by an unpredictable token. Only its holder can use a target, and only until
/// the response is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(Arc<Mutex<HashMap<String, Target>>>);

impl Routes {
    /// Adds a target until the returned value is dropped.
    pub(crate) fn insert(&self, target: Target) -> std::io::Result<Route> {
        let token = random_hex()?;
        self.locked(|targets| targets.insert(token.clone(), target));
        Ok(Route { token, routes: self.clone() })
    }

    pub(crate) fn get(&self, token: &HeaderValue) -> Option<Target> {
        let token = token.to_str().ok()?;
        self.locked(|targets| targets.get(token).cloned())
    }

    fn locked<T>(&self, change: impl FnOnce(&mut HashMap<String, Target>) -> T) -> T {
        // A panic cannot leave the map half changed.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) fn random_hex() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// Token of a destination, which is valid until it is dropped.
#[derive(Debug)]
pub(crate) struct Route {
    token: String,
    routes: Routes,
}

impl Route {
    pub(crate) fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        self.routes.locked(|targets| targets.remove(&self.token));
    }
}
