//! An ask, with everything within it, comes to an end in time.

mod error;
mod layer;
mod service;

pub use self::error::DeadlineExceeded;
pub use self::layer::DeadlineLayer;
pub use self::service::Deadline;
