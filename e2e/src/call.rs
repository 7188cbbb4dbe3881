use std::net::SocketAddr;

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lucid_testbed::Cluster;
use serde_json::Value;

use crate::Error;

/// Response of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// HTTP status.
    pub status: StatusCode,
    /// Body as JSON; a string if it is not JSON.
    pub body: Value,
}

/// Sends one request to a pod or a Service from within the cluster's network, on a new connection. A request with a body is a
/// POST; a body that begins with `{` is JSON.
///
/// # Errors
///
/// Returns an error if the connection fails, or ends before the response is complete.
pub async fn call(
    cluster: &Cluster,
    address: SocketAddr,
    path: &str,
    body: Option<&str>,
) -> Result<Reaction, Error> {
    let stream = cluster.connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let method = if body.is_some() { Method::POST } else { Method::GET };
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, address.to_string());
    if body.is_some_and(|body| body.starts_with('{')) {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::new(Bytes::from(body.unwrap_or_default().to_owned())))?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let bytes = response.into_body().collect().await?.to_bytes();
        let text = || String::from_utf8_lossy(&bytes).into_owned().into();
        Ok(Reaction { status, body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()) })
    };
    tokio::pin!(exchange);
    tokio::select! {
        reaction = &mut exchange => reaction,
        // The connection ends after the response at the latest.
        ended = connection => { ended?; exchange.await }
    }
}
