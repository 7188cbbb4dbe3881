//! Termination of the process.

use std::io;

use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

/// Returns a future that completes at the first SIGTERM or SIGINT. Clones complete together.
///
/// The call itself installs the handlers, so a signal before the first poll is not lost.
///
/// # Errors
///
/// Returns an error outside of a tokio runtime, or if the handlers cannot be installed.
pub fn shutdown_signal() -> io::Result<impl Future<Output = ()> + Clone + Send + Sync + 'static> {
    // Without a runtime, `signal` panics.
    let _runtime = Handle::try_current().map_err(io::Error::other)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let signal = async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "shutting down");
    };
    Ok(signal.boxed().shared())
}
