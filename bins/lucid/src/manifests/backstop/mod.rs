//! `lucid manifests --backstop`: a policy that the API server enforces while the webhooks are unavailable.
//!
//! The rules are CEL, in `rules.yaml`. This module prepends variables with the configuration: [`args`] reads it,
//! [`literals`] converts it to CEL, and [`re2`] converts the ticket pattern.

mod args;
mod literals;
mod re2;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use lucid_admission::{ChainSettings, Scope};
use lucid_chain::{Auditor, Catalogue, MAX_CHAIN, NamespaceChain, SkipPolicy, TOKEN_PATHS, keys};
use lucid_policy::Tickets;
use lucid_shared::options::{BreakGlassArgs, SelectorArgs};
use serde::Deserialize as _;
use serde_json::json;
use serde_yaml::Value;

pub(super) use args::BackstopArgs;
use literals::{
    Builtin, POLICY_ENV, VARYING, defaults, entries, identities, init_shape, names, policies, repositories,
    settings, shapes, stems, volumes,
};

use crate::error::{Result, ResultExt};

const RULES: &str = include_str!("rules.yaml");

pub(crate) const NAME: &str = "lucid-backstop";

#[derive(Clone, Debug)]
pub(crate) struct Backstop {
    pub(crate) scope: Scope,
    pub(crate) selectors: SelectorArgs,
    pub(crate) settings: ChainSettings,
    pub(crate) catalogue: Catalogue,
    /// Chains of known namespaces.
    pub(crate) namespaces: BTreeMap<String, NamespaceChain>,
    pub(crate) strict: bool,
    /// `true` if namespaces that are not listed have no chain of their own.
    pub(crate) exact: bool,
    /// Break-glass options; `None` disables break-glass.
    pub(crate) break_glass: Option<BreakGlassArgs>,
}

impl Backstop {
    /// Returns the policy and its binding.
    pub(crate) fn documents(&self) -> Result<Vec<Value>> {
        let builtin = Builtin::new()?;
        let rules = RULES.replace("repository(c.image)", REPOSITORY).replace("claims(c)", CLAIMS);
        let rules = rules
            .replace(
                "planned(a.self)",
                &PLANNED.replace("SELF", "a.self").replace("SHAPE", "variables.shapes[entry.shape[0]]"),
            )
            .replace("planned(c)", &PLANNED.replace("SELF", "c").replace("SHAPE", "variables.initShape"));
        let rules = rules.replace("identity(e)", IDENTITY).replace("OUTBOUND", &builtin.outbound_port);
        let rules = rules.replace("source(e)", SOURCE).replace("PARAMETER", PARAMETER);
        let rules = rules.replace("^POLICY$", POLICY);
        let rules = rules.replace("IPV6", IPV6).replace("IPV4", IPV4).replace("HEX", HEX);
        let rules = rules.replace("NO_TOKEN", keys::NO_TOKEN_VOLUME).replace("FILES", keys::FILES_VOLUME);
        let documents = serde_yaml::Deserializer::from_str(&rules).map(Value::deserialize);
        let mut documents = documents.collect::<Result<Vec<_>, _>>()?;
        let variables = self.variables(&builtin)?;
        for document in &mut documents {
            if document["kind"] != "ValidatingAdmissionPolicy" {
                continue;
            }
            let spec = &mut document["spec"];
            if let Some(rules) = spec["variables"].as_sequence_mut() {
                rules.splice(0..0, variables.iter().map(|(name, expression)| named(name, expression)));
            }
            let selectors = self.selectors.selectors().in_scope(&self.scope);
            let constraints = &mut spec["matchConstraints"];
            constraints["namespaceSelector"] = serde_yaml::to_value(&selectors.namespaces)?;
            constraints["objectSelector"] = serde_yaml::to_value(selectors.pods.unwrap_or_default())?;
        }
        Ok(documents)
    }

    /// Returns the names of the parts in which `installed` differs. Values for single namespaces are ignored, and so are
    /// the effects of `--exact-chain` and `--no-break-glass`, which cannot be known here.
    pub(crate) fn differences(&self, installed: &ValidatingAdmissionPolicy) -> Result<Vec<String>> {
        let wanted = self.documents()?;
        let spec = &wanted[0]["spec"];
        let installed = serde_yaml::to_value(&installed.spec)?;
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
                // Generated without `--exact-chain`, or with `--no-break-glass`.
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

    fn variables(&self, builtin: &Builtin) -> Result<Vec<(&'static str, String)>> {
        let configuration = self.settings.configuration(self.catalogue.clone()).usage()?;
        let overrides = &configuration.overrides;
        let overrides = settings([
            ("audit-mode", overrides.audit_mode.map(|it| it.to_string())),
            ("direction", overrides.direction.map(|it| it.to_string())),
            ("intercept", overrides.intercept.map(|it| it.to_string())),
            ("outbound-port", overrides.outbound_port.map(|it| it.to_string())),
        ]);
        let everywhere: &[Auditor] = if self.exact { configuration.chain() } else { &[] };
        let chain = |of: &NamespaceChain| {
            stems(if of.chain().is_empty() { configuration.chain() } else { of.chain() })
        };
        let catalogue = &self.catalogue;
        let each = |literal: fn(&Catalogue) -> String| {
            self.by_namespace(literal(catalogue), |it| literal(it.catalogue()))
        };
        Ok(vec![
            ("strict", self.strict.to_string()),
            ("tickets", json!(self.tickets()?).to_string()),
            (
                "reviewed",
                self.break_glass.as_ref().is_some_and(|it| it.break_glass_access_review).to_string(),
            ),
            ("skipped", self.skipped()),
            ("first", FIRST.replace("RANGE", keys::SCC_UID_RANGE).replace("FIRST_UID", &builtin.first_uid)),
            ("most", MAX_CHAIN.to_string()),
            ("places", json!((0..MAX_CHAIN).collect::<Vec<_>>()).to_string()),
            ("own", json!(OWN).to_string()),
            ("identities", identities()),
            ("tokenPaths", json!(TOKEN_PATHS).to_string()),
            ("varying", json!(VARYING).to_string()),
            ("catalogue", each(entries)),
            ("shapes", each(shapes)),
            ("volumes", each(volumes)),
            ("names", each(names)),
            ("policy", json!(POLICY_ENV).to_string()),
            (
                "policies",
                self.by_namespace(policies(&configuration, None), |it| policies(&configuration, Some(it))),
            ),
            ("stems", each(|it| stems(it.auditors()))),
            ("chain", self.by_namespace(stems(everywhere), chain)),
            ("overrides", overrides),
            ("defaults", each(defaults)),
            ("initShape", init_shape(catalogue)),
            ("initRepositories", json!(repositories(&configuration.init_image)).to_string()),
        ])
    }

    /// Returns the RE2 pattern of tickets. An empty one does not match any ticket.
    fn tickets(&self) -> Result<String> {
        let tickets = self.break_glass.as_ref().map(|args| &args.break_glass_pattern);
        match tickets.and_then(Tickets::pattern) {
            Some(pattern) => re2::of(pattern).map_err(|error| {
                format!(
                    "failed to write the pattern of tickets {pattern:?} (LUCID_BREAK_GLASS_PATTERN) for the API server: \
                     {error}; use another one, or --no-break-glass"
                )
                .into()
            }),
            None => Ok(String::new()),
        }
    }

    /// Returns one literal for all namespaces, with a map of those that differ.
    fn by_namespace(&self, everywhere: String, of: impl Fn(&NamespaceChain) -> String) -> String {
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

    /// CEL expression that is `true` if the pod opts out of auditing and is allowed to.
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

/// Removes nulls and empty mappings, which the API server fills in.
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

/// Uid of the first auditor: in a namespace of OpenShift, the second one of the range, if that is above 1000.
const FIRST: &str = "[namespaceObject.metadata.?annotations[?'RANGE'].orValue('').split(',')[0].trim()].map(range, \
                     range.matches('^[0-9]{1,10}[/-][0-9]{1,10}$') ? \
                     [1001, int(range.replace('/', '-').split('-')[0]) + 1].max() : FIRST_UID)[0]";

/// Registry and repository of `c.image`, in the spelling of [`repositories`].
const REPOSITORY: &str = "[c.image.split('@')[0].lowerAscii()].map(name, name.lastIndexOf(':') > name.lastIndexOf('/') ? \
                          name.substring(0, name.lastIndexOf(':')) : name)[0]";

/// `true` if `c` identifies itself as an auditor. The cost of nested lists is quadratic in the API server, and an
/// application may have tens of thousands of variables. An auditor has at most 128.
const CLAIMS: &str =
    "(c.?env.orValue([]).size() <= 128 && c.?env.orValue([]).exists(e, e.name == 'LUCID_AUDITOR_ID'))";

/// `true` if the variable `e` is one that a cloud's workload identity may add.
const IDENTITY: &str = "(e.name in variables.identities && has(e.value) && !has(e.valueFrom) && \
                        e.value.matches(variables.identities[e.name]))";

/// Value of the variable `e` in the spelling of [`entries`]; one that no catalogue has for other sources.
const SOURCE: &str = "(!has(e.valueFrom) ? '=' + e.?value.orValue('') : has(e.valueFrom.secretKeyRef) ? \
                      ' secretKeyRef ' + e.valueFrom.secretKeyRef.?name.orValue('') + '/' + e.valueFrom.secretKeyRef.key + \
                      (e.valueFrom.secretKeyRef.?optional.orValue(false) ? '?' : '') : has(e.valueFrom.configMapKeyRef) ? \
                      ' configMapKeyRef ' + e.valueFrom.configMapKeyRef.?name.orValue('') + '/' + \
                      e.valueFrom.configMapKeyRef.key + (e.valueFrom.configMapKeyRef.?optional.orValue(false) ? '?' : '') : '')";

/// `true` if the container `SELF` has exactly the fields of `SHAPE`, apart from varying ones and mounts of tokens.
const PLANNED: &str = "(dyn(SELF).all(key, key in variables.varying || (key in SHAPE ? \
                       key in ['securityContext', 'volumeMounts'] || dyn(SELF)[key] == SHAPE[key] : key == 'volumeMounts')) && \
                       SHAPE.all(key, key in dyn(SELF)) && \
                       dyn(SELF.securityContext).size() == SHAPE.securityContext.size() && \
                       dyn(SELF.securityContext).all(key, key == 'runAsUser' || \
                       SHAPE.securityContext[?key] == optional.of(dyn(SELF.securityContext)[key])) && \
                       SELF.?volumeMounts.orValue([]).size() <= SHAPE[?'volumeMounts'].orValue([]).size() + 8 && \
                       SHAPE[?'volumeMounts'].orValue([]).all(mount, mount in SELF.?volumeMounts.orValue([]) && mount.name in variables.planned) && \
                       SELF.?volumeMounts.orValue([]).all(mount, mount in SHAPE[?'volumeMounts'].orValue([]) || \
                       (dyn(mount).size() == 3 && mount.?readOnly.orValue(false) && mount.name in variables.projected && \
                       (mount.mountPath in variables.tokenPaths || (mount.name.startsWith('kube-api-access-') && \
                       mount.mountPath == '/var/run/secrets/kubernetes.io/serviceaccount')))) && \
                       dyn(SELF.?resources.orValue({})).all(key, key in ['limits', 'requests']) && \
                       ['livenessProbe', 'readinessProbe', 'startupProbe'].all(key, \
                       !(key in dyn(SELF)) || !('exec' in dyn(SELF)[key])))";

/// Variables of every auditor, in this order, with interdependent values.
const OWN: [&str; 5] = [
    keys::AUDITOR_ID_ENV,
    keys::CHAIN_NEXT_ENV,
    keys::AUDITOR_URL_ENV,
    keys::AUDITOR_PORT_ENV,
    keys::PORT_ENV,
];

/// Pattern of an IPv4 address.
const IPV4: &str =
    "((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])[.]){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

/// Pattern of an IPv6 address. It does not add up the groups on both sides of `::`.
const IPV6: &str = "((HEX(:HEX){0,6})?::((HEX:){0,6}(HEX|IPV4))?|(HEX:){7}HEX|(HEX:){6}IPV4)";

const HEX: &str = "[[:xdigit:]]{1,4}";

/// Pattern of a parameter of an entry of a chain.
const PARAMETER: &str = "(mode=(enforce|observe)|failure=(deny|allow)|timeout=[1-9][0-9]{0,3}m?s)";

/// Pattern of the [`POLICY_ENV`] of an auditor whose policy the pod may choose.
const POLICY: &str = "^LUCID_AUDIT_MODE=(enforce|observe)(,LUCID_AUDIT_FAILURE=(deny|allow))?\
                      (,LUCID_AUDIT_TIMEOUT_MS=[1-9][0-9]{0,6})?$";

fn named(name: &str, expression: &str) -> Value {
    Value::Mapping(
        [("name", name), ("expression", expression)]
            .map(|(key, value)| (key.into(), value.into()))
            .into_iter()
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use lucid_policy::DEFAULT_TICKET_PATTERN;

    use super::*;

    fn backstop(namespaces: BTreeMap<String, NamespaceChain>, exact: bool) -> Backstop {
        let parse = |text: &str| lucid_webhook::registration::parse_selector(text).unwrap();
        Backstop {
            scope: Scope::new("audit"),
            selectors: SelectorArgs {
                namespace_selector: parse("lucid.computing/enabled=true"),
                object_selector: None,
            },
            settings: ChainSettings::default(),
            catalogue: Catalogue::builtin(),
            namespaces,
            strict: false,
            exact,
            break_glass: Some(BreakGlassArgs {
                break_glass_pattern: Tickets::new(DEFAULT_TICKET_PATTERN).unwrap(),
                break_glass_access_review: false,
            }),
        }
    }

    fn installed(of: &Backstop) -> ValidatingAdmissionPolicy {
        serde_yaml::from_value(of.documents().unwrap().swap_remove(0)).unwrap()
    }

    #[test]
    fn only_namespaces_and_chains_may_differ() {
        let exact = backstop(BTreeMap::new(), true);
        assert_eq!(exact.differences(&installed(&exact)).unwrap(), [""; 0]);
        assert_eq!(exact.differences(&installed(&backstop(BTreeMap::new(), false))).unwrap(), [""; 0]);
        let data = [("auditors.yaml".to_owned(), "chain: [{name: topics, image: r.test/topics}]".to_owned())];
        let own = NamespaceChain::from_data(
            "a",
            &data.into(),
            &Catalogue::builtin(),
            &lucid_chain::NamespaceSettings::default().with_any_auditor_image(),
        )
        .unwrap();
        let told = backstop([("a".to_owned(), own)].into(), true);
        assert!(
            told.by_namespace("[]".to_owned(), |_| r#"["x"]"#.to_owned())
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
        let skip = ChainSettings { skip: SkipPolicy::Always, ..ChainSettings::default() };
        let skips = Backstop { settings: skip, ..exact.clone() };
        assert_eq!(skips.differences(&installed(&exact)).unwrap(), ["skipped"]);
        let chain = ChainSettings { chain: Some(vec!["toxicity".to_owned()]), ..ChainSettings::default() };
        let other = Backstop { settings: chain, ..exact.clone() };
        assert_eq!(other.differences(&installed(&exact)).unwrap(), ["chain"]);
    }
}
