//! Test utilities: a service that breaks a rule is rejected as by the API server.

mod calls;
mod conversion;
mod network;
mod reviews;
