//! HTTP client of the Verifier.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use lucid_audit::note::VerifierKey;
use lucid_text::Line;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use snafu::{IntoError, ensure};
use tower::Service;

use super::answer::Answer;
use super::error::{
    MalformedSnafu, OtherDigestSnafu, StatusSnafu, TimeoutSnafu, TooLongSnafu, TransportSnafu, UnprovenSnafu,
    VerifierError,
};
use super::metrics::ClientMetrics;
use super::proof::check_proof;
use super::reloading_files::ReloadingFiles;
use crate::digest::Digest;

/// Maximum number of concurrent checks of one [`Verifier::check_all`](crate::client::Verifier::check_all). The author
/// of a pod controls the number of digests, and each check may hold a connection.
pub(super) const MAX_IN_FLIGHT: usize = 8;

/// Maximum length of a response body in bytes. Valid responses have about 200.
const ANSWER_LIMIT: usize = 64 * 1024;

/// Response body: `{"digest":"sha256:…","notarized":true}`.
#[derive(Deserialize)]
struct Body {
    digest: String,
    notarized: bool,
    proof: Option<String>,
}

/// HTTP client of the Verifier: a [`Service`] from [`Digest`] to [`Answer`].
///
/// Each call sends one `GET {base}/registry/check?digest=sha256:…`. A response counts only with status 200 and the
/// requested digest. Redirects are not followed and the system's proxy settings are ignored. Dropping the future
/// cancels the request. TLS uses rustls with aws-lc-rs.
///
/// Clones are cheap and share connections, of which up to 8 idle ones
/// are kept for 10 s. The caller limits concurrency. After certificate files change, new connections use them and
/// existing connections finish their requests.
#[derive(Clone, Debug)]
pub struct HttpVerifier {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) metrics: ClientMetrics,
}

#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) check: Url,
    pub(super) origin: String,
    pub(super) timeout: Duration,
    pub(super) client: ReloadingFiles<Client>,
    pub(super) token: Option<ReloadingFiles<HeaderValue>>,
    pub(super) log_keys: Vec<VerifierKey>,
}

impl Endpoint {
    /// Returns the response, and its proof if it has one.
    pub(super) async fn request(&self, digest: &Digest) -> Result<(Answer, Option<String>), VerifierError> {
        let origin = &self.origin;
        let mut url = self.check.clone();
        let proof = if self.log_keys.is_empty() { "" } else { "&proof=true" };
        url.set_query(Some(&format!("digest={digest}{proof}")));
        let mut request = self.client.get().await.get(url);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, &*token.get().await);
        }
        let response = request.send().await.map_err(|error| self.transport_error(error))?;
        let status = response.status();
        ensure!(status == StatusCode::OK, StatusSnafu { origin, status });

        let body = self.read(response).await?;
        // serde accepts a list of the values in place of an object.
        let is_list = body.trim_ascii_start().starts_with(b"[");
        ensure!(!is_list, MalformedSnafu { origin, fault: "invalid type: sequence, expected an object" });
        let body: Body = serde_json::from_slice(&body).map_err(|error| {
            MalformedSnafu { origin, fault: Line(&error.to_string()).to_string() }.build()
        })?;
        ensure!(
            body.digest == digest.as_str(),
            OtherDigestSnafu {
                origin,
                requested: digest.clone(),
                answered: format!("\"{}\"", Line(&body.digest))
            }
        );
        let answer = if body.notarized { Answer::Notarized } else { Answer::NotNotarized };
        if !self.log_keys.is_empty() {
            let proven = check_proof(&self.log_keys, digest, answer.clone(), body.proof.as_deref());
            proven.map_err(|error| UnprovenSnafu { origin, fault: error.to_string() }.build())?;
        }
        Ok((answer, body.proof))
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, VerifierError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.transport_error(error))? {
            ensure!(
                body.len() + chunk.len() <= ANSWER_LIMIT,
                TooLongSnafu { origin: &self.origin, limit: ANSWER_LIMIT }
            );
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn transport_error(&self, error: reqwest::Error) -> VerifierError {
        let Self { origin, timeout, .. } = self;
        if error.is_timeout() {
            TimeoutSnafu { origin, timeout: *timeout }.build()
        } else {
            TransportSnafu { origin }.into_error(error.without_url())
        }
    }
}

impl HttpVerifier {
    /// Sends one request. Returns the response, and with [keys](super::HttpVerifierBuilder::with_log_keys) the C2SP
    /// tlog-proof of its record, which [`check_proof`](super::check_proof) has accepted. A digest that was never
    /// notarized has none.
    ///
    /// # Errors
    ///
    /// Returns an error if the request fails, or the response cannot be trusted.
    pub async fn prove(&self, digest: &Digest) -> Result<(Answer, Option<String>), VerifierError> {
        let begun = Instant::now();
        let response = self.endpoint.request(digest).await;
        self.metrics.requested(response.as_ref().map(|(answer, _)| answer), begun.elapsed());
        response
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
        let this = self.clone();
        Box::pin(async move { Ok(this.prove(&digest).await?.0) })
    }
}
