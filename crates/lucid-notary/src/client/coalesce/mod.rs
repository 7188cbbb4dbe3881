//! Who asks about the same digest at the same time gets the same answer.

mod layer;
mod service;

pub use self::layer::CoalesceLayer;
pub use self::service::Coalesce;
