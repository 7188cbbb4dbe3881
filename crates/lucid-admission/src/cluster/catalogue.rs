//! The cluster's catalogue and the configuration derived from it. ConfigMap `lucid-auditors` overlays the built-in
//! auditors, and the Auditor objects overlay both. No I/O.

use std::sync::Arc;

use lucid_chain::{Catalogue, Configuration, keys};

use crate::ChainSettings;
use crate::cluster::auditors::Auditors;
use crate::cluster::document::{self, Document};
use crate::cluster::namespaces::Data;

#[derive(Clone, Debug)]
pub(crate) struct InForce {
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) problems: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Layers {
    settings: ChainSettings,
    namespace: String,
    file: Document<Option<Catalogue>>,
    pub(crate) auditors: Auditors,
    in_force: Result<Arc<InForce>, String>,
}

impl Layers {
    pub(crate) fn new(settings: ChainSettings) -> Self {
        let file = Document::new(keys::CATALOGUE_CONFIG_MAP);
        let in_force = Err(file.content().err().unwrap_or_default());
        Self { settings, namespace: String::new(), file, auditors: Auditors::default(), in_force }
    }

    pub(crate) fn in_force(&self) -> Result<Arc<InForce>, String> {
        self.in_force.clone()
    }

    /// Sets the content of ConfigMap `lucid-auditors` of `namespace`; `None` if it does not exist.
    pub(crate) fn set_file(&mut self, namespace: &str, data: Option<&Data>) {
        namespace.clone_into(&mut self.namespace);
        self.file.set(namespace, data, |data| {
            let yaml = document::value(data, keys::CATALOGUE_KEY)?;
            Catalogue::parse(keys::CATALOGUE_KEY, yaml).map(Some).map_err(|error| error.to_string())
        });
    }

    pub(crate) fn is_file_valid(&self) -> bool {
        self.file.problem().is_none()
    }

    fn config_map(&self) -> String {
        format!("ConfigMap {}/{}", self.namespace, keys::CATALOGUE_CONFIG_MAP)
    }

    /// Composes the layers. Nothing is in force until all of them have been read.
    pub(crate) fn compose(&mut self) {
        let file = match self.file.content() {
            Ok(file) if self.auditors.is_listed() => file,
            Ok(_) => return self.in_force = Err("Auditors have not been listed".to_owned()),
            Err(reason) => return self.in_force = Err(reason),
        };
        let below = file.iter().fold(Catalogue::builtin(), |below, file| below.overlay(file));
        let catalogue = below.overlay(&self.auditors.settle());
        let catalogue = catalogue.without(self.auditors.never_valid());
        let mut problems: Vec<String> = self.file.problem().cloned().into_iter().collect();
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
            if !is_known && self.file.problem() != Some(problem) {
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
