//! The auditor as a process.

use std::error::Error;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;

use example_auditor::{Auditor, Settings, serve, stages};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().json().init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("example-auditor: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let settings = Settings::from(|name| std::env::var(name).ok())?;
    let listener = listen(settings.port).await?;
    tracing::info!(id = settings.id, port = settings.port, next = %settings.next, mode = ?settings.mode, "ready");
    let stages = stages(&settings)?;
    serve(listener, Auditor::new(settings), stages).await;
    Ok(())
}

/// Listens on all addresses. Auditors call each other at `localhost`, which resolves to `::1` first; an unused address would
/// leave the port to other processes of the pod.
async fn listen(port: u16) -> std::io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        // The pod has no IPv6.
        Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        outcome => outcome,
    }
}
