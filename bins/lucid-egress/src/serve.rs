//! Listeners and connections.

use std::{convert::Infallible, io, num::NonZeroU16, sync::Arc, time::Duration};

use hyper::{StatusCode, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{
    activity::Activity,
    forward::BUFFER,
    original::{Destination, Peer},
    proxy::{Proxy, hold, refused},
};

/// Time during which new requests are accepted after a signal. The kubelet stops plain containers at the same time: the
/// applications and the auditors still send requests.
const LAME_DUCK: Duration = Duration::from_secs(10);

/// Time for requests in progress after that; the kubelet kills the container after 30 s.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);

/// Pause after a failure to accept a connection, such as a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of connections of the pod, and of requests on them, to each listener. Further connections wait in the
/// kernel.
const OWN_SLOTS: usize = 1024;

/// As [`OWN_SLOTS`], for callers outside the pod. Further connections are closed: if they waited, those of the pod
/// would as well.
const FOREIGN_SLOTS: usize = 512;

/// Maximum number of concurrent requests on a connection by HTTP/2.
const STREAMS: u32 = 16;

/// A listener, with slots for its connections.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    own: Arc<Semaphore>,
    foreign: Arc<Semaphore>,
}

impl Listener {
    async fn accept(&self) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let slot = Arc::clone(&self.own).acquire_owned().await.map_err(io::Error::other)?;
        Ok((self.listener.accept().await?.0, slot))
    }
}

pub(crate) async fn listen(port: NonZeroU16) -> Result<Listener, String> {
    let listener = lucid_proxy::listen(port.get()).await;
    let listener = listener.map_err(|error| format!("failed to listen on port {port}: {error}"))?;
    let [own, foreign] = [OWN_SLOTS, FOREIGN_SLOTS].map(|slots| Arc::new(Semaphore::new(slots)));
    Ok(Listener { listener, own, foreign })
}

/// Serves until `shutdown` completes, then completes requests in progress.
pub(crate) async fn serve(
    intake: Option<Listener>,
    exit: Listener,
    proxy: Arc<Proxy>,
    shutdown: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let lame_duck = if proxy.settings.native { Duration::ZERO } else { LAME_DUCK };
    let shutdown = async {
        shutdown.await;
        tokio::time::sleep(lame_duck).await;
    };
    tokio::pin!(shutdown);
    loop {
        let accepted = async {
            match &intake {
                Some(intake) => intake.accept().await,
                None => std::future::pending().await,
            }
        };
        let (outcome, used) = tokio::select! {
            outcome = accepted => (outcome, intake.as_ref()),
            outcome = exit.accept() => (outcome, None),
            () = &mut shutdown => break,
        };
        match outcome {
            Ok((stream, slot)) => {
                let listener = used.unwrap_or(&exit);
                connect(stream, slot, listener, used.is_some(), &proxy, &graceful);
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop((intake, exit));
    if tokio::time::timeout(DRAIN_LIMIT, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were in progress after {} s", DRAIN_LIMIT.as_secs());
    }
}

fn connect(
    stream: TcpStream,
    own_slot: OwnedSemaphorePermit,
    listener: &Listener,
    is_intake: bool,
    proxy: &Arc<Proxy>,
    graceful: &GracefulShutdown,
) {
    // Do not delay pieces of a response.
    let described = stream.set_nodelay(true).and_then(|()| {
        let destination = is_intake.then(|| Destination::of(&stream, &proxy.settings)).transpose()?;
        Ok((Peer::of(&stream)?, destination))
    });
    let (peer, destination) = match described {
        Ok(described) => described,
        Err(error) => return tracing::debug!(%error, "failed to describe a connection"),
    };
    let (slots, slot) = match peer.is_own {
        true => (&listener.own, own_slot),
        false => match Arc::clone(&listener.foreign).try_acquire_owned() {
            Ok(slot) => (&listener.foreign, slot),
            Err(_) => {
                return tracing::debug!(caller = %peer.address, "closed a connection: too many from outside the pod");
            }
        },
    };
    let proxy = Arc::clone(proxy);
    let activity = Activity::new(Arc::clone(slots));
    let requests = activity.clone();
    let service = service_fn(move |request| {
        let (proxy, in_progress) = (Arc::clone(&proxy), requests.begin());
        async move {
            let Some(in_progress) = in_progress else {
                let message = "too many requests are in progress, retry later";
                return Ok::<_, Infallible>(refused((StatusCode::SERVICE_UNAVAILABLE, message.to_owned())));
            };
            let response = match destination {
                Some(destination) => proxy.forward_to_chain(destination, peer, request).await,
                None => proxy.forward_to_destination(peer, request).await,
            };
            Ok(hold(response, in_progress))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(BUFFER);
    let window = u32::try_from(BUFFER).ok();
    builder.http2().max_concurrent_streams(STREAMS).max_send_buf_size(BUFFER);
    builder
        .http2()
        .initial_stream_window_size(window)
        .initial_connection_window_size(window.map(|it| 2 * it));
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        let _slot = slot;
        tokio::select! {
            outcome = connection => if let Err(error) = outcome {
                tracing::debug!(%error, "a connection failed");
            },
            () = activity.idle() => tracing::debug!("closed an idle connection"),
        }
    });
}
