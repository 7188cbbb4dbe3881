//! Catalogue entries.

use std::{
    collections::BTreeMap,
    num::NonZeroU16,
    sync::{Arc, OnceLock},
};

use lucid_notary::ImageReference;
use lucid_text::json::to_string;
use serde_json::Value;

use super::{EnvValue, Files, OWN_ENV, Probes, RESERVED_ENV, Resources, SecurityContext};
use crate::{
    entry_policy::EntryPolicy,
    template::{PLACE, Template},
    volume,
};

/// An entry of a catalogue. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Auditor {
    shared: Arc<(Entry, OnceLock<Template>)>,
    resources: Option<Arc<Resources>>,
    policy: EntryPolicy,
}

impl PartialEq for Auditor {
    fn eq(&self, other: &Self) -> bool {
        self.entry() == other.entry() && self.resources == other.resources && self.policy == other.policy
    }
}

impl Eq for Auditor {}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) image: String,
    pub(super) reference: ImageReference,
    pub(super) port: NonZeroU16,
    /// `false` if the port is that of the built-in catalogue or the default.
    pub(super) has_own_port: bool,
    pub(super) env: BTreeMap<String, EnvValue>,
    pub(super) files: Vec<Files>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) resources: Resources,
    /// `false` if the resources are built in.
    pub(super) has_own_resources: bool,
    pub(super) probes: Probes,
    pub(super) security_context: SecurityContext,
    pub(super) service_account_token: bool,
    pub(super) serves_routes: bool,
}

impl From<Entry> for Auditor {
    fn from(entry: Entry) -> Self {
        Self { shared: Arc::new((entry, OnceLock::new())), resources: None, policy: EntryPolicy::default() }
    }
}

impl Auditor {
    fn entry(&self) -> &Entry {
        &self.shared.0
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the container of the auditor, rendered once. Its places, in order: the values of the first
    /// [`OWN_ENV`] of [`RESERVED_ENV`], further variables, the member `livenessProbe`, name, port, further ports, the
    /// member `readinessProbe`, resources, and the members `restartPolicy`, `runAsUser` and `startupProbe`.
    pub(crate) fn template(&self) -> &Template {
        let (entry, template) = &*self.shared;
        template.get_or_init(|| {
            let env: String = entry.env.iter().map(|(name, value)| format!(",{}", value.variable(name))).collect();
            let own = RESERVED_ENV.iter().take(OWN_ENV);
            let own = own.map(|name| format!("{{\"name\":\"{name}\",\"value\":{PLACE}}}")).collect::<Vec<_>>().join(",");
            let image = to_string(&entry.image);
            let pull_policy = entry.reference.pull_policy();
            // A quote within a string would be escaped.
            let security_context = to_string(&entry.security_context.manifest(Some(0)));
            let security_context = security_context.replacen("\"runAsUser\":0,", &PLACE.to_string(), 1);
            let no_token = (!entry.service_account_token).then(|| volume::NO_TOKEN_MOUNT.to_owned());
            let mounts: Vec<_> = no_token.into_iter().chain(entry.files.iter().map(Files::mount)).collect();
            let mounts = match mounts.is_empty() {
                true => String::new(),
                false => format!(",\"volumeMounts\":[{}]", mounts.join(",")),
            };
            Template::new(format!(
                "{{\"env\":[{own}{PLACE}{env}],\"image\":{image},\"imagePullPolicy\":\"{pull_policy}\",{PLACE}\"name\":{PLACE},\
                 \"ports\":[{{\"containerPort\":{PLACE}}}{PLACE}],{PLACE}\"resources\":{PLACE},{PLACE}\"securityContext\":{security_context},{PLACE}\
                 \"terminationMessagePath\":\"/dev/termination-log\",\"terminationMessagePolicy\":\"File\"{mounts}}}"
            ))
        })
    }

    /// Returns the full name, a DNS label (RFC 1123).
    pub fn name(&self) -> &str {
        &self.entry().name
    }

    /// Returns the description for users.
    pub fn description(&self) -> &str {
        &self.entry().description
    }

    /// Returns the image reference as written.
    pub fn image(&self) -> &str {
        &self.entry().image
    }

    pub(crate) fn image_reference(&self) -> &ImageReference {
        &self.entry().reference
    }

    pub(super) fn with_image(&self, image: &ImageReference) -> Self {
        Self::from(Entry { image: image.to_string(), reference: image.clone(), ..self.entry().clone() })
    }

    /// Returns the preferred port, which the auditor uses unless it is taken in the pod.
    pub fn port(&self) -> NonZeroU16 {
        self.entry().port
    }

    pub(crate) fn has_own_port(&self) -> bool {
        self.entry().has_own_port
    }

    /// Returns the environment variables that the catalogue sets, besides [`RESERVED_ENV`](super::RESERVED_ENV).
    pub(crate) fn env(&self) -> &BTreeMap<String, EnvValue> {
        &self.entry().env
    }

    /// Iterates over the core/v1 variables that the catalogue sets.
    pub fn variables(&self) -> impl Iterator<Item = Value> {
        self.env().iter().map(|(name, value)| serde_json::from_str(&value.variable(name)).unwrap_or_default())
    }

    /// Iterates over the core/v1 volumes with the files that the container mounts, including API server defaults.
    pub fn volumes(&self) -> impl Iterator<Item = Value> {
        self.files().iter().map(|files| serde_json::from_str(files.volume_json()).unwrap_or_default())
    }

    pub(crate) fn files(&self) -> &[Files] {
        &self.entry().files
    }

    /// Returns the labels of the entry. They describe the auditor and are not added to pods.
    pub(super) fn labels(&self) -> &BTreeMap<String, String> {
        &self.entry().labels
    }

    /// Without resources of its own, the entry has built-in ones, over which [`Defaults`](super::Defaults) take
    /// precedence.
    pub(crate) fn resources(&self) -> &Resources {
        self.resources.as_deref().unwrap_or(&self.entry().resources)
    }

    pub(super) fn has_own_resources(&self) -> bool {
        self.entry().has_own_resources
    }

    pub(crate) fn with_default_resources(&self, resources: Option<&Resources>) -> Self {
        let resources = resources.filter(|_| !self.has_own_resources()).cloned().map(Arc::new);
        Self { resources: resources.or_else(|| self.resources.clone()), ..self.clone() }
    }

    /// Returns the settings for this auditor alone.
    pub(crate) fn policy(&self) -> EntryPolicy {
        self.policy
    }

    /// Returns the auditor with the settings of `policy`, which take precedence over its own.
    pub(crate) fn with_policy(&self, policy: EntryPolicy) -> Self {
        Self { policy: policy.or(self.policy), ..self.clone() }
    }

    pub(crate) fn probes(&self) -> &Probes {
        &self.entry().probes
    }

    /// Returns `true` if the container may read the pod's ServiceAccount token.
    pub(crate) fn service_account_token(&self) -> bool {
        self.entry().service_account_token
    }

    /// Returns `true` if the program serves several model ports; see [`ROUTES_ENV`](crate::keys::ROUTES_ENV).
    pub(crate) fn serves_routes(&self) -> bool {
        self.entry().serves_routes
    }

    pub(crate) fn security_context(&self) -> &SecurityContext {
        &self.entry().security_context
    }

    /// Returns the first of the keys `image`, `env`, `files` and `securityContext` whose value differs from that in
    /// `base`; `image` without a base.
    pub(crate) fn code_difference(&self, base: Option<&Self>) -> Option<&'static str> {
        let Some(base) = base else { return Some("image") };
        let (own, base) = (self.entry(), base.entry());
        [
            (own.image != base.image, "image"),
            (own.env != base.env, "env"),
            (own.files != base.files, "files"),
            (own.security_context != base.security_context, "securityContext"),
        ]
        .into_iter()
        .find_map(|(differs, key)| differs.then_some(key))
    }
}
