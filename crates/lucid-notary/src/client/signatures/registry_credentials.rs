//! Credentials of registries, in the format of Docker's `config.json` and Secrets of type
//! `kubernetes.io/dockerconfigjson`.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use tower::BoxError;

use crate::reference::ImageReference;

/// Headers `Authorization` by registry, by first segments of a repository, or by repository.
#[derive(Default)]
pub(super) struct RegistryCredentials(Vec<(String, HeaderValue)>);

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

/// Has `auth`, or `username` and `password`. Those of credential helpers have neither.
#[derive(Deserialize)]
struct Entry {
    /// Base64 of `USER:PASSWORD`.
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

impl RegistryCredentials {
    /// Skips entries without a password.
    pub(super) fn parse(json: &[u8]) -> Result<Self, BoxError> {
        // Messages of serde quote values.
        let config: DockerConfig = serde_json::from_slice(json)
            .map_err(|_| r#"expected {"auths":{"REGISTRY":{"auth":"BASE64"}}}"#)?;
        let headers = config.auths.into_iter().filter_map(|(key, entry)| Some((name(&key), entry.header()?)));
        Ok(Self(headers.collect()))
    }

    /// Returns the header for the longest name that `image` is in.
    pub(super) fn of(&self, image: &ImageReference) -> Option<&HeaderValue> {
        let image = image.normalized_name();
        let is_in = |name: &str| {
            image.strip_prefix(name).is_some_and(|rest| matches!(rest.as_bytes(), [] | [b'/', ..]))
        };
        let found = self.0.iter().filter(|(name, _)| is_in(name)).max_by_key(|(name, _)| name.len());
        found.map(|(_, header)| header)
    }
}

impl Entry {
    fn header(self) -> Option<HeaderValue> {
        let auth = self.auth.filter(|auth| !auth.is_empty());
        let auth =
            auth.or_else(|| Some(STANDARD.encode(format!("{}:{}", self.username?, self.password?))))?;
        let mut header = HeaderValue::try_from(format!("Basic {auth}")).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

/// Returns the normalized name of a key, such as `https://index.docker.io/v1/` or `r.test:443/team`.
fn name(key: &str) -> String {
    let key = key.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let host = host.to_ascii_lowercase();
    let host = host.trim_end_matches(":443").replace("index.docker.io", "docker.io");
    if matches!(path, "" | "v1" | "v2") { host } else { format!("{host}/{path}") }
}
