//! Refusals of cross-origin requests. Browsers show them to applications only if they have the model's headers of CORS.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use hyper::{
    header::{ACCESS_CONTROL_ALLOW_ORIGIN, HeaderMap, HeaderValue, VARY},
    http::uri::Authority,
};

/// Maximum length of the headers that are remembered.
const MAX_LENGTH: usize = 4096;

/// `Access-Control-*` and `Vary: Origin` of the last answer of each next hop that had them. Without
/// `Access-Control-Allow-Origin`, the model allowed the origin of the request.
#[derive(Debug, Default)]
pub(crate) struct Cors(Mutex<HashMap<Authority, HeaderMap>>);

impl Cors {
    /// Remembers the headers of an answer to a request of `origin`.
    pub(crate) fn remember(&self, next: &Authority, origin: Option<&HeaderValue>, answer: &HeaderMap) {
        let allowed = match (answer.get(ACCESS_CONTROL_ALLOW_ORIGIN), origin) {
            (Some(allowed), _) if allowed == "*" => allowed,
            (Some(allowed), Some(_)) => allowed,
            _ => return,
        };
        let mut headers: HeaderMap = answer
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("access-control-"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if lucid_proxy::list(answer, VARY).any(|name| name == "*" || name.eq_ignore_ascii_case("origin")) {
            headers.insert(VARY, HeaderValue::from_static("Origin"));
            if Some(allowed) == origin {
                headers.remove(ACCESS_CONTROL_ALLOW_ORIGIN);
            }
        }
        let length: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if length <= MAX_LENGTH {
            self.locked().insert(next.clone(), headers);
        }
    }

    /// Adds the headers to a refusal of a request of `origin`.
    pub(crate) fn add(&self, next: &Authority, origin: Option<&HeaderValue>, refusal: &mut HeaderMap) {
        if let Some(origin) = origin
            && let Some(headers) = self.locked().get(next)
        {
            refusal.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            refusal.extend(headers.clone());
        }
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Authority, HeaderMap>> {
        // A panic cannot leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
