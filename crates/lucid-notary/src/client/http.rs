use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use reqwest::{Client, Response, StatusCode, Url};
use snafu::{IntoError, ensure};
use tower::Service;

use super::answer::{Answer, AnswerBody};
use super::builder::HttpVerifierBuilder;
use super::error::{
    MalformedSnafu, OtherDigestSnafu, StatusSnafu, TimeoutSnafu, TooLongSnafu, TransportSnafu, VerifierError,
};
use crate::digest::Digest;
use crate::text::excerpt;

/// A longer answer is not read to its end. A right one has some 200 bytes.
const ANSWER_LIMIT: usize = 64 * 1024;

/// The Verifier, asked over HTTP: a [`Service`] from [`Digest`] to [`Answer`].
///
/// One call is one `GET {base}/registry/check?digest=sha256:…`. Only an answer with status 200 and the very digest
/// that was asked for counts; redirects are not followed, the system's proxy settings are not used, and a call that
/// is dropped is cancelled. TLS is rustls with aws-lc-rs.
///
/// A clone is cheap and shares the connections, of which [`MAX_IN_FLIGHT`](super::MAX_IN_FLIGHT) are kept for 10 s after
/// their last use. How many calls go on at the same time is up to the caller.
#[derive(Clone, Debug)]
pub struct HttpVerifier {
    pub(super) client: Client,
    pub(super) endpoint: Arc<Endpoint>,
}

#[derive(Debug)]
pub(super) struct Endpoint {
    /// The URL to ask, without its query.
    pub(super) check: Url,
    pub(super) origin: String,
    pub(super) timeout: Duration,
}

impl HttpVerifier {
    /// Starts with the Verifier's base URL, `http[s]://host[:port][/path]`; `/registry/check` is appended to it.
    pub fn builder(base_url: &str) -> HttpVerifierBuilder {
        HttpVerifierBuilder::new(base_url)
    }

    async fn ask(&self, digest: &Digest) -> Result<Answer, VerifierError> {
        let origin = &self.endpoint.origin;
        let mut url = self.endpoint.check.clone();
        url.set_query(Some(&format!("digest={digest}")));
        let response = self.client.get(url).send().await.map_err(|error| self.transport_error(error))?;
        let status = response.status();
        ensure!(status == StatusCode::OK, StatusSnafu { origin, status });

        let body = self.read(response).await?;
        let body: AnswerBody = serde_json::from_slice(&body)
            .map_err(|error| MalformedSnafu { origin, fault: excerpt(&error.to_string()) }.build())?;
        ensure!(
            body.digest == digest.as_str(),
            OtherDigestSnafu { origin, asked: digest.clone(), answered: excerpt(&body.digest) }
        );
        Ok(if body.notarized { Answer::Notarized } else { Answer::NotNotarized })
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, VerifierError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.transport_error(error))? {
            ensure!(
                body.len() + chunk.len() <= ANSWER_LIMIT,
                TooLongSnafu { origin: &self.endpoint.origin, limit: ANSWER_LIMIT }
            );
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn transport_error(&self, error: reqwest::Error) -> VerifierError {
        let Endpoint { origin, timeout, .. } = &*self.endpoint;
        if error.is_timeout() {
            TimeoutSnafu { origin, timeout: *timeout }.build()
        } else {
            TransportSnafu { origin }.into_error(error.without_url())
        }
    }
}

impl Service<Digest> for HttpVerifier {
    type Response = Answer;
    type Error = VerifierError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, VerifierError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), VerifierError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, digest: Digest) -> Self::Future {
        let verifier = self.clone();
        Box::pin(async move { verifier.ask(&digest).await })
    }
}
