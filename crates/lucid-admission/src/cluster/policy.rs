//! ConfigMap `lucid-policy`: admission mode and exemptions. No I/O.

use lucid_policy::{Exemption, Mode, Policy, Strictness};
use serde::Deserialize;

use crate::cluster::keeper::KeeperSettings;
use crate::cluster::namespaces::Data;

/// Name of the ConfigMap with admission mode and exemptions, in Lucid's namespace.
pub const CONFIG_MAP: &str = "lucid-policy";

pub(crate) const MODE: &str = "mode";
const KEEPER: &str = "keeper";
const KEEPER_RATE: &str = "keeperRate";
const EXEMPTIONS: &str = "exemptions.yaml";
/// Key of the digests that need no Verifier, which is mounted as a file.
const ALLOWLIST: &str = "allowlist";

/// Content of the ConfigMap, which takes precedence over the options of the process.
#[derive(Debug, Default)]
pub(crate) struct PolicyData {
    mode: Option<Mode>,
    exemptions: Vec<Exemption>,
    pub(crate) keeper: KeeperSettings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    exemptions: Vec<Exemption>,
}

/// Parses a YAML document with the list `exemptions`.
///
/// # Errors
///
/// Returns an error if the document is invalid.
pub fn parse_exemptions(yaml: &str) -> Result<Vec<Exemption>, serde_yaml::Error> {
    serde_yaml::from_str(yaml).map(|File { exemptions }| exemptions)
}

impl PolicyData {
    pub(crate) fn read(data: &Data) -> Result<Self, String> {
        let mut read = Self::default();
        for (key, value) in data {
            match key.as_str() {
                MODE => read.mode = Some(value.trim().parse().map_err(|error| format!("{MODE}: {error}"))?),
                EXEMPTIONS => {
                    read.exemptions =
                        parse_exemptions(value).map_err(|error| format!("{EXEMPTIONS}: {error}"))?;
                }
                KEEPER => {
                    let parsed = value.trim().parse();
                    read.keeper.action = parsed.map_err(|error| format!("{KEEPER}: {error}"))?;
                }
                KEEPER_RATE => {
                    let expected = |_| {
                        format!("{KEEPER_RATE}: expected a number of actions per minute, found {value:?}")
                    };
                    read.keeper.rate = value.trim().parse().map_err(expected)?;
                }
                ALLOWLIST => {}
                found => {
                    return Err(format!(
                        "keys: expected {MODE}, {EXEMPTIONS}, {ALLOWLIST}, {KEEPER} or {KEEPER_RATE}, found {found:?}"
                    ));
                }
            }
        }
        Ok(read)
    }

    pub(crate) fn exemptions(&self) -> &[Exemption] {
        &self.exemptions
    }

    pub(crate) fn apply(&self, policy: &Policy) -> Policy {
        let mut policy = policy.clone();
        policy.mode = self.mode.unwrap_or(policy.mode);
        policy.exemptions.extend_from_slice(&self.exemptions);
        policy
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModeInForce {
    pub(crate) mode: Mode,
    /// Field manager that wrote it, such as `kubectl-patch`. The API server reports no user.
    pub(crate) manager: Option<String>,
}

impl ModeInForce {
    pub(crate) fn log(&self, strictness: Strictness) {
        let (mode, manager) = (self.mode.as_str(), self.manager.as_deref().unwrap_or("the options"));
        tracing::info!(mode, by = manager, "admission mode");
        if self.mode == Mode::Audit && strictness == Strictness::Strict {
            tracing::warn!(
                "strict notarization refuses nothing in admission mode audit: pods with images that are not notarized are \
                 admitted. Set the mode to enforce"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_map_takes_precedence_over_the_options() {
        let mut options = Policy::default();
        options.mode = Mode::Enforce;
        let data = |pairs: &[(&str, &str)]| -> Data {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let mode = |pairs: &[(&str, &str)]| PolicyData::read(&data(pairs)).map(|it| it.apply(&options).mode);
        assert_eq!(mode(&[]), Ok(Mode::Enforce));
        assert_eq!(mode(&[("allowlist", "sha256:0")]), Ok(Mode::Enforce));
        assert_eq!(mode(&[("mode", "audit\n")]), Ok(Mode::Audit));
        let exemptions = data(&[("exemptions.yaml", "exemptions: [{name: dev, namespaces: [dev]}]")]);
        assert_eq!(PolicyData::read(&exemptions).unwrap().apply(&options).exemptions.len(), 1);
        for (key, value, says) in [
            ("mode", "enforced", r#"mode: expected audit or enforce, found "enforced""#),
            ("mode", "", r#"mode: expected audit or enforce, found """#),
            (
                "Mode",
                "audit",
                r#"expected mode, exemptions.yaml, allowlist, keeper or keeperRate, found "Mode""#,
            ),
            ("keeper", "restart", r#"keeper: expected report, update, evict or rollout, found "restart""#),
            ("keeperRate", "-1", r#"keeperRate: expected a number of actions per minute, found "-1""#),
            ("exemptions.yaml", "exemptions: [{name: all}]", "exemptions.yaml: "),
        ] {
            let problem = mode(&[(key, value)]).unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
    }
}
