//! The testing kit: a service that breaks a rule has to be rejected as the API server rejects it.

mod calls;
mod conversion;
mod network;
mod reviews;
