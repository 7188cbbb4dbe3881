//! `lucid-operator manifests --backstop`: what the API server refuses by itself while every webhook is down.
//!
//! The rules are CEL and stand in `rules.yaml`. Here they get the configuration, as variables that come before them: [`args`]
//! is how it is given, [`literals`] how it is written, and [`re2`] how the pattern of tickets is.

mod args;
mod literals;
mod re2;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use lucid_chain::{
    Auditor, Catalogue, DEFAULT_OUTBOUND_PORT, FIRST_UID, MAX_CHAIN, NamespaceChain, SkipPolicy, TOKEN_PATHS,
    keys,
};
use lucid_cluster::Settings;
use lucid_policy::Tickets;
use lucid_validator::{BreakGlassArgs, Scope, SelectorArgs};
use serde::Deserialize as _;
use serde_json::json;
use serde_yaml::Value;
use snafu::{ResultExt, Snafu};

pub(super) use args::BackstopArgs;
use literals::{
    VARYING, defaults, entries, identities, init_shape, names, repositories, settings, shapes, stems,
};
use re2::Re2Error;

use crate::files::FilesError;

const RULES: &str = include_str!("rules.yaml");

/// The name of the policy and of its binding.
pub(crate) const NAME: &str = "lucid-backstop";

/// Why there is no policy.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum BackstopError {
    /// A file, or the configuration in it, cannot be used.
    #[snafu(transparent)]
    Files {
        /// Which, and why.
        source: FilesError,
    },
    /// The API server cannot take the pattern of tickets.
    #[snafu(display(
        "failed to write the pattern of tickets {pattern:?} (LUCID_BREAK_GLASS_PATTERN) for the API server: {source}; \
         accepted is another one, or --no-break-glass"
    ))]
    Tickets {
        /// As it was given.
        pattern: String,
        /// What is wrong with it.
        source: Re2Error,
    },
    /// What is built in is no YAML.
    #[snafu(display("failed to read the built-in policy: {source}"))]
    Parse {
        /// What is wrong.
        source: serde_yaml::Error,
    },
}

/// What the policy is made of.
#[derive(Clone, Debug)]
pub(crate) struct Backstop {
    pub(crate) scope: Scope,
    pub(crate) selectors: SelectorArgs,
    pub(crate) settings: Settings,
    pub(crate) catalogue: Catalogue,
    /// Chains of namespaces that are known.
    pub(crate) namespaces: BTreeMap<String, NamespaceChain>,
    pub(crate) strict: bool,
    /// Whether the namespaces that are not known have no chain of their own.
    pub(crate) exact: bool,
    /// Who breaks the glass with what; nobody without it.
    pub(crate) break_glass: Option<BreakGlassArgs>,
}

impl Backstop {
    /// The policy and its binding.
    ///
    /// # Errors
    ///
    /// When the chain names an unknown auditor, or CEL cannot say what a ticket looks like.
    pub(crate) fn documents(&self) -> Result<Vec<Value>, BackstopError> {
        let rules = RULES.replace("repository(c.image)", REPOSITORY).replace("claims(c)", CLAIMS);
        let rules = rules
            .replace(
                "planned(a.self)",
                &PLANNED.replace("SELF", "a.self").replace("SHAPE", "variables.shapes[entry.shape[0]]"),
            )
            .replace("planned(c)", &PLANNED.replace("SELF", "c").replace("SHAPE", "variables.initShape"));
        let rules =
            rules.replace("identity(e)", IDENTITY).replace("OUTBOUND", &DEFAULT_OUTBOUND_PORT.to_string());
        let documents = serde_yaml::Deserializer::from_str(&rules).map(Value::deserialize);
        let mut documents = documents.collect::<Result<Vec<_>, _>>().context(ParseSnafu)?;
        let variables = self.variables()?;
        for document in &mut documents {
            if document["kind"] != "ValidatingAdmissionPolicy" {
                continue;
            }
            let spec = &mut document["spec"];
            if let Some(rules) = spec["variables"].as_sequence_mut() {
                rules.splice(0..0, variables.iter().map(|(name, expression)| named(name, expression)));
            }
            let selectors = self.selectors.in_scope(&self.scope);
            let constraints = &mut spec["matchConstraints"];
            constraints["namespaceSelector"] =
                serde_yaml::to_value(&selectors.namespace_selector).context(ParseSnafu)?;
            constraints["objectSelector"] =
                serde_yaml::to_value(selectors.object_selector.unwrap_or_default()).context(ParseSnafu)?;
        }
        Ok(documents)
    }

    /// In what `installed` differs from this, as far as it can be known: what it was told of single namespaces, and whether
    /// it takes any chain, is left out.
    ///
    /// # Errors
    ///
    /// When the chain names an unknown auditor, or CEL cannot say what a ticket looks like.
    pub(crate) fn differences(
        &self,
        installed: &ValidatingAdmissionPolicy,
    ) -> Result<Vec<String>, BackstopError> {
        let wanted = self.documents()?;
        let spec = &wanted[0]["spec"];
        let installed = serde_yaml::to_value(&installed.spec).context(ParseSnafu)?;
        let expressions = |of: &Value| -> BTreeMap<String, String> {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let variables = of["variables"].as_sequence().into_iter().flatten();
            variables.map(|it| (text(&it["name"]), text(&it["expression"]))).collect()
        };
        let (wanted, found) = (expressions(spec), expressions(&installed));
        let is_same = |name: &String| match (wanted.get(name), found.get(name)) {
            (Some(wanted), Some(found)) => {
                let (_, everywhere) =
                    found.rsplit_once("[?request.namespace].orValue(").unwrap_or(("", found));
                let everywhere = if everywhere == found { found } else { everywhere.trim_end_matches(')') };
                // It was told to be more, or less, strict.
                wanted == everywhere
                    || name == "chain" && everywhere == "[]"
                    || name == "tickets" && found == "\"\""
            }
            _ => false,
        };
        let names: BTreeSet<_> = wanted.keys().chain(found.keys()).collect();
        let mut differences: Vec<_> = names.into_iter().filter(|name| !is_same(name)).cloned().collect();
        let parts =
            ["matchConditions", "matchConstraints", "validations", "failurePolicy", "auditAnnotations"];
        let others = parts.into_iter().filter(|part| plain(&spec[*part]) != plain(&installed[*part]));
        differences.extend(others.map(str::to_owned));
        Ok(differences)
    }

    /// The configuration, each with its expression.
    fn variables(&self) -> Result<Vec<(&'static str, String)>, BackstopError> {
        let configuration = self.settings.configuration(self.catalogue.clone()).map_err(FilesError::from)?;
        let overrides = &configuration.overrides;
        let overrides = settings([
            ("audit-mode", overrides.audit_mode.map(|it| it.to_string())),
            ("direction", overrides.direction.map(|it| it.to_string())),
            ("intercept", overrides.intercept.map(|it| it.to_string())),
            ("outbound-port", overrides.outbound_port.map(|it| it.to_string())),
        ]);
        let everywhere: &[Auditor] = if self.exact { configuration.chain() } else { &[] };
        let chain = |of: &NamespaceChain| {
            json!(stems(if of.chain().is_empty() { configuration.chain() } else { of.chain() })).to_string()
        };
        let catalogue = &self.catalogue;
        Ok(vec![
            ("strict", self.strict.to_string()),
            ("tickets", json!(self.tickets()?).to_string()),
            (
                "reviewed",
                self.break_glass.as_ref().is_some_and(|it| it.break_glass_access_review).to_string(),
            ),
            ("skipped", self.skipped()),
            ("first", FIRST_UID.to_string()),
            ("most", MAX_CHAIN.to_string()),
            ("places", json!((0..MAX_CHAIN).collect::<Vec<_>>()).to_string()),
            ("own", json!(OWN).to_string()),
            ("identities", identities().to_string()),
            ("tokenPaths", json!(TOKEN_PATHS).to_string()),
            ("varying", json!(VARYING).to_string()),
            ("catalogue", self.by_namespace(entries(catalogue), |it| entries(it.catalogue()).to_string())),
            ("shapes", self.by_namespace(shapes(catalogue), |it| shapes(it.catalogue()))),
            ("names", self.by_namespace(names(catalogue), |it| names(it.catalogue()).to_string())),
            (
                "stems",
                self.by_namespace(json!(stems(catalogue.auditors())), |it| {
                    json!(stems(it.catalogue().auditors())).to_string()
                }),
            ),
            ("chain", self.by_namespace(json!(stems(everywhere)), chain)),
            ("overrides", overrides.to_string()),
            ("defaults", self.by_namespace(defaults(catalogue), |it| defaults(it.catalogue()).to_string())),
            ("initShape", init_shape(catalogue)),
            ("initRepositories", json!(repositories(&configuration.init_image)).to_string()),
        ])
    }

    /// What a ticket looks like, for `matches`. Empty: none counts.
    fn tickets(&self) -> Result<String, BackstopError> {
        let tickets = self.break_glass.as_ref().map(|args| &args.break_glass_pattern);
        match tickets.and_then(Tickets::pattern) {
            Some(pattern) => re2::of(pattern).context(TicketsSnafu { pattern }),
            None => Ok(String::new()),
        }
    }

    /// The literal for all namespaces, or for each one that differs.
    fn by_namespace(&self, everywhere: impl ToString, of: impl Fn(&NamespaceChain) -> String) -> String {
        let everywhere = everywhere.to_string();
        let each = self.namespaces.iter().map(|(namespace, chain)| (namespace, of(chain)));
        let differing = each.filter(|(_, it)| *it != everywhere);
        let differing: Vec<_> =
            differing.map(|(namespace, it)| format!("{}:{it}", json!(namespace))).collect();
        if differing.is_empty() {
            everywhere
        } else {
            format!("{{{}}}[?request.namespace].orValue({everywhere})", differing.join(","))
        }
    }

    /// Whether the pod asks for no auditors and may, where its annotations count.
    fn skipped(&self) -> String {
        let asks =
            format!("object.metadata.?annotations[?'{}'].orValue('').trim() == 'true'", keys::SKIP_AUDIT);
        match &self.settings.skip {
            SkipPolicy::Always => asks,
            SkipPolicy::ServiceAccounts(listed) => {
                let account = "object.spec.?serviceAccountName.orValue('')";
                let listed = json!(listed);
                format!(
                    "{asks} && (request.namespace + '/' + ({account} == '' ? 'default' : {account})) in {listed}"
                )
            }
            _ => "false".to_owned(),
        }
    }
}

/// Without what is empty, which the API server fills in.
fn plain(value: &Value) -> Value {
    match value {
        Value::Mapping(members) => {
            let members = members.iter().map(|(key, value)| (key.clone(), plain(value)));
            let is_empty = |value: &Value| {
                value.is_null() || value.as_mapping().is_some_and(serde_yaml::Mapping::is_empty)
            };
            Value::Mapping(members.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Sequence(items) => items.iter().map(plain).collect(),
        scalar => scalar.clone(),
    }
}

/// Registry and repository of `c.image`, as [`repositories`] writes them.
const REPOSITORY: &str = "[c.image.split('@')[0].lowerAscii()].map(name, name.lastIndexOf(':') > name.lastIndexOf('/') ? \
                          name.substring(0, name.lastIndexOf(':')) : name)[0]";

/// Whether `c` calls itself an auditor. What goes through a list within a list takes the API server a time that grows with
/// the square of its length, and an application may have tens of thousands of variables; no auditor has so many.
const CLAIMS: &str =
    "(c.?env.orValue([]).size() <= 128 && c.?env.orValue([]).exists(e, e.name == 'LUCID_AUDITOR_ID'))";

/// Whether the variable `e` is one that a cloud's workload identity may add.
const IDENTITY: &str = "(e.name in variables.identities && has(e.value) && !has(e.valueFrom) && \
                        e.value.matches(variables.identities[e.name]))";

/// Whether the container `SELF` has the fields of `SHAPE` and no others but varying ones and mounts of tokens.
const PLANNED: &str = "(dyn(SELF).all(key, key in variables.varying || (key in SHAPE ? \
                       key in ['securityContext', 'volumeMounts'] || dyn(SELF)[key] == SHAPE[key] : key == 'volumeMounts')) && \
                       SHAPE.all(key, key in dyn(SELF)) && \
                       dyn(SELF.securityContext).size() == SHAPE.securityContext.size() && \
                       dyn(SELF.securityContext).all(key, key == 'runAsUser' || \
                       SHAPE.securityContext[?key] == optional.of(dyn(SELF.securityContext)[key])) && \
                       SELF.?volumeMounts.orValue([]).size() <= 8 && \
                       SHAPE[?'volumeMounts'].orValue([]).all(mount, mount in SELF.?volumeMounts.orValue([]) && mount.name in variables.empty) && \
                       SELF.?volumeMounts.orValue([]).all(mount, mount in SHAPE[?'volumeMounts'].orValue([]) || \
                       (dyn(mount).size() == 3 && mount.?readOnly.orValue(false) && mount.name in variables.projected && \
                       (mount.mountPath in variables.tokenPaths || (mount.name.startsWith('kube-api-access-') && \
                       mount.mountPath == '/var/run/secrets/kubernetes.io/serviceaccount')))) && \
                       dyn(SELF.?resources.orValue({})).all(key, key in ['limits', 'requests']) && \
                       ['livenessProbe', 'readinessProbe', 'startupProbe'].all(key, \
                       !(key in dyn(SELF)) || !('exec' in dyn(SELF)[key])))";

/// What every auditor has, in this order, with values that follow from each other.
const OWN: [&str; 5] = ["LUCID_AUDITOR_ID", "LUCID_CHAIN_NEXT", "AUDITOR_URL", "LUCID_AUDITOR_PORT", "PORT"];

fn named(name: &str, expression: &str) -> Value {
    let pair = [("name", name), ("expression", expression)];
    Value::Mapping(pair.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backstop(namespaces: BTreeMap<String, NamespaceChain>, exact: bool) -> Backstop {
        let parse = |text: &str| lucid_webhook::registration::parse_selector(text).unwrap();
        Backstop {
            scope: Scope::new("audit"),
            selectors: SelectorArgs {
                namespace_selector: parse("lucid.computing/enabled=true"),
                object_selector: None,
            },
            settings: Settings::default(),
            catalogue: Catalogue::builtin(),
            namespaces,
            strict: false,
            exact,
            break_glass: Some(BreakGlassArgs {
                break_glass_pattern: Tickets::default(),
                break_glass_access_review: false,
            }),
        }
    }

    fn installed(of: &Backstop) -> ValidatingAdmissionPolicy {
        serde_yaml::from_value(of.documents().unwrap().swap_remove(0)).unwrap()
    }

    #[test]
    fn what_was_told_of_namespaces_and_any_chain_are_no_differences_but_the_rest_is() {
        let exact = backstop(BTreeMap::new(), true);
        assert_eq!(exact.differences(&installed(&exact)).unwrap(), [""; 0]);
        assert_eq!(exact.differences(&installed(&backstop(BTreeMap::new(), false))).unwrap(), [""; 0]);
        let data = [("auditors.yaml".to_owned(), "chain: [{name: pii, image: r.test/pii}]".to_owned())];
        let own = NamespaceChain::from_data(
            "a",
            &data.into(),
            &Catalogue::builtin(),
            &lucid_chain::AuditorImages::all(),
        )
        .unwrap();
        let told = backstop([("a".to_owned(), own)].into(), true);
        assert!(
            told.by_namespace(json!([]), |_| r#"["x"]"#.to_owned())
                .starts_with(r#"{"a":["x"]}[?request.namespace]"#)
        );
        assert_eq!(exact.differences(&installed(&told)).unwrap(), [""; 0]);

        let strict = Backstop { strict: true, ..exact.clone() };
        assert_eq!(strict.differences(&installed(&exact)).unwrap(), ["strict"]);
        let unbreakable = Backstop { break_glass: None, ..exact.clone() };
        assert_eq!(exact.differences(&installed(&unbreakable)).unwrap(), [""; 0]);
        assert_eq!(unbreakable.differences(&installed(&exact)).unwrap(), ["tickets"]);
        let elsewhere = Backstop { scope: Scope::new("other"), ..exact.clone() };
        assert_eq!(elsewhere.differences(&installed(&exact)).unwrap(), ["matchConstraints"]);
        let skip = Settings { skip: SkipPolicy::Always, ..Settings::default() };
        let skips = Backstop { settings: skip, ..exact.clone() };
        assert_eq!(skips.differences(&installed(&exact)).unwrap(), ["skipped"]);
        let chain = Settings { chain: Some(vec!["toxicity".to_owned()]), ..Settings::default() };
        let other = Backstop { settings: chain, ..exact.clone() };
        assert_eq!(other.differences(&installed(&exact)).unwrap(), ["chain"]);
    }
}
