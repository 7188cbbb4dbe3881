//! The status annotation.

use std::collections::BTreeSet;

use lucid_text::json::to_string;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{Originals, added::Added};
use crate::{plan::Plan, template::Filled};

/// Format version, part of the hash input: change it whenever the hashed content changes.
const FORMAT: &[u8] = b"lucid plan 3\n";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'s> {
    added: &'s BTreeSet<String>,
    chain: Vec<&'s str>,
    #[serde(skip_serializing_if = "Originals::is_empty")]
    hardened: &'s Originals,
    images: Vec<&'s str>,
    init: Option<&'s str>,
    plan_hash: &'s str,
    version: &'static str,
}

impl Plan {
    /// Returns the value of the annotation [`keys::STATUS`](crate::keys::STATUS).
    pub(super) fn status(&self, hash: &str, added: &Added, originals: &Originals) -> String {
        to_string(&Status {
            added: added.pointers(),
            chain: self.containers.iter().map(|planned| planned.name.as_str()).collect(),
            hardened: originals,
            images: self.containers.iter().map(|planned| planned.auditor.image()).collect(),
            init: self.init.as_ref().map(|init| init.name.as_str()),
            plan_hash: hash,
            version: env!("CARGO_PKG_VERSION"),
        })
    }

    /// Returns the SHA-256 of what the plan adds to the pod, as `sha256:` and 64 hexadecimal digits, from the auditors
    /// and the init container. Equal plans have equal hashes in every process and on every machine.
    pub(super) fn hash<'f, 't: 'f>(&self, filled: impl Iterator<Item = &'f Filled<'t>>) -> String {
        let (lengths, secrets) = ((self.containers.len(), self.init.is_some()), &self.image_pull_secrets);
        let urls = (self.application_url(), self.base_url());
        let mut hash = Sha256::new_with_prefix(FORMAT).chain_update(to_string(&(lengths, urls, secrets)));
        filled.for_each(|filled| filled.hash(&mut hash));
        format!("sha256:{:x}", hash.finalize())
    }
}
