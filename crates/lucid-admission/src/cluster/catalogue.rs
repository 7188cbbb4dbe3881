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
    pub(crate) problems: Arc<[String]>,
}

/// Composes the layers of the catalogue to the configuration in force.
#[derive(Debug)]
pub(crate) struct Layers {
    settings: Settings,
    /// Namespace of ConfigMap `lucid-auditors`.
    namespace: String,
    file: File,
    in_force: Option<InForce>,
    /// Reason why nothing is in force.
    problem: Option<String>,
}

/// ConfigMap `lucid-auditors`.
#[derive(Debug, Default)]
struct File {
    /// Last valid content; `None` until the ConfigMap was read or found absent.
    catalogue: Option<Catalogue>,
    problem: Option<String>,
}

impl Layers {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, namespace: String::new(), file: File::default(), in_force: None, problem: None }
    }

    /// Returns the reason why nothing is in force.
    pub(crate) fn reason(&self) -> String {
        let problem =
            self.problem.as_ref().or(self.file.problem.as_ref().filter(|_| self.file.catalogue.is_none()));
        problem.cloned().unwrap_or_else(|| match self.file.catalogue {
            None => format!("ConfigMap {} has not been read", keys::CATALOGUE_CONFIG_MAP),
            Some(_) => "Auditors have not been listed".to_owned(),
        })
    }

    pub(crate) fn in_force(&self) -> Option<&InForce> {
        self.in_force.as_ref()
    }

    /// Sets the content of ConfigMap `lucid-auditors` of `namespace`; `None` if it does not exist.
    pub(crate) fn set_file(&mut self, namespace: &str, data: Option<&Data>) {
        namespace.clone_into(&mut self.namespace);
        match data.map(|data| self.read(data)) {
            None => self.file = File { catalogue: Some(Catalogue::from_auditors([])), problem: None },
            Some(Ok(catalogue)) => self.file = File { catalogue: Some(catalogue), problem: None },
            Some(Err(problem)) => {
                // Without the auditors of the file, chains would be weaker than the administrator configured.
                let kept = match &self.file.catalogue {
                    Some(_) => "the last good one stays in force",
                    None => "this replica is not ready until it is valid",
                };
                let problem = format!("{problem}; {kept}");
                tracing::warn!("{problem}");
                self.file.problem = Some(problem);
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
    pub(crate) fn compose(&mut self, auditors: &mut Auditors) {
        let Some(file) = self.file.catalogue.clone().filter(|_| auditors.is_listed()) else { return };
        let catalogue = Catalogue::builtin().overlay(&file).overlay(&auditors.settle());
        let catalogue = catalogue.without(auditors.never_valid());
        let mut problems: Vec<String> = self.file.problem.iter().cloned().collect();
        problems.extend(auditors.problems());
        let before = self.in_force.as_ref().map(|before| &before.configuration);
        let configuration = match (self.configuration(catalogue), before) {
            (Ok(configuration), Some(before)) if **before == configuration => Arc::clone(before),
            (Ok(configuration), _) => Arc::new(configuration),
            (Err(problem), Some(before)) => {
                problems.push(format!("{problem}; the last good catalogue stays in force"));
                Arc::clone(before)
            }
            (Err(problem), None) => {
                problems.push(problem);
                let problem = problems.join("; ");
                if self.problem.as_ref() != Some(&problem) {
                    tracing::warn!("{problem}");
                }
                self.problem = Some(problem);
                return;
            }
        };
        let known = self.in_force.as_ref().map(|before| &before.problems);
        for problem in &problems {
            if known.is_none_or(|known| !known.contains(problem))
                && self.file.problem.as_ref() != Some(problem)
            {
                tracing::warn!("{problem}");
            }
        }
        self.problem = None;
        self.in_force = Some(InForce { configuration, problems: problems.into() });
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
