//! The status annotation.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Originals, added::Added};
use crate::plan::{Plan, PlannedInit};

/// Goes into the hash, so that a change of what is hashed changes every hash.
const FORMAT: &[u8] = b"lucid plan 2\n";

/// The annotation. Its members are sorted, as in everything that is hashed or written here.
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

/// What a plan puts into a pod.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Injected<'s> {
    application_url: Option<String>,
    containers: Vec<Canonical<'s>>,
    image_pull_secrets: &'s [String],
    init: Option<Canonical<'s>>,
}

impl Plan {
    /// The value of the annotation [`keys::STATUS`](crate::keys::STATUS): one JSON object with
    /// the version of Lucid, the chain's container names and images, the init container, [`Plan::hash`], what was
    /// added besides, and the original security contexts.
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

    /// SHA-256 over what the plan puts into the pod, as `sha256:` and 64 hexadecimal digits. It
    /// is the same for the same plan in every process and on every machine.
    pub fn hash(&self) -> String {
        let containers: Vec<_> = self.containers.iter().map(|planned| planned.manifest()).collect();
        let init = self.init.as_ref().map(PlannedInit::manifest);
        self.hash_of(&containers, init.as_ref())
    }

    /// [`Plan::hash`] for the manifests of the plan's containers.
    pub(super) fn hash_of<'s>(
        &self,
        containers: impl IntoIterator<Item = &'s Value>,
        init: Option<&'s Value>,
    ) -> String {
        let injected = Injected {
            application_url: self.application_url(),
            containers: containers.into_iter().map(Canonical).collect(),
            image_pull_secrets: &self.image_pull_secrets,
            init: init.map(Canonical),
        };
        let digest = Sha256::new().chain_update(FORMAT).chain_update(json(&injected)).finalize();
        format!("sha256:{digest:x}")
    }
}

/// Texts, lists and maps by text: nothing that could fail.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// JSON with the members of every object sorted. serde_json sorts them only while no crate in
/// the build asks it to keep their order.
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
