//! Entries of an `auditors.yaml`.

use std::{collections::BTreeMap, num::NonZeroU16};

use lucid_notary::{ImageReference, reference::ReferenceError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Auditor, Catalogue, DEFAULT_PORT, Defaults, EnvValue, Files, Probes, Resources, SecurityContext,
    auditor::Entry,
    defaults::{self, parsed},
    env, files,
    preceding::Preceding,
    probes, resources, scalars,
    schema::{Fields, Shape, TEXT},
    security_context,
};
use crate::{
    entry_policy::{EntryPolicy, Timeout},
    keys::INIT_CONTAINER,
    mode::{AuditMode, OnFailure},
};

pub(super) static FILE: Shape = Shape::Map(&Fields {
    keys: &[("chain", Shape::Entries(&ENTRY)), ("defaults", Shape::Map(&defaults::FIELDS))],
    refused: &[
        ("auditor", CHAIN),
        ("auditors", CHAIN),
        ("catalog", CHAIN),
        ("catalogue", CHAIN),
        ("containers", CHAIN),
        ("entries", CHAIN),
        ("guardrails", CHAIN),
        ("images", CHAIN),
        ("items", CHAIN),
        ("judges", CHAIN),
        ("list", CHAIN),
        ("sidecars", CHAIN),
        ("config", DEFAULTS),
        ("configuration", DEFAULTS),
        ("global", DEFAULTS),
        ("operator", DEFAULTS),
        ("options", DEFAULTS),
        ("settings", DEFAULTS),
        ("apiVersion", MANIFEST),
        ("data", MANIFEST),
        ("kind", MANIFEST),
        ("metadata", MANIFEST),
        ("spec", MANIFEST),
    ],
    finish: |file, _| match file.is_empty() {
        true => Err(MISSING_CHAIN.to_owned()),
        false => Ok(()),
    },
});

const CHAIN: &str = "did you mean chain?";
const DEFAULTS: &str = "did you mean defaults?";
const MANIFEST: &str = "the file is the text under `auditors.yaml` of a ConfigMap, not a manifest";

pub(super) const MISSING_CHAIN: &str = "`chain` is missing, expected a list of auditors";

pub(super) static ENTRY: Shape = Shape::Map(&Fields {
    keys: &[
        ("name", Shape::Unique(Preceding::name)),
        ("description", TEXT),
        ("image", Shape::Scalar(scalars::image)),
        ("port", Shape::Scalar(scalars::port)),
        ("env", Shape::Names(scalars::env_name, &Shape::NotNull(&Shape::TextOr(&Shape::Map(&env::FIELDS))))),
        ("files", Shape::List(&Shape::Map(&files::FIELDS))),
        ("labels", Shape::Names(scalars::text, &TEXT)),
        ("resources", Shape::Map(&resources::FIELDS)),
        ("probes", Shape::Map(&probes::FIELDS)),
        ("securityContext", Shape::Map(&security_context::FIELDS)),
        ("serviceAccountToken", Shape::Scalar(scalars::boolean)),
        ("routes", Shape::Scalar(scalars::boolean)),
        ("mode", Shape::Scalar(parsed::<AuditMode>)),
        ("failure", Shape::Scalar(parsed::<OnFailure>)),
        ("timeout", Shape::Scalar(parsed::<Timeout>)),
    ],
    refused: &[
        ("readinessProbe", "did you mean probes.readiness?"),
        ("livenessProbe", "did you mean probes.liveness?"),
        ("startupProbe", "did you mean probes.startup?"),
        ("containerPort", "did you mean port?"),
        ("volumeMounts", "did you mean files?"),
    ],
    finish: |entry, context| {
        check_init(entry)?;
        files::check(entry)?;
        context.preceding.borrow_mut().add(entry, context.base)
    },
});

/// Checks that an entry of lucid-init sets nothing but its resources: the operator's options set its image.
fn check_init(entry: &Map<String, Value>) -> Result<(), String> {
    let is_init = entry.get("name").and_then(Value::as_str).is_some_and(super::is_init);
    let expected = ["name", "description", "resources"];
    match entry.keys().find(|key| is_init && !expected.contains(&key.as_str())) {
        Some(key) => Err(format!("{INIT_CONTAINER}: expected only {}; found `{key}`", expected.join(", "))),
        None => Ok(()),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct File {
    pub(super) chain: Vec<WrittenEntry>,
    pub(super) defaults: Defaults,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WrittenEntry {
    name: String,
    description: Option<String>,
    image: Option<String>,
    port: Option<NonZeroU16>,
    env: Option<BTreeMap<String, EnvValue>>,
    files: Option<Vec<Files>>,
    labels: Option<BTreeMap<String, String>>,
    resources: Option<Resources>,
    probes: Option<Probes>,
    security_context: Option<SecurityContext>,
    service_account_token: Option<bool>,
    routes: Option<bool>,
    #[serde(flatten)]
    policy: EntryPolicy,
}

impl WrittenEntry {
    /// Returns the auditor, which inherits omitted keys from the entry of `base` with an equivalent name.
    pub(super) fn over(self, base: &Catalogue) -> Result<Auditor, String> {
        let base = base.base_of(&self.name);
        // The token is granted to an image, so an entry that sets an image does not inherit the grant.
        let token = self
            .service_account_token
            .unwrap_or_else(|| self.image.is_none() && base.is_some_and(Auditor::service_account_token));
        let image = or_inherited(self.image, base, Auditor::image);
        let reference: ImageReference = image.parse().map_err(|error: ReferenceError| error.to_string())?;
        // Serving routes is a property of the program, whose tag or digest may differ.
        let is_same = |base: &&Auditor| base.image_reference().same_repository(&reference);
        let serves_routes =
            self.routes.unwrap_or_else(|| base.filter(is_same).is_some_and(Auditor::serves_routes));
        let policy = self.policy.or(base.map(Auditor::policy).unwrap_or_default());
        let entry = Entry {
            reference,
            name: self.name,
            description: or_inherited(self.description, base, Auditor::description),
            image,
            has_own_port: self.port.is_some() || base.is_some_and(Auditor::has_own_port),
            port: self.port.or_else(|| Some(base?.port())).unwrap_or(DEFAULT_PORT),
            env: or_inherited(self.env, base, Auditor::env),
            files: or_inherited(self.files, base, Auditor::files),
            labels: or_inherited(self.labels, base, Auditor::labels),
            has_own_resources: self.resources.is_some() || base.is_some_and(Auditor::has_own_resources),
            resources: or_inherited(self.resources, base, Auditor::resources),
            probes: or_inherited(self.probes, base, Auditor::probes),
            security_context: or_inherited(self.security_context, base, Auditor::security_context),
            service_account_token: token,
            serves_routes,
        };
        Ok(Auditor::from(entry).with_policy(policy))
    }
}

/// Returns the written value, the value of the base entry, or the default.
fn or_inherited<T: Default, B: ToOwned<Owned = T> + ?Sized>(
    written: Option<T>,
    base: Option<&Auditor>,
    of: impl FnOnce(&Auditor) -> &B,
) -> T {
    written.or_else(|| Some(of(base?).to_owned())).unwrap_or_default()
}
