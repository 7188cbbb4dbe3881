//! The end: what signals ask for.

use std::io::{self, ErrorKind};
use std::time::Duration;

use hyper::http::uri::Authority;
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::Settings;

/// Interval at which an auditor that shuts down checks for the next hop.
const LOOK: Duration = Duration::from_millis(500);

/// Stages of a server's shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Serves requests.
    Serving,
    /// Serves requests with `Connection: close` in responses.
    LameDuck,
    /// Accepts no new connections and completes pending requests.
    Draining,
    /// All requests are complete.
    Ended,
}

/// The stages of this process, as signals lead from one to the next.
///
/// SIGTERM comes to all containers of a pod at once, and callers hear later that the pod ends. Who stopped at once would be
/// missing for those, and for the auditor before it, which goes on with what it has begun to read. So it serves for some time,
/// unless the next one is gone: then nobody can be helped. Who presses Ctrl-C, or asks again, does not want to wait.
///
/// # Errors
///
/// When the handlers of the signals cannot be installed.
pub fn stages(settings: &Settings) -> io::Result<watch::Receiver<Stage>> {
    // The first process of a container gets no signal that it does not ask for.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (next, lame_duck) = (settings.next.clone(), settings.lame_duck);
    let (stage, stages) = watch::channel(Stage::Serving);
    tokio::spawn(async move {
        if either(&mut terminate, &mut interrupt).await == SignalKind::terminate() {
            stage.send_replace(Stage::LameDuck);
            tokio::select! {
                () = sleep(lame_duck) => {}
                () = gone(&next) => {}
                _ = either(&mut terminate, &mut interrupt) => {}
            }
        }
        stage.send_replace(Stage::Draining);
        either(&mut terminate, &mut interrupt).await;
        stage.send_replace(Stage::Ended);
    });
    Ok(stages)
}

/// Waits for a stage, or one after it.
pub(crate) async fn reached(stages: &mut watch::Receiver<Stage>, stage: Stage) {
    // An error means that the sender was dropped, which also ends the server.
    let _ = stages.wait_for(|now| *now >= stage).await;
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> SignalKind {
    tokio::select! {
        _ = terminate.recv() => SignalKind::terminate(),
        _ = interrupt.recv() => SignalKind::interrupt(),
    }
}

/// Waits until nobody listens at `next`.
async fn gone(next: &Authority) {
    let refuses = async || {
        let outcome = TcpStream::connect(next.as_str()).await;
        outcome.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    while !refuses().await {
        sleep(LOOK).await;
    }
}
