//! What the Verifier said a moment ago is not asked again.

mod layer;
mod service;
mod store;

pub use self::layer::CacheLayer;
pub use self::service::Cached;
pub use self::store::{Cache, TimeToLive};
