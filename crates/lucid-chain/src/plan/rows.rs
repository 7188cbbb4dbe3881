//! The settings of a plan as text.

use std::fmt::Display;

use super::{Plan, settings::Setting};
use crate::{keys, mode::OtherPorts, trigger::Trigger};

impl Plan {
    /// Returns name, value and source of each setting.
    ///
    /// The names are `injection`, `chain`, `model port`, `audit mode`, `direction`, `sidecar mode`, `intercept`,
    /// `outbound port`, `upstream`, `allowed hosts`, those of environment variables, `policy of`, `variables of` and
    /// `files of` an auditor, `open ports`, `init container`, `hardened` and `pull secrets`. Settings without a value are left out.
    pub fn settings(&self) -> Vec<[String; 3]> {
        let mut rows = Vec::new();
        let mut row = |name: &str, value: String, source: String| rows.push([name.to_owned(), value, source]);
        let trigger = match self.trigger {
            Trigger::SecuredLabel => format!("label {}", keys::SECURED_LABEL),
            Trigger::AuditorsAnnotation => format!("annotation {}", keys::AUDITORS),
            Trigger::Forced => "forced".to_owned(),
        };
        row("injection", "requested".to_owned(), trigger);
        row("chain", join(self.containers.iter().map(|it| it.auditor.name()), ", "), self.source.to_string());
        row("model port", join(self.model_port.ports(), ","), self.model_port.source.to_string());
        let mut settings = vec![
            ("audit mode", self.audit_mode.text()),
            ("direction", self.direction.text()),
            ("sidecar mode", self.sidecar_mode.text()),
            ("intercept", self.intercept.text()),
            ("outbound port", self.outbound_port.text()),
        ];
        settings.extend(self.upstream.iter().map(|it| ("upstream", it.text())));
        settings.extend(self.allowed_hosts.iter().map(|it| ("allowed hosts", it.text())));
        for (name, [value, source]) in settings {
            row(name, value, source);
        }
        for (name, url) in self.application_env() {
            row(name, url, "address of the first auditor".to_owned());
        }
        for it in &self.containers {
            let mode = Some(it.audit_mode).filter(|mode| *mode != self.audit_mode.value);
            let policy = [
                mode.map(|mode| format!("mode {mode}")),
                it.failure.map(|failure| format!("failure {failure}")),
                it.timeout.map(|timeout| format!("timeout {timeout}")),
            ];
            let policy = join(policy.into_iter().flatten(), ", ");
            if !policy.is_empty() {
                row(&format!("policy of {}", it.name), policy, "its entry".to_owned());
            }
            let source = format!("auditors.yaml, {}", it.auditor.name());
            let variables = it.auditor.env().iter().filter(|(_, value)| value.is_from_object());
            let variables = join(variables.map(|(name, value)| format!("{name} from {value}")), ", ");
            if !variables.is_empty() {
                row(&format!("variables of {}", it.name), variables, source.clone());
            }
            if !it.auditor.files().is_empty() {
                row(&format!("files of {}", it.name), join(it.auditor.files(), ", "), source);
            }
        }
        let closes = self.init.is_some() && self.other_ports.value == OtherPorts::Closed;
        if closes || !self.open_ports.is_empty() {
            let ports = self.open_ports.iter().map(|(port, reason)| format!("{port} ({reason})"));
            let ports = if self.open_ports.is_empty() { "none".to_owned() } else { join(ports, ", ") };
            let source = match self.init {
                Some(_) => format!("other ports {} ({})", self.other_ports.value, self.other_ports.source),
                None => format!("intercept {}", self.intercept.value),
            };
            row("open ports", ports, source);
        }
        if let Some(init) = &self.init {
            row("init container", init.name.clone(), init.image.clone());
        }
        if !self.hardened.is_empty() {
            row("hardened", join(&self.hardened, ", "), "intercept".to_owned());
        }
        if !self.image_pull_secrets.is_empty() {
            row("pull secrets", join(&self.image_pull_secrets, ", "), "operator configuration".to_owned());
        }
        rows
    }
}

impl<T: Display> Setting<T> {
    fn text(&self) -> [String; 2] {
        [self.value.to_string(), self.source.to_string()]
    }
}

fn join<T: ToString>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}
