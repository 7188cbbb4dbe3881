//! Ages of the watches of a Kubernetes client.
//!
//! A half-open connection delivers nothing and never fails, while the configuration that was read from it goes stale.
//! The API server sends at least one bookmark a minute on each watch, so longer silence is a failure.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Uri};
use kube::client::{Body, ClientBuilder, DynBody};
use kube::{Client, Config};
use lucid_webhook::Condition;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tower::{Layer, Service};

/// Timeout of a read from the API server. Bookmarks arrive once a minute.
const READ_TIMEOUT: Duration = Duration::from_secs(75);
/// Timeout of [`prompt_client`]: below the grace of the keeper's Lease.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(4);
/// Age of a watch beyond which its replica is not ready.
const MAX_AGE: Duration = Duration::from_secs(90);

/// Time without a request after which a watch that has ended counts as cancelled. Retries come every few seconds, and a
/// request that hangs fails after [`READ_TIMEOUT`].
const CANCELLED: Duration = Duration::from_mins(2);
/// Objects that a replica can do without: a watch of them may fail for lack of permission.
const OPTIONAL: &str = "configmaps/lucid-generations";

/// Watches by name.
#[derive(Clone, Default)]
pub(crate) struct Watches(Arc<Mutex<BTreeMap<String, State>>>);

#[derive(Debug)]
struct State {
    /// Time of the latest data from the API server.
    heard: Instant,
    /// Time of the latest list or watch request.
    requested: Instant,
    has_ended: bool,
}

/// Creates a client for requests that are better refused than late.
pub(crate) async fn prompt_client() -> Result<Client, kube::Error> {
    let mut config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    config.connect_timeout = Some(PROMPT_TIMEOUT);
    config.read_timeout = Some(PROMPT_TIMEOUT);
    config.default_retry = false;
    Client::try_from(config)
}

impl Watches {
    /// Creates a client for the API server of the kubeconfig or of the cluster, in the order of kubectl. Its watches
    /// are tracked.
    pub(crate) async fn client(&self) -> Result<Client, kube::Error> {
        let mut config = Config::infer().await.map_err(kube::Error::InferConfig)?;
        config.read_timeout = Some(READ_TIMEOUT);
        config.reset_reader_on_write = true;
        Ok(ClientBuilder::try_from(config)?.with_layer(self).build())
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// Updates `condition`, which holds while no watch is older than [`MAX_AGE`].
    pub(crate) async fn keep(self, condition: Condition) {
        loop {
            condition.set(self.are_fresh(Instant::now()));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    fn are_fresh(&self, now: Instant) -> bool {
        let age = |since: Instant| now.saturating_duration_since(since);
        let mut watches = self.lock();
        watches.retain(|_, watch| !watch.has_ended || age(watch.requested) <= CANCELLED);
        watches.iter().all(|(name, watch)| age(watch.heard) <= MAX_AGE || name.ends_with(OPTIONAL))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watches").field(&*self.lock()).finish()
    }
}

impl Collector for Watches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time since the API server last sent data on a watch";
        let mut family = encoder.encode_descriptor("watch_age_seconds", help, None, MetricType::Gauge)?;
        let ages: Vec<_> =
            self.lock().iter().map(|(name, it)| (name.clone(), it.heard.elapsed().as_secs_f64())).collect();
        for (name, age) in ages {
            ConstGauge::new(age).encode(family.encode_family(&[("watch", name)])?)?;
        }
        Ok(())
    }
}

/// Returns the name of the watch that a request begins: the path, and the name of the object if it selects one, such as
/// `namespaces/lucid-system/configmaps/lucid-auditors`.
fn name(uri: &Uri) -> String {
    let path = uri.path();
    let path = ["/api/v1/", "/apis/"].iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path);
    match parameter(uri, "fieldSelector")
        .as_deref()
        .and_then(|selector| selector.strip_prefix("metadata.name="))
    {
        Some(object) => format!("{path}/{object}"),
        None => path.to_owned(),
    }
}

fn parameter(uri: &Uri, key: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    pairs.find(|(found, _)| found == key).map(|(_, value)| value.into_owned())
}

impl<S> Layer<S> for Watches {
    type Service = Followed<S>;

    fn layer(&self, inner: S) -> Followed<S> {
        Followed { inner, watches: self.clone() }
    }
}

pub(crate) struct Followed<S> {
    inner: S,
    watches: Watches,
}

impl<S> Service<Request<Body>> for Followed<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<Box<DynBody>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let name = name(request.uri());
        let is_get = *request.method() == Method::GET;
        let is_watch = is_get && parameter(request.uri(), "watch").is_some_and(|value| value != "false");
        let watches = self.watches.clone();
        if let Some(watch) = watches.lock().get_mut(&name).filter(|_| is_get) {
            watch.requested = Instant::now();
        }
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await?;
            if is_watch && response.status().is_success() {
                let watch = Watch { name, watches, has_ended: false };
                let now = Instant::now();
                let state = State { heard: now, requested: now, has_ended: false };
                watch.watches.lock().insert(watch.name.clone(), state);
                return Ok(response.map(|body| Box::new(FollowedBody { body, watch }) as _));
            }
            // The resource is not, or no longer, defined.
            if is_get && response.status() == StatusCode::NOT_FOUND {
                watches.lock().remove(&name);
            }
            Ok(response)
        })
    }
}

struct Watch {
    name: String,
    watches: Watches,
    /// `true` if the API server or the connection ended the watch. Its age stays, because the watcher restarts it.
    has_ended: bool,
}

impl Watch {
    fn heard(&self) {
        if let Some(watch) = self.watches.lock().get_mut(&self.name) {
            watch.heard = Instant::now();
        }
    }

    fn end(&mut self) {
        self.has_ended = true;
        if let Some(watch) = self.watches.lock().get_mut(&self.name) {
            watch.has_ended = true;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.has_ended {
            self.watches.lock().remove(&self.name);
        }
    }
}

struct FollowedBody {
    body: Box<DynBody>,
    watch: Watch,
}

impl hyper::body::Body for FollowedBody {
    type Data = Bytes;
    type Error = tower::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, tower::BoxError>>> {
        let frame = ready!(Pin::new(&mut *self.body).poll_frame(cx));
        match &frame {
            Some(Ok(_)) => self.watch.heard(),
            Some(Err(_)) | None => self.watch.end(),
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::StreamExt;
    use futures::channel::mpsc::{UnboundedSender, unbounded};
    use http_body_util::{BodyExt, StreamBody};
    use hyper::body::Frame;
    use tower::{ServiceExt, service_fn};

    use super::*;

    const WATCH: &str = "/api/v1/namespaces/lucid-system/configmaps\
        ?&fieldSelector=metadata.name%3Dlucid-auditors&watch=true&timeoutSeconds=290";

    type Sender = UnboundedSender<Result<Frame<Bytes>, tower::BoxError>>;

    /// Sends a request. The response has `status`, and a body that the sender feeds.
    async fn get(watches: &Watches, uri: &str, status: StatusCode) -> (Sender, Response<Box<DynBody>>) {
        let (sender, frames) = unbounded();
        let mut frames = Some(frames);
        let inner = service_fn(move |_: Request<Body>| {
            let body: Box<DynBody> = Box::new(StreamBody::new(frames.take().unwrap()));
            let mut response = Response::new(body);
            *response.status_mut() = status;
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let request = Request::get(uri).body(Body::empty()).unwrap();
        (sender, watches.layer(inner).oneshot(request).await.unwrap())
    }

    fn names(watches: &Watches) -> Vec<String> {
        watches.lock().keys().cloned().collect()
    }

    #[tokio::test]
    async fn the_age_of_a_watch_counts_from_the_last_event() {
        let watches = Watches::default();
        let (sender, mut response) = get(&watches, WATCH, StatusCode::OK).await;
        assert_eq!(names(&watches), ["namespaces/lucid-system/configmaps/lucid-auditors"]);
        let begin = Instant::now();
        let is_fresh_after = |seconds| watches.are_fresh(begin + Duration::from_secs(seconds));
        assert!(is_fresh_after(89) && !is_fresh_after(91));
        sender.unbounded_send(Ok(Frame::data(Bytes::from_static(b"bookmark")))).unwrap();
        response.body_mut().frame().await.unwrap().unwrap();
        let heard = || watches.lock().values().next().unwrap().heard;
        let bookmark = heard();
        assert!(bookmark > begin);
        // A connection error is not a sign of life.
        sender.unbounded_send(Err("timed out".into())).unwrap();
        assert!(response.body_mut().frame().await.unwrap().is_err());
        drop(response);
        assert!(!is_fresh_after(100));
        let (_sender, _response) = get(&watches, WATCH, StatusCode::OK).await;
        assert!(heard() > bookmark);
    }

    #[tokio::test]
    async fn ended_and_optional_watches_do_not_count() {
        let watches = Watches::default();
        let begin = Instant::now();
        let is_fresh_after = |seconds| watches.are_fresh(begin + Duration::from_secs(seconds));
        let optional = WATCH.replace("lucid-auditors", "lucid-generations");
        let (_sender, _response) = get(&watches, &optional, StatusCode::OK).await;
        assert!(is_fresh_after(1000));
        let (sender, response) = get(&watches, WATCH, StatusCode::OK).await;
        drop(sender);
        assert!(response.into_body().into_data_stream().next().await.is_none());
        assert!(!is_fresh_after(119) && is_fresh_after(125));
        assert_eq!(names(&watches).len(), 1);
    }

    #[tokio::test]
    async fn only_watches_that_are_read_have_an_age() {
        let watches = Watches::default();
        let auditors = "/apis/lucid.computing/v1/auditors";
        let _list = get(&watches, auditors, StatusCode::OK).await;
        assert!(names(&watches).is_empty());
        let (sender, response) = get(&watches, &format!("{auditors}?watch=true"), StatusCode::OK).await;
        assert_eq!(names(&watches), ["lucid.computing/v1/auditors"]);
        drop(response);
        assert!(names(&watches).is_empty(), "it was cancelled");
        drop(sender);
        // The definition is deleted while the watch restarts.
        let (sender, response) = get(&watches, &format!("{auditors}?watch=true"), StatusCode::OK).await;
        drop(sender);
        assert!(response.into_body().into_data_stream().next().await.is_none());
        assert_eq!(names(&watches).len(), 1);
        let _gone = get(&watches, auditors, StatusCode::NOT_FOUND).await;
        assert!(names(&watches).is_empty());
    }
}
