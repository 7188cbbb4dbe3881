//! Catalogues of auditors. No other module of this crate uses `serde_yaml`.

mod auditor;
mod defaults;
mod entry;
mod env;
mod files;
mod nearest;
mod preceding;
mod probes;
mod resources;
mod scalars;
mod schema;
mod security_context;
mod yaml;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
    sync::{Arc, LazyLock},
};

use lucid_notary::ImageReference;

use auditor::Entry;
use entry::{File, WrittenEntry};
use yaml::Problem;

use crate::{
    error::Error,
    keys::{self, EGRESS_CONTAINER, INIT_CONTAINER},
    port,
};

pub use auditor::Auditor;
pub(crate) use defaults::Defaults;
pub(crate) use env::EnvValue;
pub(crate) use files::Files;
pub(crate) use probes::{Probe, Probes};
pub(crate) use resources::Resources;
pub(crate) use security_context::SecurityContext;

pub(crate) const DEFAULT_INIT_IMAGE: &str = concat!("ghcr.io/lucid/lucid-init:", env!("CARGO_PKG_VERSION"));

const DEFAULT_PORT: NonZeroU16 = port::known(8080);

/// Environment variables that Lucid sets on every auditor and that a catalogue may not set.
pub const RESERVED_ENV: [&str; 11] = [
    keys::AUDITOR_ID_ENV,
    keys::CHAIN_NEXT_ENV,
    keys::AUDITOR_URL_ENV,
    keys::AUDITOR_PORT_ENV,
    keys::PORT_ENV,
    keys::AUDIT_MODE_ENV,
    keys::AUDIT_FAILURE_ENV,
    keys::AUDIT_TIMEOUT_ENV,
    keys::PROBE_PATHS_ENV,
    keys::ROUTES_ENV,
    keys::EGRESS_ENV,
];

/// Number of the first of [`RESERVED_ENV`] that every auditor has.
pub(crate) const OWN_ENV: usize = 6;

/// An ordered list of auditors with unique names. Cheap to clone, with indexed lookups.
///
/// Names are equivalent if they differ only in the optional prefix `lucid-` and the optional suffix `-auditor`:
/// `lucid-injection-auditor`, `injection-auditor` and `injection` refer to the same auditor.
///
/// ```
/// let catalogue = lucid_chain::Catalogue::parse(
///     "auditors.yaml",
///     "chain:
///        - name: lucid-topics-auditor
///          image: registry.example/topics:1.0
///          port: 9000
///     ",
/// )?;
/// assert_eq!(catalogue.resolve("topics")?.name(), "lucid-topics-auditor");
///
/// let everything = lucid_chain::Catalogue::builtin().overlay(&catalogue);
/// assert_eq!(everything.auditors().len(), 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue(Arc<Entries>);

#[derive(Debug)]
struct Entries {
    auditors: Vec<Auditor>,
    /// Entry called [`EGRESS_CONTAINER`], which chains cannot name.
    egress: Option<Auditor>,
    /// Entry called [`INIT_CONTAINER`], of which only the resources are used.
    init: Option<Auditor>,
    defaults: Defaults,
    index: Index,
    /// Catalogue below an [overlay](Catalogue::overlay), whose index is valid for the entries that were not replaced.
    /// Sharing it saves memory in clusters with thousands of namespace catalogues.
    base: Option<Catalogue>,
    /// `true` if only the default image of `egress` differs from that in `base`.
    has_egress_image: bool,
}

#[derive(Debug, Default)]
struct Index {
    by_stem: BTreeMap<String, usize>,
    /// By [`ImageReference::normalized_name`] of the image; positions in ascending order.
    by_repository: BTreeMap<String, Vec<usize>>,
}

impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        self.auditors == other.auditors
            && self.egress == other.egress
            && self.init == other.init
            && self.defaults == other.defaults
    }
}

impl Eq for Entries {}

impl Index {
    fn from_entries<'a>(entries: impl IntoIterator<Item = (usize, &'a Auditor)>) -> Self {
        let mut index = Self::default();
        for (place, auditor) in entries {
            index.by_stem.insert(stem(auditor.name()).to_owned(), place);
            index.by_repository.entry(auditor.image_reference().normalized_name()).or_default().push(place);
        }
        index
    }
}

static BUILTIN: LazyLock<Catalogue> = LazyLock::new(|| {
    let auditors = [
        ("lucid-guardrails-auditor", "Applies general guardrails", 8090),
        ("lucid-injection-auditor", "Detects prompt injection", 8090),
        ("lucid-toxicity-auditor", "Detects toxic language", 8093),
        ("lucid-pii-auditor", "Finds personal data and secrets", 8096),
        (EGRESS_CONTAINER, "Forwards outbound traffic to its destination", 8096),
        (INIT_CONTAINER, "Installs the network rules", 8096),
    ];
    let entry = |(name, description, number): (&str, &str, u16)| {
        // The plan and the program must be of the same release.
        let tag = if name == EGRESS_CONTAINER { env!("CARGO_PKG_VERSION") } else { "latest" };
        let (image, resources) = match name {
            INIT_CONTAINER => {
                (DEFAULT_INIT_IMAGE.to_owned(), Resources::new(["100m", "500m"], ["32Mi", "64Mi"]))
            }
            _ => (format!("ghcr.io/lucid/{name}:{tag}"), Resources::default()),
        };
        Some(Auditor::from(Entry {
            name: name.to_owned(),
            description: description.to_owned(),
            // These references are well-formed.
            reference: image.parse().ok()?,
            image,
            port: port::known(number),
            has_own_port: false,
            env: BTreeMap::new(),
            files: Vec::new(),
            labels: BTreeMap::new(),
            resources,
            has_own_resources: false,
            probes: Probes::default(),
            security_context: SecurityContext::default(),
            service_account_token: false,
            serves_routes: name != EGRESS_CONTAINER,
        }))
    };
    Catalogue::new(auditors.into_iter().filter_map(entry).collect(), Defaults::default())
});

impl Catalogue {
    /// Creates a catalogue. The names in `auditors` must not be equivalent.
    fn new(mut auditors: Vec<Auditor>, defaults: Defaults) -> Self {
        let egress = auditors.extract_if(.., |auditor| is_egress(auditor.name())).last();
        let init = auditors.extract_if(.., |auditor| is_init(auditor.name())).last();
        let index = Index::from_entries(auditors.iter().enumerate());
        let (base, has_egress_image) = (None, false);
        Self(Arc::new(Entries { auditors, egress, init, defaults, index, base, has_egress_image }))
    }

    /// Returns the built-in catalogue: `lucid-guardrails-auditor` (8090), `lucid-injection-auditor` (8090),
    /// `lucid-toxicity-auditor` (8093) and `lucid-pii-auditor` (8096), with the images `ghcr.io/lucid/<name>:latest`.
    pub fn builtin() -> Self {
        BUILTIN.clone()
    }

    /// Parses an `auditors.yaml`. `origin` names the source of the text in error messages.
    ///
    /// `chain` is a list of entries, which require `name` and `image`. An entry whose name is equivalent to that of a
    /// [built-in](Self::builtin) one inherits the keys that it omits. `defaults` holds default settings; a file with
    /// `defaults` may omit `chain`. docs/auditors-yaml.md in the repository is the reference of all keys, defaults
    /// and limits.
    ///
    /// ```
    /// use lucid_chain::Catalogue;
    ///
    /// let catalogue = Catalogue::parse(
    ///     "auditors.yaml",
    ///     r#"
    /// chain:
    ///   - name: topics
    ///     description: Blocks topics
    ///     image: registry.example/topics:1.0
    ///     port: 9000                         # 8080 by default
    ///     env: {THRESHOLD: "0.8"}
    ///     labels: {tier: core}
    ///     resources: {limits: {memory: 1Gi}}
    ///     probes:
    ///       readiness: {}                    # GET /health on the auditor's port in the pod
    ///       startup: {failureThreshold: 300}
    ///     securityContext: {runAsGroup: 30000}
    /// defaults:
    ///   audit-mode: observe
    /// "#,
    /// )?;
    /// assert_eq!(catalogue.auditors()[0].port().get(), 9000);
    /// assert_eq!(catalogue.defaults()["audit-mode"], "observe");
    ///
    /// let error = Catalogue::parse("auditors.yaml", "chain:\n- name: topics\n  image: topics\n  port: 0\n").unwrap_err();
    /// assert_eq!(error.to_string(), "auditors.yaml: line 4, column 9: chain[0].port: expected 1 to 65535, found 0");
    /// # Ok::<(), lucid_chain::Error>(())
    /// ```
    ///
    /// The size is limited, because the text may come from any user who can write a ConfigMap: 128 KiB of text and
    /// 128 entries; per entry 16 KiB after resolving aliases, 64 members in each map or list, and 4 KiB in each
    /// value.
    ///
    /// # Errors
    /// Returns [`Error`], with the line, if the syntax is invalid, a key is unknown or occurs twice, a value
    /// is out of bounds, entries have equivalent names, or an entry would loosen the
    /// `securityContext`. There are no partial results.
    pub fn parse(origin: &str, yaml: &str) -> Result<Self, Error> {
        Self::parse_over(origin, yaml, &BUILTIN)
    }

    /// Parses an `auditors.yaml` whose entries inherit omitted keys from the entries of `base` with equivalent names.
    pub(crate) fn parse_over(origin: &str, yaml: &str, base: &Self) -> Result<Self, Error> {
        let file = yaml::read(yaml, &entry::FILE, entry::MISSING_CHAIN, base);
        let File { chain, defaults } = file.map_err(|problem| problem.in_file(origin))?;
        let auditors = chain.into_iter().map(|entry| entry.over(base)).collect::<Result<_, _>>();
        let auditors = auditors.map_err(|problem| Problem::new(problem).in_file(origin))?;
        Ok(Self::new(auditors, defaults))
    }

    /// Parses a single entry in YAML or JSON, within the limits of [`parse`](Self::parse). For entries from other
    /// sources, such as a custom resource.
    ///
    /// ```
    /// let entry = r#"{"name": "topics", "image": "registry.example/topics:1.0"}"#;
    /// let auditor = lucid_chain::Catalogue::parse_entry(entry)?;
    /// assert_eq!(auditor.port().get(), 8080);
    /// # Ok::<(), lucid_chain::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`parse`](Self::parse), without origin and line.
    pub fn parse_entry(yaml: &str) -> Result<Auditor, Error> {
        let missing = "expected an auditor, found nothing";
        let entry = yaml::read::<WrittenEntry>(yaml, &entry::ENTRY, missing, &BUILTIN);
        entry.map_err(|problem| problem.text).and_then(|entry| entry.over(&BUILTIN)).map_err(Error::new)
    }

    /// Creates a catalogue of `auditors`, in order and without defaults. If several auditors have equivalent names,
    /// only the first is kept.
    pub fn from_auditors(auditors: impl IntoIterator<Item = Auditor>) -> Self {
        let mut seen = BTreeSet::new();
        let first = |auditor: &Auditor| seen.insert(stem(auditor.name()).to_owned());
        Self::new(auditors.into_iter().filter(first).collect(), Defaults::default())
    }

    /// Returns the auditors in their written order.
    pub fn auditors(&self) -> &[Auditor] {
        &self.0.auditors
    }

    /// Returns the default settings of the catalogue by their keys, as written in an `auditors.yaml`.
    pub fn defaults(&self) -> BTreeMap<&'static str, String> {
        self.0.defaults.texts()
    }

    pub(crate) fn typed_defaults(&self) -> &Defaults {
        &self.0.defaults
    }

    /// Returns this catalogue overlaid with `other`, whose entries replace equivalent ones or are appended, and whose
    /// [`defaults`](Self::defaults) take precedence.
    pub fn overlay(&self, other: &Self) -> Self {
        let mut auditors = self.auditors().to_vec();
        let mut places = Vec::new();
        for entry in other.auditors() {
            let place = self.place_of_stem(stem(entry.name())).unwrap_or(auditors.len());
            match auditors.get_mut(place) {
                Some(replaced) => replaced.clone_from(entry),
                None => auditors.push(entry.clone()),
            }
            places.push(place);
        }
        places.sort_unstable();
        let index = Index::from_entries(places.into_iter().map(|place| (place, &auditors[place])));
        let defaults = self.typed_defaults().clone().overlay(other.typed_defaults().clone());
        let egress = other.0.egress.clone().or_else(|| self.0.egress.clone());
        let init = other.0.init.clone().or_else(|| self.0.init.clone());
        let base = Some(self.clone());
        Self(Arc::new(Entries { auditors, egress, init, defaults, index, base, has_egress_image: false }))
    }

    /// Returns this catalogue without the auditors that `names` refer to.
    #[must_use]
    pub fn without<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: BTreeSet<_> = names.into_iter().map(stem).collect();
        if names.is_empty() {
            return self.clone();
        }
        let kept = self.auditors().iter().filter(|auditor| !names.contains(stem(auditor.name())));
        let egress = self.0.egress.iter().filter(|egress| !names.contains(stem(egress.name())));
        Self::new(kept.chain(egress).chain(&self.0.init).cloned().collect(), self.typed_defaults().clone())
    }

    /// Returns the auditor that `name` refers to, ignoring surrounding white space.
    ///
    /// # Errors
    /// Returns [`Error`], with the nearest and all known names, if there is no such auditor.
    pub fn resolve(&self, name: &str) -> Result<&Auditor, Error> {
        let name = name.trim();
        let found = self.place_of_stem(stem(name)).map(|place| &self.auditors()[place]);
        found.ok_or_else(|| nearest::unknown(name, self.auditors()))
    }

    /// Returns the first auditor whose image is in the same repository as `image`, regardless of tag and digest.
    pub fn auditor_of_image(&self, image: &ImageReference) -> Option<&Auditor> {
        let repository = image.normalized_name();
        let first = self.layers().filter_map(|layer| self.first_of_repository(layer, &repository)).min();
        let egress = || self.egress().filter(|it| it.image_reference().same_repository(image));
        first.map(|place| &self.auditors()[place]).or_else(egress)
    }

    /// Returns the position of the first entry of `layer` with this repository that no layer above has replaced.
    fn first_of_repository(&self, layer: &Entries, repository: &str) -> Option<usize> {
        let places = layer.index.by_repository.get(repository)?;
        places.iter().copied().find(|&place| self.auditors()[place].is_same(&layer.auditors[place]))
    }

    fn layers(&self) -> impl Iterator<Item = &Entries> {
        std::iter::successors(Some(&*self.0), |layer| layer.base.as_ref().map(|base| &*base.0))
    }

    fn place_of_stem(&self, stem: &str) -> Option<usize> {
        self.layers().find_map(|layer| layer.index.by_stem.get(stem).copied())
    }

    /// Returns the auditor of a container called `name`, which is the auditor's name or that name with a number
    /// (`lucid-toxicity-auditor-2`).
    pub fn auditor_of_container(&self, name: &str) -> Option<&Auditor> {
        let called = |name| self.find(name).filter(|auditor| auditor.name() == name);
        called(name).or_else(|| {
            let (bare, number) = name.rsplit_once('-')?;
            called(bare).filter(|_| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        })
    }

    /// Returns the entry of `lucid-egress`, the built-in one if this catalogue has none.
    pub fn egress(&self) -> Option<&Auditor> {
        self.0.egress.as_ref().or(BUILTIN.0.egress.as_ref())
    }

    /// Returns this catalogue with another default image of `lucid-egress`. An entry that names an image keeps it.
    #[must_use]
    pub fn with_egress_image(&self, image: &ImageReference) -> Self {
        if let (true, Some(base)) = (self.0.has_egress_image, &self.0.base) {
            return base.with_egress_image(image);
        }
        let default = BUILTIN.0.egress.as_ref().map(Auditor::image_reference);
        let Some(egress) = self.egress().filter(|it| Some(it.image_reference()) == default) else {
            return self.clone();
        };
        let egress = Some(egress.with_image(image));
        let (auditors, defaults) = (self.auditors().to_vec(), self.typed_defaults().clone());
        Self(Arc::new(Entries {
            auditors,
            egress,
            init: self.0.init.clone(),
            defaults,
            index: Index::default(),
            base: Some(self.clone()),
            has_egress_image: true,
        }))
    }

    pub(crate) fn init_resources(&self) -> Resources {
        let defaults = self.typed_defaults().resources.as_ref();
        let entry = self.init().map(|entry| entry.with_default_resources(defaults));
        entry.map(|entry| entry.resources().clone()).unwrap_or_default()
    }

    fn init(&self) -> Option<&Auditor> {
        self.0.init.as_ref().or(BUILTIN.0.init.as_ref())
    }

    fn base_of(&self, name: &str) -> Option<&Auditor> {
        if is_init(name) { self.init() } else { self.find(name) }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Auditor> {
        self.auditors().iter().chain(&self.0.egress)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Auditor> {
        if is_egress(name) {
            return self.egress();
        }
        self.place_of_stem(stem(name)).map(|place| &self.auditors()[place])
    }
}

fn is_egress(name: &str) -> bool {
    stem(name) == stem(EGRESS_CONTAINER)
}

fn is_init(name: &str) -> bool {
    stem(name) == stem(INIT_CONTAINER)
}

/// Returns the part of `name` that equivalent names share: the name without the prefix `lucid-` and the suffix
/// `-auditor`.
pub fn stem(name: &str) -> &str {
    let name = name.strip_prefix("lucid-").unwrap_or(name);
    name.strip_suffix("-auditor").unwrap_or(name)
}
