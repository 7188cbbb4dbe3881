//! Connections that leave the pod.

use std::{
    error::Error,
    fmt,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::net::TcpStream;
use tower::Service;

use crate::original::is_own;

/// Connects to hosts other than the pod itself, from which a request would return to the chain.
#[derive(Debug, Clone)]
pub(crate) struct Outside(pub(crate) HttpConnector);

/// The address of the pod to which a host resolves.
#[derive(Debug)]
pub(crate) struct InPod(IpAddr);

impl fmt::Display for InPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is this pod, to which the request would come back, expected another host", self.0)
    }
}

impl Error for InPod {}

impl Service<Uri> for Outside {
    type Response = TokioIo<TcpStream>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move {
            let stream = connecting.await?;
            // Names are resolved at this point, and nothing has been sent yet.
            let address = stream.inner().peer_addr()?.ip().to_canonical();
            if is_own(address) { Err(InPod(address).into()) } else { Ok(stream) }
        })
    }
}
