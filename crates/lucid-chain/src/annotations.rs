//! Pod annotations as typed settings.

use std::str::FromStr;

use lucid_text::Excerpt;

use crate::{
    catalogue::{Auditor, Catalogue},
    chain,
    egress::{AllowedHosts, Upstream},
    error::Error,
    keys,
    mode::{AuditMode, Direction, Intercept, OtherPorts, PodChoices, SidecarMode},
    pod::PodView,
    port_list::PortList,
    warning::Warning,
};

/// Settings from a pod's annotations. An annotation that is invalid or excluded by the namespace's [`PodChoices`]
/// counts as absent and produces a [`Warning`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Annotations {
    pub(crate) auditor_chain: Option<Vec<Auditor>>,
    pub(crate) auditors: Option<Vec<Auditor>>,
    pub(crate) audit_mode: Option<AuditMode>,
    pub(crate) skip_audit: bool,
    pub(crate) target_port: Option<PortList>,
    pub(crate) direction: Option<Direction>,
    pub(crate) sidecar_mode: Option<SidecarMode>,
    pub(crate) intercept: Option<Intercept>,
    pub(crate) upstream: Option<Upstream>,
    pub(crate) allowed_hosts: Option<AllowedHosts>,
    pub(crate) other_ports: Option<OtherPorts>,
    pub(crate) open_ports: Option<PortList>,
    pub(crate) keep_privileges: bool,
}

impl Annotations {
    pub(crate) fn read(
        pod: &PodView<'_>,
        catalogue: &Catalogue,
        choices: PodChoices,
        warnings: &mut Vec<Warning>,
    ) -> Self {
        let mut reader = Reader { pod, choices, warnings };
        let auditors = |list: &str| match list.contains('?') && !choices.allows(keys::AUDIT_MODE) {
            true => Err(format!(
                "expected auditors without parameters, as {} of the namespace is \"{choices}\"",
                keys::POD_CHOICES
            )),
            false => chain::parse(catalogue, list),
        };
        Self {
            auditor_chain: reader.read(keys::AUDITOR_CHAIN, auditors),
            auditors: reader.read(keys::AUDITORS, auditors),
            audit_mode: reader.read_mode(keys::AUDIT_MODE, AuditMode::EXPECTED),
            skip_audit: reader.read(keys::SKIP_AUDIT, read_bool).unwrap_or_default(),
            target_port: reader.read(keys::TARGET_PORT, read_ports),
            direction: reader.read_mode(keys::DIRECTION, Direction::EXPECTED),
            sidecar_mode: reader.read_mode(keys::SIDECAR_MODE, SidecarMode::EXPECTED),
            intercept: reader.read_mode(keys::INTERCEPT, Intercept::EXPECTED),
            upstream: reader
                .read(keys::UPSTREAM, |text| text.parse().map_err(|_: Error| expected(Upstream::EXPECTED))),
            allowed_hosts: reader.read(keys::ALLOWED_HOSTS, |text| {
                text.parse().map_err(|_: Error| expected(AllowedHosts::EXPECTED))
            }),
            other_ports: reader.read_mode(keys::OTHER_PORTS, OtherPorts::EXPECTED),
            open_ports: reader.read(keys::OPEN_PORTS, read_ports),
            keep_privileges: reader.read(keys::KEEP_PRIVILEGES, read_bool).unwrap_or_default(),
        }
    }
}

struct Reader<'r, 'a> {
    pod: &'r PodView<'a>,
    choices: PodChoices,
    warnings: &'r mut Vec<Warning>,
}

impl Reader<'_, '_> {
    fn read<T>(&mut self, key: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.pod.annotation(key)?;
        if !self.choices.allows(key) {
            self.warnings.push(Warning::ChoiceNotAllowed { key, choices: self.choices });
            return None;
        }
        match parse(value.trim()) {
            Ok(setting) => Some(setting),
            Err(problem) => {
                let found = Excerpt(value).to_string();
                self.warnings.push(Warning::InvalidAnnotation { key, found, problem });
                None
            }
        }
    }

    fn read_mode<T: FromStr<Err = Error>>(&mut self, key: &'static str, values: &str) -> Option<T> {
        self.read(key, |text| text.parse().map_err(|_| expected(values)))
    }
}

fn expected(values: &str) -> String {
    format!("expected {values}")
}

fn read_ports(text: &str) -> Result<PortList, String> {
    text.parse().map_err(|_: Error| expected(PortList::EXPECTED))
}

fn read_bool(text: &str) -> Result<bool, String> {
    bool::from_str(text).map_err(|_| expected(r#""true" or "false""#))
}
