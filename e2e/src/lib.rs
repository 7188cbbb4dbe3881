//! Processes of Lucid beside a real API server, for the end-to-end tests and `cargo xtask demo`.

mod atomic_writer;
mod call;
mod cluster;
mod disk;
mod eventually;
mod images;
mod installation;
mod operator;
pub mod page;
mod pods;
mod process;
mod programs;
mod requirements;
mod skip;
pub mod template;
mod verifier;

pub use atomic_writer::AtomicWriter;
pub use call::{Reaction, call};
pub use cluster::ClusterExt;
pub use disk::Disk;
pub use eventually::{Attempt, eventually};
pub use images::{Image, build_image, image, images};
pub use installation::{INJECTION, Installation, TOXICITY, notarized_auditors};
pub use operator::{API_SERVER, Operator, OperatorBuilder};
pub use pods::{Answer, Reply, ask, create_pod, send};
pub use process::{Process, command};
pub use programs::{binary, program};
pub use requirements::{can_run_nodes, can_use_namespaces};
pub use skip::{has_program, skip, skip_version};
pub use verifier::Verifier;

use std::sync::atomic::{AtomicU32, Ordering};

/// Error of starting a process or waiting for it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Timeout until a process is ready.
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(2);

/// Writes one line to standard error, bypassing the capture of `cargo test`, which covers only the print macros.
fn say(line: impl std::fmt::Display) {
    use std::io::Write as _;
    // There is nowhere to report a closed standard error.
    let _ = writeln!(std::io::stderr(), "testbed: {line}");
}

/// Returns a port that is free at the time of the call. It is below those that Linux gives to outgoing connections and to
/// listeners on port 0, so that none of these takes it before the caller does.
///
/// # Errors
///
/// Returns an error if no port is free.
pub fn free_port(address: std::net::IpAddr) -> std::io::Result<u16> {
    const PORTS: std::ops::Range<u16> = 10_000..30_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let mut bound = Err(std::io::ErrorKind::AddrInUse.into());
    for _ in PORTS {
        // Processes begin at different ports.
        let number = std::process::id().wrapping_mul(101).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + (number % PORTS.len() as u32) as u16;
        bound = std::net::TcpListener::bind((address, port)).map(|_| port);
        if bound.is_ok() {
            break;
        }
    }
    bound
}
