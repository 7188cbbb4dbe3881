//! The cluster's catalogue and the configuration derived from it. ConfigMap `lucid-auditors` overlays the built-in
//! auditors, and the Auditor objects overlay both. ConfigMap `lucid-auditors-canary` replaces `lucid-auditors` for
//! namespaces with the revision `canary`. No I/O.

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

/// Configurations in force for namespaces without and with the catalogue revision `canary`.
#[derive(Clone, Debug)]
pub(crate) struct Revisions {
    pub(crate) ordinary: Arc<InForce>,
    /// Or the reason why the ordinary catalogue applies.
    pub(crate) canary: Result<Arc<InForce>, String>,
}

impl Revisions {
    /// Returns `true` if pods are planned alike.
    pub(crate) fn plans_like(&self, other: &Self) -> bool {
        let canary =
            |revisions: &Self| revisions.canary.as_ref().map(|it| Arc::clone(&it.configuration)).ok();
        let is_same_canary = match (canary(self), canary(other)) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_same_canary && Arc::ptr_eq(&self.ordinary.configuration, &other.ordinary.configuration)
    }
}

#[derive(Debug)]
pub(crate) struct Layers {
    settings: ChainSettings,
    pub(crate) ordinary: Revision,
    pub(crate) canary: Revision,
    pub(crate) auditors: Auditors,
}

#[derive(Debug)]
pub(crate) struct Revision {
    name: &'static str,
    namespace: String,
    file: Document<Option<Catalogue>>,
    in_force: Result<Arc<InForce>, String>,
}

impl Layers {
    pub(crate) fn new(settings: ChainSettings) -> Self {
        Self {
            settings,
            ordinary: Revision::new(keys::CATALOGUE_CONFIG_MAP, Document::new),
            canary: Revision::new(keys::CANARY_CONFIG_MAP, Document::optional),
            auditors: Auditors::default(),
        }
    }

    pub(crate) fn in_force(&self) -> Result<Revisions, String> {
        let ordinary = self.ordinary.in_force.clone()?;
        Ok(Revisions { ordinary, canary: self.canary.in_force.clone() })
    }

    /// Composes the layers. Nothing is in force until all of them have been read.
    pub(crate) fn compose(&mut self) {
        if let Err(reason) = self.unread() {
            return self.ordinary.in_force = Err(reason);
        }
        let objects = self.auditors.settle();
        let configuration = |revision: &Revision, file: Option<&Catalogue>| {
            let below = file.iter().fold(Catalogue::builtin(), |below, file| below.overlay(file));
            let catalogue = below.overlay(&objects).without(self.auditors.never_valid());
            self.settings.configuration(catalogue).map_err(|error| {
                let object = revision.object();
                format!(
                    "{error} (in the default chain; auditors are defined in {object}, and as objects of the kind Auditor)"
                )
            })
        };
        if let Ok(file) = self.ordinary.file.content() {
            let configuration = configuration(&self.ordinary, file.as_ref());
            self.ordinary.put(configuration, self.auditors.problems());
        }
        match self.canary.file.content() {
            Ok(file) => {
                let configuration = configuration(&self.canary, file.as_ref());
                self.canary.put(configuration, Vec::new());
            }
            Err(reason) => self.canary.in_force = Err(reason),
        }
    }

    fn unread(&self) -> Result<(), String> {
        self.ordinary.file.content()?;
        if !self.canary.file.is_read() {
            self.canary.file.content()?;
        }
        if !self.auditors.is_listed() {
            return Err("Auditors have not been listed".to_owned());
        }
        Ok(())
    }
}

impl Revision {
    fn new(name: &'static str, file: fn(&'static str) -> Document<Option<Catalogue>>) -> Self {
        let file = file(name);
        let in_force = Err(file.content().err().unwrap_or_default());
        Self { name, namespace: String::new(), file, in_force }
    }

    /// Sets the content of the ConfigMap in `namespace`; `None` if it does not exist.
    pub(crate) fn set(&mut self, namespace: &str, data: Option<&Data>) {
        namespace.clone_into(&mut self.namespace);
        self.file.set(namespace, data, |data| {
            let yaml = document::value(data, keys::CATALOGUE_KEY)?;
            Catalogue::parse(keys::CATALOGUE_KEY, yaml).map(Some).map_err(|error| error.to_string())
        });
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.file.problem().is_none()
    }

    /// Returns the reasons why the content of the ConfigMap is not in force as it is; none if it does not exist.
    pub(crate) fn problems(&self) -> Vec<String> {
        match &self.in_force {
            Ok(in_force) => in_force.problems.clone(),
            Err(reason) if self.file.content().is_ok() || !self.is_valid() => vec![reason.clone()],
            Err(_) => Vec::new(),
        }
    }

    fn object(&self) -> String {
        format!("ConfigMap {}/{}", self.namespace, self.name)
    }

    /// Puts a configuration in force. An invalid one leaves the last valid one in force.
    fn put(&mut self, configuration: Result<Configuration, String>, of_auditors: Vec<String>) {
        let mut problems: Vec<String> = self.file.problem().cloned().into_iter().collect();
        problems.extend(of_auditors);
        let before = self.in_force.as_ref().ok();
        let configuration = match (configuration, before) {
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
}
