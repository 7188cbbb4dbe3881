//! What is on a list needs nobody to be asked.

mod layer;
mod list;
mod service;

pub use self::layer::AllowlistLayer;
pub use self::list::Allowlist;
pub use self::service::Allowed;
