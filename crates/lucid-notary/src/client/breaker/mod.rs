//! A Verifier that is out of order is left alone for a while, and nobody waits for it.

mod error;
mod layer;
mod service;
mod state;

pub use self::error::BreakerOpen;
pub use self::layer::BreakerLayer;
pub use self::service::Breaker;
pub(super) use self::state::State;
