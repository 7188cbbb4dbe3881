//! The cluster's catalogue and the configuration derived from it. ConfigMap `lucid-auditors` overlays the built-in
//! auditors, and the Auditor objects overlay both. No I/O.

use std::sync::Arc;

use lucid_chain::{Catalogue, Configuration, keys};

use crate::Settings;
use crate::cluster::auditors::Auditors;
use crate::cluster::namespaces::Data;

/// Configuration that applies to all namespaces.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    pub(crate) configuration: Arc<Configuration>,
    /// Problems of the ConfigMap and of Auditor objects.
    pub(crate) problems: Vec<String>,
}

/// Composes the layers of the catalogue to the configuration in force.
#[derive(Debug)]
pub(crate) struct Layers {
    settings: Settings,
    /// Namespace of ConfigMap `lucid-auditors`.
    namespace: String,
    /// Last valid content of the ConfigMap; `None` until it was read or found absent.
    file: Option<Catalogue>,
    file_problem: Option<String>,
    pub(crate) auditors: Auditors,
    /// The last valid configuration, or the reason why there is none.
    in_force: Result<Arc<InForce>, String>,
}

impl Layers {
    pub(crate) fn new(settings: Settings) -> Self {
        let unread = format!("ConfigMap {} has not been read", keys::CATALOGUE_CONFIG_MAP);
        Self {
            settings,
            namespace: String::new(),
            file: None,
            file_problem: None,
            auditors: Auditors::default(),
            in_force: Err(unread),
        }
    }

    pub(crate) fn in_force(&self) -> Result<Arc<InForce>, String> {
        self.in_force.clone()
    }

    /// Sets the content of ConfigMap `lucid-auditors` of `namespace`; `None` if it does not exist.
    pub(crate) fn set_file(&mut self, namespace: &str, data: Option<&Data>) {
        namespace.clone_into(&mut self.namespace);
        match data.map_or_else(|| Ok(Catalogue::from_auditors([])), |data| self.read(data)) {
            Ok(catalogue) => (self.file, self.file_problem) = (Some(catalogue), None),
            Err(problem) => {
                // Without the auditors of the file, chains would be weaker than the administrator configured.
                let kept = match &self.file {
                    Some(_) => "the last valid content stays in use",
                    None => "this replica is not ready until it is valid",
                };
                let problem = format!("{problem}; {kept}");
                tracing::warn!("{problem}");
                self.file_problem = Some(problem);
            }
        }
    }

    fn config_map(&self) -> String {
        format!("ConfigMap {}/{}", self.namespace, keys::CATALOGUE_CONFIG_MAP)
    }

    fn read(&self, data: &Data) -> Result<Catalogue, String> {
        let config_map = self.config_map();
        let yaml = data.get(keys::CATALOGUE_KEY).ok_or_else(|| {
            let found: Vec<&str> = data.keys().map(String::as_str).collect();
            format!("{config_map}: found keys {found:?}, accepted is {}", keys::CATALOGUE_KEY)
        })?;
        let origin = format!("{config_map}, {}", keys::CATALOGUE_KEY);
        Catalogue::parse(&origin, yaml).map_err(|error| error.to_string())
    }

    /// Composes the layers. Nothing is in force until all of them have been read.
    pub(crate) fn compose(&mut self) {
        let file = match &self.file {
            Some(file) if self.auditors.is_listed() => file,
            Some(_) => return self.in_force = Err("Auditors have not been listed".to_owned()),
            None => {
                if let Some(problem) = &self.file_problem {
                    self.in_force = Err(problem.clone());
                }
                return;
            }
        };
        let catalogue = Catalogue::builtin().overlay(file).overlay(&self.auditors.settle());
        let catalogue = catalogue.without(self.auditors.never_valid());
        let mut problems: Vec<String> = self.file_problem.iter().cloned().collect();
        problems.extend(self.auditors.problems());
        let before = self.in_force.as_ref().ok();
        let configuration = match (self.configuration(catalogue), before) {
            (Ok(configuration), Some(before)) if *before.configuration == configuration => {
                Arc::clone(&before.configuration)
            }
            (Ok(configuration), _) => Arc::new(configuration),
            (Err(problem), Some(before)) => {
                problems.push(format!("{problem}; the last valid content stays in use"));
                Arc::clone(&before.configuration)
            }
            (Err(problem), None) => {
                problems.push(problem);
                let problem = problems.join("; ");
                if self.in_force.as_ref().err() != Some(&problem) {
                    tracing::warn!("{problem}");
                }
                return self.in_force = Err(problem);
            }
        };
        for problem in &problems {
            let is_known = before.is_some_and(|before| before.problems.contains(problem));
            if !is_known && self.file_problem.as_ref() != Some(problem) {
                tracing::warn!("{problem}");
            }
        }
        self.in_force = Ok(Arc::new(InForce { configuration, problems }));
    }

    fn configuration(&self, catalogue: Catalogue) -> Result<Configuration, String> {
        self.settings.configuration(catalogue).map_err(|error| {
            format!(
                "{error} (in the default chain; auditors are defined in {}, and as objects of the kind Auditor)",
                self.config_map()
            )
        })
    }
}
