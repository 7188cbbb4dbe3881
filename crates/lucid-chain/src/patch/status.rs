//! The status annotation.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Originals, added::Added};
use crate::plan::{Plan, PlannedInit};

/// Format version, part of the hash input: change it whenever the hashed content changes.
const FORMAT: &[u8] = b"lucid plan 2\n";

/// Content of the annotation. Members are sorted, as in everything that is hashed or written here.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'s> {
    added: &'s BTreeSet<String>,
    chain: Vec<&'s str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    hardened: BTreeMap<&'s str, Canonical<'s>>,
    images: Vec<&'s str>,
    init: Option<&'s str>,
    plan_hash: &'s str,
    version: &'static str,
}

/// Hash input: everything that a plan adds to a pod.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Injected<'s> {
    application_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_url: Option<String>,
    containers: Vec<Canonical<'s>>,
    image_pull_secrets: &'s [String],
    init: Option<Canonical<'s>>,
}

impl Plan {
    /// Returns the value of the annotation [`keys::STATUS`](crate::keys::STATUS): a JSON object with the version of
    /// Lucid, the names and images of the auditors, the init container, [`Plan::hash`], other additions, and the
    /// original security contexts.
    pub(super) fn status(&self, hash: &str, added: &Added, originals: &Originals) -> String {
        json(&Status {
            added: added.pointers(),
            chain: self.containers.iter().map(|planned| planned.name.as_str()).collect(),
            hardened: originals.iter().map(|(name, context)| (name.as_str(), Canonical(context))).collect(),
            images: self.containers.iter().map(|planned| planned.image()).collect(),
            init: self.init.as_ref().map(|init| init.name.as_str()),
            plan_hash: hash,
            version: env!("CARGO_PKG_VERSION"),
        })
    }

    /// Returns the SHA-256 of what the plan adds to the pod, as `sha256:` and 64 hexadecimal digits. Equal plans have
    /// equal hashes in every process and on every machine.
    pub fn hash(&self) -> String {
        let containers: Vec<_> = self.containers.iter().map(|planned| planned.manifest()).collect();
        let init = self.init.as_ref().map(PlannedInit::manifest);
        self.hash_of(&containers, init.as_ref())
    }

    /// Computes [`Plan::hash`] from the manifests of the plan's containers.
    pub(super) fn hash_of<'s>(
        &self,
        containers: impl IntoIterator<Item = &'s Value>,
        init: Option<&'s Value>,
    ) -> String {
        let injected = Injected {
            application_url: self.application_url(),
            base_url: self.base_url(),
            containers: containers.into_iter().map(Canonical).collect(),
            image_pull_secrets: &self.image_pull_secrets,
            init: init.map(Canonical),
        };
        let digest = Sha256::new().chain_update(FORMAT).chain_update(json(&injected)).finalize();
        format!("sha256:{digest:x}")
    }
}

/// Serializes strings, lists and string-keyed maps, which cannot fail.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Serializes JSON with sorted members. serde_json sorts them unless a crate in the build enables `preserve_order`.
struct Canonical<'v>(&'v Value);

impl Serialize for Canonical<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(items) => serializer.collect_seq(items.iter().map(Canonical)),
            Value::Object(members) if members.keys().is_sorted() => {
                serializer.collect_map(members.iter().map(|(key, value)| (key, Canonical(value))))
            }
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_unstable_by_key(|(key, _)| key.as_str());
                serializer.collect_map(members.into_iter().map(|(key, value)| (key, Canonical(value))))
            }
            scalar => scalar.serialize(serializer),
        }
    }
}
