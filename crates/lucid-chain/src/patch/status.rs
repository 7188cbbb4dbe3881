//! The status annotation.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::added::Added;
use crate::plan::{Plan, PlannedInit};

/// Goes into the hash, so that a change of what is hashed changes every hash.
const FORMAT: &[u8] = b"lucid plan 2\n";

impl Plan {
    /// The value of the annotation [`keys::STATUS`](crate::keys::STATUS): one JSON object with
    /// the version of Lucid, the chain's container names and images, the init container, [`Plan::hash`], and what was
    /// added besides.
    pub(super) fn status(&self, added: &Added) -> String {
        let chain: Vec<_> = self.containers.iter().map(|planned| &planned.name).collect();
        let images: Vec<_> = self.containers.iter().map(|planned| planned.image()).collect();
        canonical(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "chain": chain,
            "images": images,
            "init": self.init.as_ref().map(|init| &init.name),
            "planHash": self.hash(),
            "added": added.pointers(),
        }))
    }

    /// SHA-256 over what the plan puts into the pod, as `sha256:` and 64 hexadecimal digits. It
    /// is the same for the same plan in every process and on every machine.
    pub fn hash(&self) -> String {
        let containers: Vec<_> = self.containers.iter().map(|planned| planned.manifest()).collect();
        let injected = json!({
            "containers": containers,
            "init": self.init.as_ref().map(PlannedInit::manifest),
            "applicationUrl": self.application_url(),
            "imagePullSecrets": self.image_pull_secrets,
        });
        let digest = Sha256::new().chain_update(FORMAT).chain_update(canonical(&injected)).finalize();
        format!("sha256:{digest:x}")
    }
}

/// JSON with the members of every object sorted. serde_json sorts them only while no crate in
/// the build asks it to keep their order.
fn canonical(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| key.as_str());
            let members: Vec<_> = members
                .into_iter()
                .map(|(key, value)| format!("{}:{}", json!(key), canonical(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        scalar => scalar.to_string(),
    }
}
