//! Processes of Lucid beside a real API server, for the end-to-end tests and `cargo xtask demo`.

mod call;
mod images;
mod installation;
mod operator;
mod pods;
mod programs;
mod verifier;

pub use call::{Reaction, call};
pub use images::{Image, image, images};
pub use installation::{INJECTION, Installation, TOXICITY, notarized_auditors};
pub use operator::{API_SERVER, Operator, OperatorBuilder};
pub use pods::{Answer, Reply, ask, create_pod, send};
pub use programs::program;
pub use verifier::Verifier;

/// Error of starting a process or waiting for it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Timeout until a process is ready.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// Returns a port that was free at the time of the call.
///
/// # Errors
///
/// Returns an error if no port is free.
pub fn free_port(address: std::net::IpAddr) -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind((address, 0))?.local_addr()?.port())
}
