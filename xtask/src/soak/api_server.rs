//! Simulates kube-apiserver's use of a trust bundle: watches the object, creates a client for the bundle, and calls the
//! replicas.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::runtime::{WatchStreamExt, watcher};
use lucid_certs::TrustBundle;
use lucid_e2e::Error;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::random;
use super::replica::{Endpoints, SERVER_NAME, trusting};
use super::subject::Subject;

/// Default timeout of a webhook call (`timeoutSeconds`).
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum pause between two rounds of calls by one API server for one object; half of it on average.
const PAUSE: Duration = Duration::from_millis(200);

/// Number of calls over a connection before it is closed.
const CALLS: usize = 3;

/// Results of all API servers.
#[derive(Default)]
pub(super) struct Tally(Mutex<Seen>);

#[derive(Default)]
pub(super) struct Seen {
    pub(super) handshakes: usize,
    /// Further calls over an established connection.
    pub(super) requests: usize,
    /// Failures of both kinds.
    pub(super) failed: usize,
    /// Maximum number of certificates in a bundle.
    pub(super) largest: usize,
}

impl Tally {
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fail(&self, failure: &str) {
        eprintln!("soak: failed: {failure}");
        self.with(|seen| seen.failed += 1);
    }
}

/// Client that trusts the bundle of one object.
type Trust = Option<TlsConnector>;

pub(super) struct ApiServer {
    tasks: JoinSet<()>,
}

impl ApiServer {
    /// Starts an API server, which learns of each change up to `delay` after its watch.
    pub(super) fn start(
        number: usize,
        client: &Client,
        subjects: &Arc<[Subject]>,
        delay: Duration,
        endpoints: &Endpoints,
        tally: &Arc<Tally>,
    ) -> Self {
        let mut tasks = JoinSet::new();
        for index in 0..subjects.len() {
            let (trust, trusted) = watch::channel(None);
            let subjects = Arc::clone(subjects);
            let caller = Caller {
                name: format!("API server {number}, {}", subjects[index].what()),
                trusted,
                endpoints: endpoints.subscribe(),
                tally: Arc::clone(tally),
                standing: BTreeMap::new(),
            };
            tasks.spawn(caller.call());
            let (client, tally) = (client.clone(), Arc::clone(tally));
            tasks.spawn(async move { hear(&client, &subjects[index], delay, &trust, &tally).await });
        }
        Self { tasks }
    }

    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Applies each version of the object in order, some time after the watch delivered it.
async fn hear(
    client: &Client,
    subject: &Subject,
    delay: Duration,
    trust: &watch::Sender<Trust>,
    tally: &Tally,
) {
    let config = watcher::Config::default().fields(&format!("metadata.name={}", subject.name));
    let objects = watcher(subject.api_with(client), config).default_backoff().applied_objects();
    let mut objects = pin!(objects);
    let mut coming: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut held = Vec::new();
    loop {
        let due = coming.front().map(|(due, _)| *due);
        tokio::select! {
            object = objects.next() => {
                let Some(Ok(object)) = object else { continue };
                let pem = subject.bundle(&object);
                let count = TrustBundle::from_pem(&pem).map_or(0, |bundle| bundle.fingerprints().count());
                tally.with(|seen| seen.largest = seen.largest.max(count));
                let soonest = coming.back().map_or_else(Instant::now, |(due, _)| *due);
                coming.push_back((soonest.max(Instant::now() + delay.mul_f64(random())), pem));
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let Some((_, pem)) = coming.pop_front() else { continue };
                // The same bundle keeps the same client.
                if held == pem {
                    continue;
                }
                trust.send_replace(TrustBundle::from_pem(&pem).ok().and_then(|bundle| trusting(&bundle).ok()));
                held = pem;
            }
        }
    }
}

/// Calls for one object.
struct Caller {
    name: String,
    trusted: watch::Receiver<Trust>,
    endpoints: watch::Receiver<BTreeMap<usize, SocketAddr>>,
    tally: Arc<Tally>,
    /// One connection per replica, with the number of calls over it.
    standing: BTreeMap<usize, (TlsStream<TcpStream>, usize)>,
}

impl Caller {
    async fn call(mut self) {
        loop {
            sleep(PAUSE.mul_f64(random())).await;
            // A new bundle needs a new client with new connections.
            if self.trusted.has_changed().unwrap_or(false) {
                self.trusted.mark_unchanged();
                self.standing.clear();
            }
            let endpoints = self.endpoints.borrow().clone();
            self.standing.retain(|number, _| endpoints.contains_key(number));
            for number in endpoints.into_keys() {
                // Another task may have removed the endpoint meanwhile.
                let Some(address) = self.endpoints.borrow().get(&number).copied() else { continue };
                if let Some((connection, calls)) = self.standing.remove(&number) {
                    self.go_on(number, connection, calls).await;
                } else {
                    self.dial(number, address).await;
                }
            }
        }
    }

    /// Makes one more call over an established connection.
    async fn go_on(&mut self, number: usize, mut connection: TlsStream<TcpStream>, calls: usize) {
        let outcome = timeout(PATIENCE, request(&mut connection)).await;
        self.tally.with(|seen| seen.requests += 1);
        let error = match outcome {
            Ok(Ok(())) if calls < CALLS => {
                self.standing.insert(number, (connection, calls + 1));
                return;
            }
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        self.tally.fail(&format!("{}, replica {number}, open connection: {error}", self.name));
    }

    async fn dial(&mut self, number: usize, address: SocketAddr) {
        // The object has not been delivered yet.
        let Some(connector) = self.trusted.borrow().clone() else { return };
        let outcome = timeout(PATIENCE, connect(&connector, address)).await;
        self.tally.with(|seen| seen.handshakes += 1);
        let error = match outcome {
            Ok(Ok(connection)) => {
                self.standing.insert(number, (connection, 1));
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        self.tally.fail(&format!("{}, replica {number}: {error}", self.name));
    }
}

async fn connect(connector: &TlsConnector, address: SocketAddr) -> Result<TlsStream<TcpStream>, Error> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut connection = connector.connect(ServerName::try_from(SERVER_NAME)?, stream).await?;
    request(&mut connection).await?;
    Ok(connection)
}

async fn request(connection: &mut TlsStream<TcpStream>) -> Result<(), Error> {
    connection.write_all(b"?").await?;
    connection.flush().await?;
    let mut answer = [0];
    connection.read_exact(&mut answer).await?;
    Ok(())
}
