//! What an administrator asks of the authority: where it stands, and for another one

use std::time::SystemTime;

use kube::Client;
use serde::Serialize;
use snafu::Snafu;

use super::{
    contents::{Contents, Found},
    store::Store,
};
use crate::{
    chain,
    fingerprint::Fingerprint,
    rotation::{Ca, Timing},
    validity::Rfc3339,
};

/// Why the authority could not be looked at or asked to change
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum RequestError {
    /// The API server did not let us
    #[snafu(display("{problem}"))]
    Api {
        /// What went wrong with which Secret
        problem: String,
    },
    /// There is nothing to rotate
    #[snafu(display(
        "failed to find Secret {namespace}/{secret}: it is made by the operator when it runs with its own authority"
    ))]
    Missing {
        /// Its namespace
        namespace: String,
        /// Its name
        secret: String,
    },
    /// What is there is no authority
    #[snafu(display("failed to read the certificate authority in Secret {namespace}/{secret}: {problem}"))]
    Unusable {
        /// Its namespace
        namespace: String,
        /// Its name
        secret: String,
        /// What was found
        problem: String,
    },
    /// Somebody else changed it each time
    #[snafu(display(
        "failed to change Secret {namespace}/{secret}: others changed it at the same moment; try again"
    ))]
    Contended {
        /// Its namespace
        namespace: String,
        /// Its name
        secret: String,
    },
}

/// An authority, for people
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CaSummary {
    /// SHA-256 of the certificate
    pub sha256: Fingerprint,
    /// RFC 3339
    pub not_before: String,
    /// RFC 3339
    pub not_after: String,
    /// When trust in it ends, for one that signs no more; RFC 3339
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retire_at: Option<String>,
}

/// Where the authorities in a Secret stand
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CaStatus {
    /// Signs
    pub signer: CaSummary,
    /// Will sign
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<CaSummary>,
    /// Signed, and are trusted for some time; newest first
    pub previous: Vec<CaSummary>,
    /// Signed, and must not be trusted
    pub retired: Vec<Fingerprint>,
    /// Whether another signer is asked for
    pub rotation_requested: bool,
    /// What is wrong with the Secret although it is used
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// How soon another authority is wanted
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RotationRequest {
    /// In the usual order, in which no call is lost: trust in the present authority ends when the last certificate
    /// of it is expired, days later.
    Ordinary,
    /// Because the present one is compromised: trust in it, and in all before it, ends within minutes. A replica that
    /// is cut off from the API server for that long fails its calls until it is back.
    Urgent,
}

/// Where the authorities in Secret `secret` of `namespace` stand
///
/// # Errors
///
/// When the API server refuses, or there is no authority.
pub async fn status(client: Client, namespace: &str, secret: &str) -> Result<CaStatus, RequestError> {
    let store = Store::new(client, namespace, secret);
    let (_, found) = read(&store, namespace, secret).await?;
    Ok(CaStatus::of(&found))
}

/// Asks the replicas that run for another authority. They notice at once; [`status`] tells how far they are.
///
/// # Errors
///
/// When the API server refuses, or there is no authority.
pub async fn request_rotation(
    client: Client,
    namespace: &str,
    secret: &str,
    request: RotationRequest,
) -> Result<CaStatus, RequestError> {
    let store = Store::new(client, namespace, secret);
    for _ in 0..8 {
        let (before, found) = read(&store, namespace, secret).await?;
        let contents = found.contents.with_request(request == RotationRequest::Urgent);
        let status = CaStatus::of(&Found { contents: contents.clone(), damage: None });
        let put = store.put(Some(&before), |secret| contents.write(secret)).await;
        if put.map_err(|error| RequestError::Api { problem: chain(&error) })?.is_some() {
            return Ok(status);
        }
    }
    ContendedSnafu { namespace, secret }.fail()
}

async fn read(
    store: &Store,
    namespace: &str,
    name: &str,
) -> Result<(k8s_openapi::api::core::v1::Secret, Found), RequestError> {
    let secret = store.get().await.map_err(|error| RequestError::Api { problem: chain(&error) })?;
    let Some(secret) = secret else {
        return MissingSnafu { namespace, secret: name }.fail();
    };
    match Contents::read(&secret, None, &Timing::default(), SystemTime::now()) {
        Ok(found) => Ok((secret, found)),
        Err(error) => UnusableSnafu { namespace, secret: name, problem: chain(&error) }.fail(),
    }
}

impl CaStatus {
    fn of(found: &Found) -> Self {
        let shared = &found.contents.shared;
        let mut previous: Vec<_> = shared.previous.iter().collect();
        previous.sort_by_key(|previous| std::cmp::Reverse(previous.ca.validity.not_before));
        let previous = previous.into_iter();
        Self {
            signer: CaSummary::of(shared.signer, None),
            next: shared.next.map(|next| CaSummary::of(next, None)),
            previous: previous.map(|previous| CaSummary::of(previous.ca, Some(previous.retire_at))).collect(),
            retired: shared.retired.iter().map(|ca| ca.fingerprint).collect(),
            rotation_requested: shared.request.is_some(),
            damage: found.damage.clone(),
        }
    }
}

impl CaSummary {
    fn of(ca: Ca, retire_at: Option<SystemTime>) -> Self {
        Self {
            sha256: ca.fingerprint,
            not_before: Rfc3339(ca.validity.not_before).to_string(),
            not_after: Rfc3339(ca.validity.not_after).to_string(),
            retire_at: retire_at.map(|time| Rfc3339(time).to_string()),
        }
    }
}
