//! Digests that count as notarized without a request.

mod layer;
mod list;
mod service;

pub use self::layer::AllowlistLayer;
pub use self::list::Allowlist;
pub use self::service::Allowed;
