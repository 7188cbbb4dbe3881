//! The model as a process, on port `PORT` or 5000. It serves for `LAME_DUCK_SECONDS`, or 10, after SIGTERM.

use std::error::Error;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::var("PORT").map_or(Ok(5000), |port| port.parse())?;
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        // The pod has no IPv6.
        Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
            TcpListener::bind(("0.0.0.0", port)).await?
        }
        outcome => outcome?,
    };
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    // The auditors of its pod serve as long.
    let lame_duck = std::env::var("LAME_DUCK_SECONDS").map_or(Ok(10), |seconds| seconds.parse())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let service = example_model::router().into_make_service_with_connect_info::<SocketAddr>();
    let shutdown = async move {
        terminate.recv().await;
        tokio::time::sleep(Duration::from_secs(lame_duck)).await;
    };
    Ok(axum::serve(listener, service).with_graceful_shutdown(shutdown).await?)
}
