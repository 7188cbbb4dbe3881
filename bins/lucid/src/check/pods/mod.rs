//! Compares the chains of existing pods with those they would get now.
//!
//! Namespaces are read one after the other, page by page. Memory use grows with the number of owners and reasons, not of
//! pods.

mod evaluate;
mod groups;

use std::io::{IsTerminal, Write};

use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use lucid_admission::{ClusterConfiguration, NamespaceView, Scope};
use lucid_chain::keys;
use lucid_keeper::{State, StoredPod};

use super::namespaces::Namespace;
use super::registration::RegisteredWebhook;
use super::report::{Check, Unread};

pub(super) use evaluate::evaluate;
pub(crate) use evaluate::known_state;

use groups::Groups;

const PAGE: u32 = 500;
/// Number of attempts at a list whose continue token expires (410 Gone).
const ATTEMPTS: usize = 3;

pub(super) struct Survey<'a> {
    pub(super) client: &'a Client,
    pub(super) cluster: &'a ClusterConfiguration,
    pub(super) scope: &'a Scope,
    pub(super) webhook: Option<&'a RegisteredWebhook>,
}

impl Survey<'_> {
    pub(super) async fn checks(&self, namespaces: &[Namespace]) -> Vec<Check> {
        let mut progress = Progress { is_shown: std::io::stderr().is_terminal(), pods: 0 };
        let (mut groups, mut unread) = (Groups::default(), None);
        for namespace in namespaces.iter().filter(|it| it.is_audited()) {
            match self.namespace(namespace, &mut progress).await {
                Ok(found) => groups.merge(found),
                Err(error) => unread = Some(error),
            }
        }
        if let Err(error) = self.unselected(namespaces, &mut groups).await {
            unread = unread.or(Some(error));
        }
        progress.end();
        let mut checks = groups.checks();
        if let Some(unread) = unread {
            let check = Check::unread("pods", &unread);
            let found = format!("not all pods were checked: {}", unread.why);
            checks.push(Check { found, ..check });
        }
        checks
    }

    async fn namespace(&self, namespace: &Namespace, progress: &mut Progress) -> Result<Groups, Unread> {
        let view = self.cluster.namespace(&namespace.name).await;
        let view = view.map_err(|error| Unread { why: error.to_string(), permission: None })?;
        for attempt in 1.. {
            let mut groups = Groups::default();
            match self.pages(namespace, &view, &mut groups, progress).await {
                Err(kube::Error::Api(status)) if status.code == 410 && attempt < ATTEMPTS => {}
                Err(error) => {
                    return Err(Unread::of(&error, format!("list pods in namespace {}", namespace.name)));
                }
                Ok(()) => return Ok(groups),
            }
        }
        Ok(Groups::default())
    }

    async fn pages(
        &self,
        namespace: &Namespace,
        view: &NamespaceView,
        groups: &mut Groups,
        progress: &mut Progress,
    ) -> kube::Result<()> {
        let pods: Api<StoredPod> = Api::namespaced(self.client.clone(), &namespace.name);
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = pods.list(&params).await?;
            for pod in page.items {
                let found = evaluate(&pod, &namespace.name, view, self.webhook, namespace.since);
                if let Some((state, reason)) = found {
                    groups.add(&namespace.name, pod.meta(), state, reason, None);
                }
                progress.count();
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(()),
            }
        }
    }

    /// Reports pods with the label in namespaces that are not selected.
    async fn unselected(&self, namespaces: &[Namespace], groups: &mut Groups) -> Result<(), Unread> {
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::all(self.client.clone());
        let label = format!("{}={}", keys::SECURED_LABEL, keys::TRUE);
        let mut params = ListParams::default().labels(&label).limit(PAGE);
        loop {
            let page = api.list_metadata(&params).await.map_err(|error| Unread::of(&error, "list pods"))?;
            for found in &page.items {
                let name = found.namespace().unwrap_or_default();
                let is_checked = namespaces.iter().any(|it| it.name == name && it.is_audited());
                if !is_checked && found.metadata.deletion_timestamp.is_none() {
                    let (reason, action) = self.why_not(&name);
                    groups.add(&name, &found.metadata, State::Missing, reason, Some(action));
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(()),
            }
        }
    }

    fn why_not(&self, namespace: &str) -> (String, String) {
        if self.scope.covers(namespace) {
            let reason = "the namespace is not enabled, so the label has no effect".to_owned();
            let action =
                format!("kubectl label namespace {namespace} {}={}", keys::ENABLED_LABEL, keys::TRUE);
            (reason, format!("{action}, and restart"))
        } else {
            let action = format!("move it to another namespace, or remove the label {}", keys::SECURED_LABEL);
            ("Lucid never acts in this namespace, so the label has no effect".to_owned(), action)
        }
    }
}

struct Progress {
    is_shown: bool,
    pods: u64,
}

impl Progress {
    fn count(&mut self) {
        self.pods += 1;
        if self.is_shown && self.pods.is_multiple_of(u64::from(PAGE)) {
            // A closed terminal does not stop the report.
            write!(std::io::stderr(), "\r{} pods", self.pods).ok();
        }
    }

    fn end(&self) {
        if self.is_shown && self.pods >= u64::from(PAGE) {
            write!(std::io::stderr(), "\r\x1b[K").ok();
        }
    }
}
