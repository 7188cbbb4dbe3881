//! Lucid's own processes beside a real API server: what the end-to-end tests and `cargo xtask demo` start.

mod call;
mod images;
mod installation;
mod operator;
mod pods;
mod programs;
mod verifier;

pub use call::{Reaction, call};
pub use images::{Image, image, images};
pub use installation::{INJECTION, Installation, TOXICITY, two_auditors};
pub use operator::{API_SERVER, Operator, OperatorBuilder};
pub use pods::{Answer, Reply, ask, create_pod, send};
pub use programs::program;
pub use verifier::Verifier;

/// Why something could not be started or did not come up.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// How long a process may take to be ready.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// A port that was free a moment ago.
fn free_port(address: std::net::IpAddr) -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind((address, 0))?.local_addr()?.port())
}
