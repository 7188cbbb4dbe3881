//! The auditors that are known, and how they are called.
//!
//! This is the only module that uses `serde_yaml`.

mod fields;
mod nearest;
mod yaml;

use std::{collections::BTreeMap, num::NonZeroU16};

use crate::port;

pub use nearest::UnknownAuditor;
pub use yaml::CatalogueError;

/// The port of a catalogue entry that names none.
pub const DEFAULT_PORT: NonZeroU16 = port::known(8080);

/// Environment variables that Lucid sets on every auditor; a catalogue may not set them.
pub const RESERVED_ENV: [&str; 6] =
    ["LUCID_AUDITOR_ID", "LUCID_CHAIN_NEXT", "AUDITOR_URL", "LUCID_AUDITOR_PORT", "PORT", "LUCID_AUDIT_MODE"];

/// An ordered list of auditors, no two of which mean the same.
///
/// The prefix `lucid-` and the suffix `-auditor` of a name may be left out:
/// `lucid-injection-auditor`, `injection-auditor` and `injection` mean the same auditor.
///
/// ```
/// let catalogue = lucid_chain::Catalogue::parse(
///     "auditors.yaml",
///     "chain:
///        - name: lucid-pii-auditor
///          image: registry.example/pii:1.0
///          port: 9000
///     ",
/// )?;
/// assert_eq!(catalogue.resolve("pii")?.name(), "lucid-pii-auditor");
///
/// let everything = lucid_chain::Catalogue::builtin().overlay(&catalogue);
/// assert_eq!(everything.auditors().len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    auditors: Vec<Auditor>,
}

impl Catalogue {
    /// The catalogue that is there without any configuration: `lucid-guardrails-auditor` (8090),
    /// `lucid-injection-auditor` (8090) and `lucid-toxicity-auditor` (8093), with the images
    /// `ghcr.io/lucid/<name>:latest`.
    pub fn builtin() -> Self {
        let auditor = |name: &str, description: &str, number: u16| Auditor {
            name: name.to_owned(),
            description: description.to_owned(),
            image: format!("ghcr.io/lucid/{name}:latest"),
            port: port::known(number),
            env: BTreeMap::new(),
            labels: BTreeMap::new(),
            resources: Resources::default(),
        };
        Self {
            auditors: vec![
                auditor("lucid-guardrails-auditor", "Applies general guardrails", 8090),
                auditor("lucid-injection-auditor", "Detects prompt injection", 8090),
                auditor("lucid-toxicity-auditor", "Detects toxic language", 8093),
            ],
        }
    }

    /// Reads an `auditors.yaml`. `origin` says in messages where the text comes from.
    ///
    /// # Errors
    /// [`CatalogueError`], with the line, for anything the file gets wrong; such a file is
    /// refused whole.
    pub fn parse(origin: &str, yaml: &str) -> Result<Self, CatalogueError> {
        yaml::read(origin, yaml).map(|auditors| Self { auditors })
    }

    /// The auditors in the order they were written.
    pub fn auditors(&self) -> &[Auditor] {
        &self.auditors
    }

    /// This catalogue with the entries of `other` in place of those that mean the same, and its
    /// further entries at the end.
    pub fn overlay(&self, other: &Self) -> Self {
        let mut auditors = self.auditors.clone();
        for entry in &other.auditors {
            match auditors.iter_mut().find(|known| stem(&known.name) == stem(&entry.name)) {
                Some(known) => known.clone_from(entry),
                None => auditors.push(entry.clone()),
            }
        }
        Self { auditors }
    }

    /// The auditor that `name` means, white space around it aside.
    ///
    /// # Errors
    /// [`UnknownAuditor`] with the nearest known name and all known ones.
    pub fn resolve(&self, name: &str) -> Result<&Auditor, UnknownAuditor> {
        let name = name.trim();
        self.auditors
            .iter()
            .find(|auditor| stem(&auditor.name) == stem(name))
            .ok_or_else(|| UnknownAuditor::new(name, &self.auditors))
    }
}

/// One entry of a catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auditor {
    name: String,
    description: String,
    image: String,
    port: NonZeroU16,
    env: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    resources: Resources,
}

impl Auditor {
    /// The full name, a DNS label (RFC 1123).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the auditor does, in words.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The image reference as written.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// The port the auditor listens on while that port is free in the pod.
    pub fn port(&self) -> NonZeroU16 {
        self.port
    }

    /// Environment variables for the container, besides [`RESERVED_ENV`].
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// Labels of the catalogue entry. They describe the auditor and never reach a pod.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// Resources of the container.
    pub fn resources(&self) -> &Resources {
        &self.resources
    }
}

/// `resources` of a container: quantities by resource name, such as `memory: 128Mi`.
///
/// The default is what a catalogue entry without `resources` gets: requests of 128Mi and 100m,
/// limits of 256Mi and 500m.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// What the scheduler reserves.
    pub requests: BTreeMap<String, String>,
    /// What the container may use at most.
    pub limits: BTreeMap<String, String>,
}

impl Default for Resources {
    fn default() -> Self {
        let quantities = |cpu: &str, memory: &str| {
            BTreeMap::from([("cpu".to_owned(), cpu.to_owned()), ("memory".to_owned(), memory.to_owned())])
        };
        Self { requests: quantities("100m", "128Mi"), limits: quantities("500m", "256Mi") }
    }
}

/// What two names have in common when they mean the same auditor.
fn stem(name: &str) -> &str {
    let name = name.strip_prefix("lucid-").unwrap_or(name);
    name.strip_suffix("-auditor").unwrap_or(name)
}
