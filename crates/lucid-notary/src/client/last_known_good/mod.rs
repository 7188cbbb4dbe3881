//! What was notarized a while ago may run while the Verifier is out of order.

mod layer;
mod service;

pub use self::layer::LastKnownGoodLayer;
pub use self::service::LastKnownGood;
