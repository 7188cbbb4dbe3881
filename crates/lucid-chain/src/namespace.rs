//! Namespace chains, read from the ConfigMap `lucid-auditor-chain`.

use std::collections::BTreeMap;

use lucid_notary::{ImagePattern, ImageReference};
use lucid_text::{Excerpt, Line};

use crate::{
    catalogue::{Auditor, Catalogue, Files},
    chain,
    egress::Upstream,
    error::Error,
    keys,
    mode::{OtherPorts, PodChoices, requires_chain},
    pod_security::PodSecurity,
    uid_range::UidRange,
};

/// Image repositories from which a namespace may run auditors of its own; none by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditorImages(Option<Vec<ImagePattern>>);

impl AuditorImages {
    const NONE: Self = Self(Some(Vec::new()));

    /// Parses patterns separated by commas or spaces, such as `ghcr.io/acme, registry.example/team`. If the list is
    /// invalid, no repository is allowed and the problem is returned.
    fn from_annotations(annotations: &BTreeMap<String, String>) -> (Self, Option<String>) {
        let list = annotations.get(keys::AUDITOR_IMAGES).map_or("", String::as_str);
        let items = list.split(|it: char| it == ',' || it.is_whitespace()).filter(|item| !item.is_empty());
        match items.map(str::parse).collect() {
            Ok(patterns) => (Self(Some(patterns)), None),
            Err(error) => {
                let error: lucid_notary::ImagePatternError = error;
                let problem = Line(&error.to_string()).to_string();
                let problem = format!("{}: {problem}; no own images are allowed", keys::AUDITOR_IMAGES);
                (Self::NONE, Some(problem))
            }
        }
    }

    fn allow(&self, image: &ImageReference) -> bool {
        self.0.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(image)))
    }
}

/// Settings of a namespace for its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespaceSettings {
    /// `true` if the namespace requires a chain for every pod ([`keys::REQUIRE_CHAIN`]).
    pub requires_chain: bool,
    /// Pod annotations that take effect ([`keys::POD_CHOICES`]).
    pub pod_choices: PodChoices,
    /// `true` if the namespace has the catalogue revision `canary` ([`keys::REVISION_LABEL`]).
    pub is_canary: bool,
    pub(crate) pod_security: PodSecurity,
    pub(crate) upstream: Option<Upstream>,
    /// Minimum for the pods ([`keys::OTHER_PORTS`]).
    pub(crate) other_ports: OtherPorts,
    pub(crate) uid_range: Option<UidRange>,
    auditor_images: AuditorImages,
    problems: Vec<String>,
}

impl NamespaceSettings {
    pub(crate) const UNSET: Self = Self {
        requires_chain: false,
        pod_choices: PodChoices::Unset,
        is_canary: false,
        pod_security: PodSecurity::Privileged,
        upstream: None,
        other_ports: OtherPorts::Open,
        uid_range: None,
        auditor_images: AuditorImages::NONE,
        problems: Vec::new(),
    };

    /// Reads the settings from the labels and annotations of a namespace. An invalid value has its strictest
    /// interpretation; an invalid upstream, range of user IDs or catalogue revision is ignored.
    pub fn new(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> Self {
        let (pod_choices, of_choices) = PodChoices::from_namespace(labels, annotations);
        let (auditor_images, of_images) = AuditorImages::from_annotations(annotations);
        let (upstream, of_upstream) = Upstream::from_annotations(annotations);
        let (other_ports, of_ports) = OtherPorts::from_annotations(annotations);
        let (uid_range, of_range) = UidRange::from_annotations(annotations);
        let revision = labels.get(keys::REVISION_LABEL);
        let is_canary = revision.is_some_and(|revision| revision == keys::CANARY);
        let of_revision = revision.filter(|_| !is_canary).map(|found| {
            let (key, expected, ordinary) = (keys::REVISION_LABEL, keys::CANARY, keys::CATALOGUE_CONFIG_MAP);
            format!("{key}: expected \"{expected}\", found {}; {ordinary} applies", Excerpt(found))
        });
        let problems = [of_choices, of_images, of_upstream, of_ports, of_range, of_revision];
        let problems = problems.into_iter().flatten().collect();
        Self {
            requires_chain: requires_chain(labels, annotations),
            pod_choices,
            is_canary,
            pod_security: PodSecurity::from_labels(labels),
            upstream,
            other_ports,
            uid_range,
            auditor_images,
            problems,
        }
    }

    /// Lets the auditors of the namespace have any image, for a ConfigMap that the administrator manages.
    #[must_use]
    pub fn with_any_auditor_image(self) -> Self {
        Self { auditor_images: AuditorImages(None), ..self }
    }

    /// Returns `true` if both allow the same images for the auditors of the namespace.
    pub fn allows_same_images(&self, other: &Self) -> bool {
        self.auditor_images == other.auditor_images
    }

    /// Returns the invalid values, each with its key.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns `true` if OpenShift sets the user IDs of containers without one.
    pub fn sets_uids(&self) -> bool {
        self.uid_range.is_some()
    }
}

impl Default for NamespaceSettings {
    fn default() -> Self {
        Self::UNSET
    }
}

/// The chain of one namespace, and the catalogue that applies in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceChain {
    catalogue: Catalogue,
    chain: Vec<Auditor>,
}

impl NamespaceChain {
    /// Parses the `data` of the ConfigMap.
    ///
    /// The key `chain` holds entries as in [`keys::AUDITOR_CHAIN`], separated by commas. The key `auditors.yaml` holds a catalogue, whose
    /// entries and defaults take precedence over those of `cluster` in this namespace. Without the key `chain`, the
    /// chain is the list of its entries, if any.
    ///
    /// An entry inherits omitted keys from the entry of `cluster` with an equivalent name. Image, environment, files
    /// and security context must equal those of `cluster`, unless [`keys::AUDITOR_IMAGES`] in `settings` allows the
    /// entry's image and those of its files.
    ///
    /// # Errors
    /// Returns [`Error`] if neither key is present, a value is invalid, or an entry is not allowed.
    pub fn from_data(
        namespace: &str,
        data: &BTreeMap<String, String>,
        cluster: &Catalogue,
        settings: &NamespaceSettings,
    ) -> Result<Self, Error> {
        let images = &settings.auditor_images;
        let config_map = format!("ConfigMap {namespace}/{}", keys::NAMESPACE_CONFIG_MAP);
        let invalid = |problem: String| Error::new(format!("{config_map}{problem}"));
        let origin = format!("{config_map}, {}", keys::CATALOGUE_KEY);
        let own = data.get(keys::CATALOGUE_KEY).map(|yaml| Catalogue::parse_over(&origin, yaml, cluster));
        let own = own.transpose()?;
        for entry in own.iter().flat_map(Catalogue::entries) {
            let of_entry =
                |problem| invalid(format!(", {}: auditor {}: {problem}", keys::CATALOGUE_KEY, entry.name()));
            let base = cluster.find(entry.name());
            let difference = entry.code_difference(base);
            let is_granted = difference.is_none() && base.is_some_and(Auditor::service_account_token);
            if entry.service_account_token() && !is_granted {
                return Err(of_entry(
                    "expected serviceAccountToken: false, found true: only the catalogue of the cluster grants the token"
                        .to_owned(),
                ));
            }
            // An image that the cluster's entry mounts does not need permission.
            let of_cluster =
                |image| base.is_some_and(|base| base.files().iter().any(|it| it.image() == Some(image)));
            let mounted = entry.files().iter().filter_map(Files::image).filter(|image| !of_cluster(image));
            let may_mount = |image: &str| image.parse().is_ok_and(|image| images.allow(&image));
            let key = match difference {
                Some(key) if !images.allow(entry.image_reference()) => Some(key),
                _ => mounted.into_iter().any(|image| !may_mount(image)).then_some("files"),
            };
            if let Some(key) = key {
                return Err(of_entry(format!(
                    "a namespace cannot set {key}: expected the {key} of the cluster's catalogue, or an image that the \
                     namespace's annotation {} allows",
                    keys::AUDITOR_IMAGES
                )));
            }
        }
        let catalogue = own.as_ref().map_or_else(|| cluster.clone(), |own| cluster.overlay(own));
        let (key, chain) = match (data.get(keys::CHAIN_KEY), &own) {
            (Some(names), _) => (keys::CHAIN_KEY, chain::parse(&catalogue, names)),
            (None, Some(own)) if own.auditors().is_empty() => (keys::CATALOGUE_KEY, Ok(Vec::new())),
            (None, Some(own)) => {
                let names = own.auditors().iter().map(Auditor::name);
                (keys::CATALOGUE_KEY, chain::resolve(&catalogue, names))
            }
            (None, None) => {
                let found = data.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                let found = match found.is_empty() {
                    true => "no data".to_owned(),
                    false => format!("only the keys {}", Excerpt(&found)),
                };
                let expected = format!("the key {} or {}", keys::CHAIN_KEY, keys::CATALOGUE_KEY);
                return Err(invalid(format!(": expected {expected}, found {found}")));
            }
        };
        let chain = chain.map_err(|problem| invalid(format!(", {key}: {problem}")))?;
        Ok(Self { catalogue, chain })
    }

    /// Returns the cluster's catalogue overlaid with the namespace's entries.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Returns the auditors in chain order; empty if the namespace sets only defaults.
    pub fn chain(&self) -> &[Auditor] {
        &self.chain
    }
}
