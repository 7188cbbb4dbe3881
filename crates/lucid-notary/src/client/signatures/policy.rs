//! The files of the directory: policies, trusted root and bundles.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lucid_text::Line;
use moka::future::Cache;
use reqwest::Client;
use serde::Deserialize;
use sigstore_verify::crypto::VerificationKey;
use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::DerPublicKey;
use tokio::task::JoinError;
use tower::BoxError;

use super::bundle::{Identity, Signers};
use super::referrers::{self, Repository};
use super::registry_credentials::RegistryCredentials;
use crate::client::{Answer, Verifier};
use crate::digest::{Algorithm, Digest};
use crate::pattern::ImagePattern;
use crate::reference::ImageReference;

const POLICIES: &str = "signatures.yaml";
const TRUSTED_ROOT: &str = "trusted_root.json";
const CREDENTIALS: &str = "config.json";

/// Maximum number of bundles about one digest.
pub(super) const MAX_BUNDLES: usize = 8;

/// Maximum number of repositories with cached verdicts. The author of a pod may choose any that the policy matches.
const MAX_REPOSITORIES: u64 = 256;

/// Requirement for an image to be notarized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::client) enum Require {
    /// The Verifier or a signature.
    Any,
    /// The Verifier and a signature.
    All,
    Verifier,
    Signatures,
}

/// The policies, each with its caches.
pub(in crate::client) struct Policies(Vec<Policy>);

pub(in crate::client) struct Policy {
    images: Vec<ImagePattern>,
    pub(in crate::client) require: Require,
    signers: Arc<Signers>,
    files: Arc<Bundles>,
    /// Set if bundles are fetched from registries.
    client: Option<Client>,
    credentials: Arc<RegistryCredentials>,
    /// Verdicts by signatures, by repository.
    verifiers: Cache<String, Verifier>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    policies: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    images: Vec<ImagePattern>,
    require: Require,
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    identities: Vec<Identity>,
    predicate_type: Option<String>,
    #[serde(default)]
    referrers: bool,
}

/// Bundles by name.
type Named = Vec<(String, Vec<u8>)>;
type Bundles = HashMap<Digest, Named>;

impl Policies {
    /// Returns the first policy for `image`.
    pub(in crate::client) fn of(&self, image: &ImageReference) -> Option<&Policy> {
        self.0.iter().find(|policy| policy.images.iter().any(|pattern| pattern.matches(image)))
    }

    /// Verifies the signature on `image` by the files alone. `None` if its policy demands none.
    pub(super) fn verify(&self, image: &ImageReference) -> Option<Result<(), String>> {
        let policy = self.of(image).filter(|policy| policy.require != Require::Verifier)?;
        let Some(digest) = image.digest() else { return Some(Err("it has no digest".to_owned())) };
        let bundles = policy.files.get(digest).map_or(&[][..], Vec::as_slice);
        Some(verify(&policy.signers, bundles, digest).map_err(|reasons| not_signed(reasons, digest, "")))
    }

    /// Reads `files` by name.
    pub(super) fn parse(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, BoxError> {
        let (mut document, mut root, mut bundles) = (None, None, Bundles::new());
        let mut credentials = RegistryCredentials::default();
        for (name, content) in files {
            let read = match name.as_str() {
                POLICIES => serde_yaml::from_slice::<Document>(content)
                    .map(|read| document = Some(read))
                    .map_err(BoxError::from),
                TRUSTED_ROOT => trusted_root(content).map(|read| root = Some(Arc::new(read))),
                CREDENTIALS => RegistryCredentials::parse(content).map(|read| credentials = read),
                _ if name.ends_with(".json") => {
                    add_bundle(&mut bundles, name, content).map_err(BoxError::from)
                }
                // Such as a README.
                _ => Ok(()),
            };
            read.map_err(|error| format!("{}: {error}", Line(name)))?;
        }
        let Document { policies } = document.ok_or(format!("expected a file {POLICIES}"))?;
        let (bundles, credentials) = (Arc::new(bundles), Arc::new(credentials));
        let policy = |(index, entry): (usize, Entry)| {
            let policy = Policy::new(entry, root.as_ref(), &bundles, &credentials);
            policy.map_err(|error| format!("{POLICIES}: policies[{index}]{error}").into())
        };
        policies.into_iter().enumerate().map(policy).collect::<Result<_, BoxError>>().map(Self)
    }
}

fn trusted_root(json: &[u8]) -> Result<sigstore_verify::Verifier, BoxError> {
    Ok(sigstore_verify::Verifier::new(&serde_json::from_slice::<TrustedRoot>(json)?)?)
}

fn add_bundle(bundles: &mut Bundles, name: &str, content: &[u8]) -> Result<(), String> {
    let parts = name.strip_suffix(".json").and_then(|stem| stem.split('.').next()?.split_once('-'));
    let digest = parts.and_then(|(algorithm, hex)| format!("{algorithm}:{hex}").parse::<Digest>().ok());
    let digest = digest.filter(|digest| digest.algorithm() == Algorithm::Sha256).ok_or_else(|| {
        format!(
            "expected {POLICIES}, {TRUSTED_ROOT}, {CREDENTIALS} or a bundle as sha256-HEX.json or sha256-HEX.NAME.json"
        )
    })?;
    let bundles = bundles.entry(digest).or_default();
    if bundles.len() == MAX_BUNDLES {
        return Err(format!("expected at most {MAX_BUNDLES} bundles for a digest"));
    }
    bundles.push((name.to_owned(), content.to_owned()));
    Ok(())
}

impl Policy {
    fn new(
        entry: Entry,
        root: Option<&Arc<sigstore_verify::Verifier>>,
        bundles: &Arc<Bundles>,
        credentials: &Arc<RegistryCredentials>,
    ) -> Result<Self, String> {
        let Entry { images, require, keys, identities, predicate_type, referrers } = entry;
        if require != Require::Verifier && keys.is_empty() && identities.is_empty() {
            return Err(": expected keys or identities".to_owned());
        }
        if !identities.is_empty() && root.is_none() {
            return Err(format!(".identities: expected a file {TRUSTED_ROOT}"));
        }
        if let Some(at) = identities.iter().position(|identity| !identity.is_specific()) {
            return Err(format!(".identities[{at}]: expected an issuer and at least the start of a subject"));
        }
        let key = |(index, pem): (usize, &String)| {
            let key = DerPublicKey::from_pem(pem).map_err(|error| format!(".keys[{index}]: {error}"))?;
            VerificationKey::from_spki(&key).map_err(|error| format!(".keys[{index}]: {error}"))?;
            Ok(key)
        };
        let keys = keys.iter().enumerate().map(key).collect::<Result<_, String>>()?;
        let signers = Arc::new(Signers { keys, identities, predicate_type, trusted_root: root.cloned() });
        let client = referrers.then(referrers::client).transpose();
        let client = client.map_err(|error| format!(".referrers: {error}"))?;
        let (files, credentials) = (Arc::clone(bundles), Arc::clone(credentials));
        let verifiers = Cache::new(MAX_REPOSITORIES);
        Ok(Self { images, require, signers, files, client, credentials, verifiers })
    }

    /// Returns the verdicts by signatures on images in the repository of `image`.
    pub(in crate::client) async fn signatures(&self, image: &ImageReference) -> Verifier {
        let verifier = async {
            let (signers, files) = (Arc::clone(&self.signers), Arc::clone(&self.files));
            let credentials = self.credentials.of(image).cloned();
            let repository = self.client.clone().map(|client| Repository::new(client, image, credentials));
            let answer = move |digest| answer(signers.clone(), files.clone(), repository.clone(), digest);
            Verifier::builder(tower::service_fn(answer)).build()
        };
        self.verifiers.get_with(image.normalized_name(), verifier).await
    }
}

async fn answer(
    signers: Arc<Signers>,
    files: Arc<Bundles>,
    repository: Option<Repository>,
    digest: Digest,
) -> Result<Answer, BoxError> {
    let mut or_else = "";
    let bundles = files.get(&digest).cloned().unwrap_or_default();
    let verified = verify_blocking(&signers, bundles, &digest).await?;
    let Err(mut reasons) = verified else { return Ok(Answer::Notarized) };
    if let Some(repository) = repository {
        let (bundles, error) = repository.bundles(&digest).await;
        let verified = verify_blocking(&signers, bundles, &digest).await?;
        let Err(more) = verified else { return Ok(Answer::Notarized) };
        if let Some(error) = error {
            return Err(error.into());
        }
        reasons.extend(more);
        or_else = " or one in its registry";
    }
    Ok(Answer::NotSigned { reason: not_signed(reasons, &digest, or_else) })
}

fn not_signed(reasons: Vec<String>, digest: &Digest, or_else: &str) -> String {
    if reasons.is_empty() {
        return format!("no signature on {digest}: expected a bundle sha256-{}.json{or_else}", digest.hex());
    }
    reasons.join("; ")
}

async fn verify_blocking(
    signers: &Arc<Signers>,
    bundles: Named,
    digest: &Digest,
) -> Result<Result<(), Vec<String>>, JoinError> {
    let (signers, digest) = (Arc::clone(signers), digest.clone());
    tokio::task::spawn_blocking(move || verify(&signers, &bundles, &digest)).await
}

/// Returns the reasons why no bundle verifies.
fn verify(signers: &Signers, bundles: &[(String, Vec<u8>)], digest: &Digest) -> Result<(), Vec<String>> {
    let mut reasons = Vec::new();
    for (name, bundle) in bundles {
        match signers.verify(bundle, digest) {
            Ok(()) => return Ok(()),
            Err(reason) => reasons.push(format!("{}: {}", Line(name), Line(&reason))),
        }
    }
    Err(reasons)
}
