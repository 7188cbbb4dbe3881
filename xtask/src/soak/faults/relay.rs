//! TCP relays of this process: the balancer in front of the replicas, and a link that can be blackholed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use lucid_e2e::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// Period and timeout of the probes: `periodSeconds` and `timeoutSeconds` of a readiness probe.
const PROBE: Duration = Duration::from_secs(1);

/// A replica as an endpoint of the Service.
pub(super) struct Endpoint {
    webhooks: SocketAddr,
    readiness: String,
    ready: AtomicBool,
    /// Number of bytes received from API servers.
    received: Arc<AtomicU64>,
}

impl Endpoint {
    pub(super) fn new(webhooks: SocketAddr, readiness: String) -> Self {
        Self { webhooks, readiness, ready: AtomicBool::new(true), received: Arc::default() }
    }

    /// Result of the latest probe.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// A Kubernetes Service: spreads new connections at random over the ready replicas, and keeps established connections.
pub(super) struct Balancer {
    pub(super) endpoints: Arc<[Endpoint]>,
    _open: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Balancer {
    pub(super) fn start(listener: TcpListener, endpoints: Vec<Endpoint>) -> Result<Self, Error> {
        let endpoints: Arc<[Endpoint]> = endpoints.into();
        let client = reqwest::Client::builder().no_proxy().timeout(PROBE).build()?;
        let (open, gate) = watch::channel(true);
        let mut tasks = JoinSet::new();
        tasks.spawn(probe(client, Arc::clone(&endpoints)));
        let service = Arc::clone(&endpoints);
        tasks.spawn(relay_all(listener, gate, move || {
            let ready: Vec<_> = service.iter().filter(|endpoint| endpoint.is_ready()).collect();
            let chosen = (super::super::random() * ready.len() as f64) as usize;
            let endpoint = ready.get(chosen).or(ready.last())?;
            Some((endpoint.webhooks, Arc::clone(&endpoint.received)))
        }));
        Ok(Self { endpoints, _open: open, _tasks: tasks })
    }
}

async fn probe(client: reqwest::Client, endpoints: Arc<[Endpoint]>) {
    let mut ticks = interval(PROBE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        join_all(endpoints.iter().map(async |endpoint| {
            let response = client.get(&endpoint.readiness).send().await;
            let is_ready = response.is_ok_and(|response| response.status().is_success());
            endpoint.ready.store(is_ready, Ordering::Relaxed);
        }))
        .await;
    }
}

/// A relay to one address that can stop forwarding without closing its connections, like a network that drops packets.
pub(super) struct Link {
    pub(super) address: SocketAddr,
    open: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl Link {
    pub(super) async fn start(on: IpAddr, to: SocketAddr) -> Result<Self, Error> {
        let listener = TcpListener::bind((on, 0)).await?;
        let address = listener.local_addr()?;
        let (open, gate) = watch::channel(true);
        let mut task = JoinSet::new();
        task.spawn(relay_all(listener, gate, move || Some((to, Arc::default()))));
        Ok(Self { address, open, _task: task })
    }

    pub(super) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }
}

/// Relays each connection to the address that `choose` returns, with the counter of its bytes, while the gate is open.
async fn relay_all(
    listener: TcpListener,
    gate: watch::Receiver<bool>,
    choose: impl Fn() -> Option<(SocketAddr, Arc<AtomicU64>)>,
) {
    // Dropping the set closes the connections together with the listener.
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        // Without an endpoint the connection is closed, as kube-proxy rejects it.
        let Some((address, sent)) = choose() else { continue };
        let mut gate = gate.clone();
        connections.spawn(async move {
            if gate.wait_for(|open| *open).await.is_ok()
                && let Ok(server) = TcpStream::connect(address).await
            {
                relay(client, server, &gate, &sent).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Forwards until both sides have ended or one has failed. Counts the bytes from `client`.
async fn relay(client: TcpStream, server: TcpStream, gate: &watch::Receiver<bool>, sent: &AtomicU64) {
    // kube-proxy does not delay packets either.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    let answered = AtomicU64::new(0);
    // The first error closes both sockets: a reset is forwarded as an end.
    let _ = tokio::try_join!(
        forward(client_reads, server_writes, gate.clone(), sent),
        forward(server_reads, client_writes, gate.clone(), &answered),
    );
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut gate: watch::Receiver<bool>,
    count: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 14];
    loop {
        let read = from.read(&mut buffer).await;
        if gate.wait_for(|open| *open).await.is_err() {
            return Ok(());
        }
        match read? {
            0 => return to.shutdown().await,
            length => {
                to.write_all(&buffer[..length]).await?;
                count.fetch_add(length as u64, Ordering::Relaxed);
            }
        }
    }
}

/// Polls until `holds` returns `true`, and returns the time of that; `None` after `deadline`.
pub(super) async fn until(deadline: Duration, mut holds: impl FnMut() -> bool) -> Option<Instant> {
    let begin = Instant::now();
    while begin.elapsed() < deadline {
        if holds() {
            return Some(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}
