use std::net::SocketAddr;

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lucid_testbed::Cluster;
use serde_json::Value;

use crate::Error;

/// What a pod answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body as JSON; null when it is something else.
    pub body: Value,
}

/// Sends one request to a pod or a Service from within the cluster's network, on a connection of its own. A body makes it a
/// POST.
///
/// # Errors
///
/// When nobody takes the connection, or it ends before the answer does.
pub async fn call(
    cluster: &Cluster,
    address: SocketAddr,
    path: &str,
    body: Option<&str>,
) -> Result<Reaction, Error> {
    let stream = cluster.connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let method = if body.is_some() { Method::POST } else { Method::GET };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, address.to_string())
        .body(Full::new(Bytes::from(body.unwrap_or_default().to_owned())))?;
    let exchange = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await?.to_bytes();
        Ok(Reaction { status, body: serde_json::from_slice(&bytes).unwrap_or_default() })
    };
    tokio::pin!(exchange);
    tokio::select! {
        reaction = &mut exchange => reaction,
        // It ends with the answer at the latest.
        ended = connection => { ended?; exchange.await }
    }
}
