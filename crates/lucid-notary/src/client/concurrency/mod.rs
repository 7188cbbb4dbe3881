//! Only so many asks are made at the same time.

mod layer;
mod service;

pub use self::layer::ConcurrencyLayer;
pub use self::service::Concurrency;
