//! Bundles in the registry of an image, found by the OCI referrers API or its fallback tag.
//!
//! `oci-client` reads manifests and lists of any length; here each body has a limit.

use std::time::Duration;

use futures::future::join_all;
use lucid_text::Line;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LINK, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use serde::Deserialize;
use snafu::Snafu;
use tokio::time::timeout;
use tower::BoxError;

use super::bundle::MAX_BUNDLE;
use super::policy::MAX_BUNDLES;
use crate::client::builder::is_loopback;
use crate::client::credentials;
use crate::client::error::root_cause;
use crate::digest::Digest;
use crate::reference::ImageReference;

/// Timeout of all requests about one digest. A webhook has 5 s, of which one request to the Verifier may need the rest.
const TIMEOUT: Duration = Duration::from_millis(2500);

/// Maximum length of a list, which may have other referrers, of a manifest, and of a token in bytes.
const MAX_LIST: usize = 1024 * 1024;
const MAX_MANIFEST: usize = 64 * 1024;

const MAX_REDIRECTS: usize = 3;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// Type that cosign gives to a bundle in the list at the fallback tag.
const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// A repository, read over https, or over http if the registry is at a loopback address.
#[derive(Clone)]
pub(super) struct Repository {
    client: Client,
    credentials: Option<HeaderValue>,
    name: String,
    path: String,
    url: String,
    is_plain: bool,
}

/// Some bundles of a repository could not be fetched.
#[derive(Debug, Snafu)]
#[snafu(display("failed to fetch signatures from {repository}: {fault}"))]
pub(super) struct ReferrersError {
    repository: String,
    fault: String,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: Digest,
    artifact_type: Option<String>,
}

/// Registries send one member or both.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// Builds the client that all repositories share.
pub(super) fn client() -> Result<Client, BoxError> {
    let redirects = redirect::Policy::custom(|attempt| {
        let is_plain = attempt.previous().first().is_some_and(|first| first.scheme() == "http");
        if attempt.previous().len() > MAX_REDIRECTS {
            attempt.error(format!("expected at most {MAX_REDIRECTS} redirects"))
        } else if is_private(attempt.url(), is_plain) {
            attempt.follow()
        } else {
            attempt.error("expected a redirect to https")
        }
    });
    let agent = concat!("lucid-notary/", env!("CARGO_PKG_VERSION"));
    credentials::finish(Client::builder().user_agent(agent).redirect(redirects).referer(false).no_proxy())
}

/// Returns `true` if nobody else can read requests to `url`, given whether the registry is asked over http.
fn is_private(url: &Url, is_plain: bool) -> bool {
    url.scheme() == "https" || (is_plain && is_loopback(url))
}

impl Repository {
    pub(super) fn new(client: Client, image: &ImageReference, credentials: Option<HeaderValue>) -> Self {
        // The registry of Docker Hub has another name than its images.
        let host = if image.registry() == "docker.io" { "registry-1.docker.io" } else { image.registry() };
        let is_plain = Url::parse(&format!("http://{host}")).is_ok_and(|url| is_loopback(&url));
        let scheme = if is_plain { "http" } else { "https" };
        let path = image.repository().to_owned();
        let url = format!("{scheme}://{host}/v2/{path}");
        Self { client, credentials, name: image.name(), url, path, is_plain }
    }

    /// Returns the bundles about `digest` by name, and an error if there may be more.
    pub(super) async fn bundles(&self, digest: &Digest) -> (Vec<(String, Vec<u8>)>, Option<ReferrersError>) {
        let fetched = timeout(TIMEOUT, self.fetch(digest)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(format!("no response within {TIMEOUT:?}")));
        let (bundles, fault) = fetched.unwrap_or_else(|fault| (Vec::new(), Some(fault)));
        let repository = self.name.clone();
        (bundles, fault.map(|fault| ReferrersError { repository, fault }))
    }

    async fn fetch(&self, digest: &Digest) -> Result<(Vec<(String, Vec<u8>)>, Option<String>), String> {
        let mut authorization = None;
        let filter = BUNDLE.replace('+', "%2B");
        let api = format!("referrers/{digest}?artifactType={filter}");
        let mut response = self.get_index(&api, &mut authorization).await?;
        if !is_index(&response) {
            let tag = format!("manifests/{}-{}", digest.algorithm(), digest.hex());
            response = self.get_index(&tag, &mut authorization).await?;
            if response.status() == StatusCode::NOT_FOUND {
                return Ok((Vec::new(), None));
            }
        }
        let is_part = response.headers().contains_key(LINK);
        let Index { mut manifests } = parse(&read(response, MAX_LIST).await?)?;
        // Registries may ignore the filter.
        manifests.retain(|found| matches!(found.artifact_type.as_deref(), None | Some(BUNDLE | EMPTY)));
        let is_part = is_part || manifests.len() > MAX_BUNDLES;
        let mut fault = is_part.then(|| format!("expected at most {MAX_BUNDLES} bundles for a digest"));
        manifests.truncate(MAX_BUNDLES);
        let mut bundles = Vec::new();
        let fetched = manifests.iter().map(|manifest| self.bundle(&manifest.digest, authorization.as_ref()));
        for (manifest, bundle) in manifests.iter().zip(join_all(fetched).await) {
            match bundle {
                Ok(Some(bundle)) => bundles.push((format!("{}@{}", self.name, manifest.digest), bundle)),
                Ok(None) => {}
                Err(error) => fault = Some(format!("{}: {error}", manifest.digest)),
            }
        }
        Ok((bundles, fault))
    }

    /// Returns the only layer of the manifest, or `None` if that is not a bundle.
    async fn bundle(
        &self,
        manifest: &Digest,
        authorization: Option<&HeaderValue>,
    ) -> Result<Option<Vec<u8>>, String> {
        let response =
            self.get(&format!("{}/manifests/{manifest}", self.url), MANIFEST, authorization).await?;
        let Manifest { layers } = parse(&read(response, MAX_MANIFEST).await?)?;
        let [Descriptor { media_type, digest, .. }] = &layers[..] else { return Ok(None) };
        if media_type != BUNDLE {
            return Ok(None);
        }
        let response = self.get(&format!("{}/blobs/{digest}", self.url), "*/*", authorization).await?;
        Ok(Some(read(response, MAX_BUNDLE).await?))
    }

    /// Requests a list, and authorization if the registry wants one.
    async fn get_index(
        &self,
        path: &str,
        authorization: &mut Option<HeaderValue>,
    ) -> Result<Response, String> {
        let url = format!("{}/{path}", self.url);
        let response = self.get(&url, INDEX, authorization.as_ref()).await?;
        if response.status() != StatusCode::UNAUTHORIZED || authorization.is_some() {
            return Ok(response);
        }
        *authorization = Some(self.authorization(&response).await?);
        self.get(&url, INDEX, authorization.as_ref()).await
    }

    async fn get(
        &self,
        url: &str,
        accept: &str,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response, String> {
        let mut request = self.client.get(url).header(ACCEPT, accept);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.send().await.map_err(|error| root_cause(&error))
    }

    /// Returns the credentials, or a token for them, or for nobody, from the server that `response` names.
    async fn authorization(&self, response: &Response) -> Result<HeaderValue, String> {
        const EXPECTED: &str =
            "expected a repository for all, credentials, or a challenge for a bearer token over https";
        // Not that of a server that the registry redirects to.
        let is_own = Url::parse(&self.url).is_ok_and(|url| url.origin() == response.url().origin());
        let challenges = response.headers().get_all(WWW_AUTHENTICATE).iter().filter(|_| is_own);
        let challenges: Vec<_> =
            challenges.filter_map(|value| value.to_str().ok()?.split_once(' ')).collect();
        let find = |scheme: &str| challenges.iter().find(|(found, _)| found.eq_ignore_ascii_case(scheme));
        let Some((_, parameters)) = find("Bearer") else {
            return find("Basic").and(self.credentials.clone()).ok_or_else(|| EXPECTED.to_owned());
        };
        let mut parts = parameters.split('"');
        let (mut realm, mut service) = (None, None);
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            match key.trim_matches([',', ' ', '=']) {
                "realm" => realm = Url::parse(value).ok().filter(|realm| is_private(realm, self.is_plain)),
                "service" => service = Some(value),
                _ => {}
            }
        }
        let mut url = realm.ok_or(EXPECTED)?;
        url.query_pairs_mut().append_pair("scope", &format!("repository:{}:pull", self.path));
        url.query_pairs_mut().extend_pairs(service.map(|service| ("service", service)));
        let response = self.get(url.as_str(), "*/*", self.credentials.as_ref()).await?;
        let Token { token, access_token } = parse(&read(response, MAX_MANIFEST).await?)?;
        let token = token.or(access_token).ok_or("expected a token in the response to its request")?;
        credentials::authorization(token.as_bytes()).map_err(|error| error.to_string())
    }
}

/// Returns `false` if the registry does not have the API, but may have the fallback tag.
fn is_index(response: &Response) -> bool {
    use StatusCode as Status;
    match response.status() {
        Status::OK => {
            response.headers().get(CONTENT_TYPE).is_some_and(|found| found.as_bytes() == INDEX.as_bytes())
        }
        status => !matches!(status, Status::NOT_FOUND | Status::BAD_REQUEST | Status::NOT_ACCEPTABLE),
    }
}

async fn read(mut response: Response, limit: usize) -> Result<Vec<u8>, String> {
    let status = response.status();
    if status != StatusCode::OK {
        return Err(format!("expected status 200 OK, found {status}"));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| root_cause(&error))? {
        if body.len() + chunk.len() > limit {
            return Err(format!("the response is longer than the limit of {limit} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| Line(&error.to_string()).to_string())
}
