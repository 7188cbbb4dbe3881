//! What may fare better the next time is asked again.

mod layer;
mod service;

pub use self::layer::RetryLayer;
pub use self::service::Retry;
