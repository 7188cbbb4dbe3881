//! Status of the CA and rotation requests, for administrators.

use std::{fmt, time::SystemTime};

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use serde::Serialize;

use super::{
    contents::{Contents, Found},
    store::Store,
};
use crate::{
    fingerprint::Fingerprint,
    rotation::Ca,
    source::{Reason, SourceError},
    timing::Timing,
    validity::Rfc3339,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CaSummary {
    sha256: Fingerprint,
    /// Start of the validity period (RFC 3339).
    not_before: String,
    /// End of the validity period (RFC 3339).
    not_after: String,
    /// Time at which trust in a previous CA ends (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    retire_at: Option<String>,
}

/// State of the CAs in a Secret, as a text of several lines or as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CaStatus {
    signer: CaSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<CaSummary>,
    /// Previous signing CAs that are still trusted, newest first.
    previous: Vec<CaSummary>,
    /// Previous signing CAs that must not be trusted.
    retired: Vec<Fingerprint>,
    rotation_requested: bool,
    /// Damage to the Secret that does not prevent its use.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
}

impl fmt::Display for CaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |role: &str, ca: &CaSummary| {
            writeln!(f, "{role:<9}{}  valid from {} to {}", ca.sha256, ca.not_before, ca.not_after)?;
            ca.retire_at.iter().try_for_each(|at| writeln!(f, "{:9}trusted until {at}", ""))
        };
        line("signer", &self.signer)?;
        self.next.iter().try_for_each(|next| line("next", next))?;
        self.previous.iter().try_for_each(|previous| line("previous", previous))?;
        self.retired.iter().try_for_each(|retired| writeln!(f, "{:<9}{retired}  not trusted", "revoked"))?;
        if self.rotation_requested {
            writeln!(f, "a new authority is requested")?;
        }
        self.damage.iter().try_for_each(|damage| writeln!(f, "the Secret is damaged: {damage}"))
    }
}

/// Urgency of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RotationRequest {
    /// Regular rotation without failed calls. Trust in the current CA ends days later, when its last
    /// certificate has expired.
    Ordinary,
    /// Rotation of a compromised CA. Trust in it and in all earlier CAs ends within minutes. Calls to a
    /// replica that cannot reach the API server for that long fail until it reconnects.
    Urgent,
}

impl RotationRequest {
    /// Requests a rotation from the running replicas that share the Secret `secret` of `namespace`. They start
    /// immediately; see [`CaStatus::read`] for the progress.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server rejects the request or the Secret holds no usable CA.
    pub async fn send(self, client: Client, namespace: &str, secret: &str) -> Result<CaStatus, SourceError> {
        let store = Store::new(client, namespace, secret);
        for _ in 0..8 {
            let (before, found) = read(&store).await?;
            let contents = found.contents.with_request(self == Self::Urgent);
            let status = CaStatus::of(&Found { contents: contents.clone(), damage: None });
            if store.put(Some(&before), |secret| contents.write(secret)).await?.is_some() {
                return Ok(status);
            }
        }
        let problem = format!("failed to update {store}: other clients keep changing it; try again");
        Err(SourceError::new(Reason::Unreadable, problem))
    }
}

async fn read(store: &Store) -> Result<(Secret, Found), SourceError> {
    let Some(secret) = store.get().await? else {
        let problem = format!("failed to find {store}: an operator with a self-managed CA creates it");
        return Err(SourceError::new(Reason::Missing, problem));
    };
    let found = Contents::read(&secret, None, &Timing::default(), SystemTime::now()).map_err(|error| {
        let problem = format!("failed to read the certificate authority in {store}: {error}");
        SourceError::new(error.reason, problem)
    })?;
    Ok((secret, found))
}

impl CaStatus {
    /// Reads the state of the CAs in the Secret `secret` of `namespace`.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server rejects the request or the Secret holds no usable CA.
    pub async fn read(client: Client, namespace: &str, secret: &str) -> Result<Self, SourceError> {
        let (_, found) = read(&Store::new(client, namespace, secret)).await?;
        Ok(Self::of(&found))
    }

    /// Returns the signing CA.
    #[must_use]
    pub fn signer(&self) -> Fingerprint {
        self.signer.sha256
    }

    /// Returns the CA that signs next, during a rotation.
    #[must_use]
    pub fn next(&self) -> Option<Fingerprint> {
        self.next.as_ref().map(|next| next.sha256)
    }

    /// Returns the previous signing CAs that are still trusted, newest first, with the end of trust in them.
    pub fn previous(&self) -> impl Iterator<Item = (Fingerprint, &str)> {
        self.previous.iter().filter_map(|previous| Some((previous.sha256, previous.retire_at.as_deref()?)))
    }

    fn of(found: &Found) -> Self {
        let shared = &found.contents.shared;
        let mut previous: Vec<_> = shared.previous.iter().collect();
        previous.sort_by_key(|(ca, _)| std::cmp::Reverse(ca.validity.not_before));
        let previous = previous.into_iter();
        Self {
            signer: CaSummary::of(shared.signer, None),
            next: shared.next.map(|next| CaSummary::of(next, None)),
            previous: previous.map(|(ca, retire_at)| CaSummary::of(*ca, Some(*retire_at))).collect(),
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
