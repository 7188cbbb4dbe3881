//! Permissions that each program needs. Tests compare the manifests in deploy/ with this list.

use lucid_admission::auditor::CRD_NAME;
use lucid_admission::{GENERATIONS_CONFIG_MAP, KeeperAction, POLICY_CONFIG_MAP, WEBHOOKS_CONFIG_MAP};
use lucid_chain::keys;

use super::Permission;
use crate::serving::Program;
use crate::serving::args::ServingArgs;
use crate::serving::certificate_args::Source;

const REGISTRATION: &str = "admissionregistration.k8s.io";
/// Namespace of events about cluster-scoped objects.
const NO_NAMESPACE: &str = "default";
const WATCH: [&str; 2] = ["list", "watch"];
/// Verbs for an object that the program creates by server-side apply and replaces.
const KEEP: [&str; 6] = ["get", "list", "watch", "create", "patch", "update"];

/// A permission and its purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Permission to be granted
    pub permission: Permission,
    /// `true` if the program does not work without it: it is not ready, or pods are rejected or not audited
    pub is_vital: bool,
    /// Consequence of its absence, such as `no certificate is served`
    pub loss: &'static str,
}

impl Need {
    /// Creates a need without which the program does not work.
    #[must_use]
    pub fn vital(permission: Permission, loss: &'static str) -> Self {
        Self { permission, is_vital: true, loss }
    }

    /// Creates a need without which the program still does its main work.
    #[must_use]
    pub fn useful(permission: Permission, loss: &'static str) -> Self {
        Self { permission, is_vital: false, loss }
    }
}

/// Functions of a program, from which its permissions follow.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'a> {
    /// Program
    pub program: Program,
    /// Namespace and certificate source
    pub serving: &'a ServingArgs,
    /// `true` if the program injects chains: it registers the mutating webhook and reports problems of chains and pods.
    /// Otherwise it only validates.
    pub injects: bool,
    /// `true` if the program registers its validating webhooks. Otherwise it removes an earlier registration.
    pub validates: bool,
    /// Actions on running pods; `None` if they are not watched.
    pub keeper: Option<&'a [KeeperAction]>,
}

impl Needs<'_> {
    /// Returns the needed permissions without duplicates.
    #[must_use]
    pub fn permissions(self) -> Vec<Need> {
        let mut needs = self.of_configuration();
        needs.extend(self.of_registration());
        needs.extend(self.of_certificates());
        needs.extend(self.of_events());
        needs.extend(self.of_keeper());
        // Always, because a service account in ConfigMap `lucid-webhooks` takes effect without a restart.
        let permission = Permission::new(&["create"], "authorization.k8s.io", "subjectaccessreviews");
        needs.push(Need::useful(
            permission,
            "break-glass tickets are not accepted if they need a permission, and webhooks with a serviceAccountName fail",
        ));
        needs
    }

    fn of_configuration(self) -> Vec<Need> {
        const NOT_READY: &str = "the configuration cannot be read, and the program does not become ready";
        let namespace = &self.serving.namespace;
        let definition =
            Permission::new(&WATCH, "apiextensions.k8s.io", "customresourcedefinitions").named(CRD_NAME);
        let config_maps = Permission::new(&WATCH, "", "configmaps");
        let mut needs = vec![
            Need::vital(config_maps.clone().named(keys::CATALOGUE_CONFIG_MAP).within(namespace), NOT_READY),
            Need::vital(config_maps.clone().named(keys::CANARY_CONFIG_MAP).within(namespace), NOT_READY),
            Need::vital(config_maps.clone().named(POLICY_CONFIG_MAP).within(namespace), NOT_READY),
            Need::vital(config_maps.clone().named(WEBHOOKS_CONFIG_MAP).within(namespace), NOT_READY),
            Need::vital(config_maps.named(keys::NAMESPACE_CONFIG_MAP), NOT_READY),
            Need::vital(Permission::new(&WATCH, "", "namespaces"), NOT_READY),
            Need::vital(definition, NOT_READY),
            Need::vital(Permission::new(&WATCH, "lucid.computing", "auditors"), NOT_READY),
        ];
        let verbs: &[_] = if self.injects { &["list", "watch", "create", "patch"] } else { &WATCH };
        let permission =
            Permission::new(verbs, "", "configmaps").named(GENERATIONS_CONFIG_MAP).within(namespace);
        needs.push(Need::useful(
            permission,
            "during a rollout, replicas deny the chains of replicas with other settings",
        ));
        if self.injects {
            let permission = Permission::new(&["patch"], "lucid.computing", "auditors/status");
            needs.push(Need::useful(permission, "the status of Auditors is not updated"));
        }
        needs
    }

    fn of_registration(self) -> Vec<Need> {
        let name = self.program.name;
        let mut needs = Vec::new();
        if !self.serving.certificates.registers() {
            return needs;
        }
        if self.injects {
            let permission =
                Permission::new(&KEEP, REGISTRATION, "mutatingwebhookconfigurations").named(name);
            needs.push(Need::vital(
                permission,
                "the mutating webhook is not kept registered, or its certificate is not trusted",
            ));
        }
        let configuration =
            |verbs| Permission::new(verbs, REGISTRATION, "validatingwebhookconfigurations").named(name);
        needs.push(if self.validates {
            Need::vital(
                configuration(&KEEP),
                "the validating webhooks are not kept registered, or their certificate is not trusted",
            )
        } else {
            Need::useful(
                configuration(&["get", "list", "watch", "delete"]),
                "an earlier registration is not removed, and pods are denied when its webhook does not respond",
            )
        });
        needs
    }

    fn of_certificates(self) -> Vec<Need> {
        const NOT_SERVED: &str = "no certificate is served or renewed";
        let options = &self.serving.certificates;
        let secrets = |verbs| Permission::new(verbs, "", "secrets").within(&self.serving.namespace);
        let authority = options.authority_secret(self.program);
        let certificate = options.certificate_secret(self.program);
        match options.certificates {
            Source::SelfSigned => {
                let mut needs = vec![Need::vital(secrets(&KEEP).named(authority), NOT_SERVED)];
                if !options.certificate_per_replica {
                    let verbs = ["get", "create", "patch", "update"];
                    needs.push(Need::vital(secrets(&verbs).named(certificate), NOT_SERVED));
                }
                needs
            }
            Source::CertManager | Source::Openshift | Source::Secret if options.tls_directory.is_none() => {
                vec![Need::vital(secrets(&WATCH).named(certificate), NOT_SERVED)]
            }
            Source::CertManager | Source::Openshift | Source::Secret | Source::Olm | Source::Files => {
                Vec::new()
            }
        }
    }

    fn of_keeper(self) -> Vec<Need> {
        const NOT_WATCHED: &str = "running pods are not watched";
        const NOT_UPDATED: &str = "auditors of running pods are not updated";
        const NOT_EVICTED: &str = "running pods are not evicted";
        const NOT_RESTARTED: &str = "workloads are not restarted";
        let Some(actions) = self.keeper else { return Vec::new() };
        let lease = Permission::new(&["get", "create", "patch"], "coordination.k8s.io", "leases");
        let mut needs = vec![
            Need::useful(Permission::new(&WATCH, "", "pods"), NOT_WATCHED),
            Need::useful(lease.named(lucid_keeper::LEASE).within(&self.serving.namespace), NOT_WATCHED),
        ];
        for (group, resource) in [("openreports.io", "reports"), ("wgpolicyk8s.io", "policyreports")] {
            let permission = Permission::new(&["list", "create", "patch", "delete"], group, resource);
            let permission = permission.named(lucid_keeper::REPORT);
            needs.push(Need::useful(permission, "reports on running pods are not written"));
        }
        let apps = |verbs, resource, loss| Need::useful(Permission::new(verbs, "apps", resource), loss);
        for action in actions {
            match action {
                KeeperAction::Report => {}
                KeeperAction::Update => {
                    needs.push(Need::useful(Permission::new(&["patch"], "", "pods"), NOT_UPDATED));
                }
                KeeperAction::Evict => {
                    needs.push(Need::useful(Permission::new(&["create"], "", "pods/eviction"), NOT_EVICTED));
                    // A rollout needs these, too.
                    let resources = ["statefulsets", "daemonsets"];
                    for resource in resources.iter().filter(|_| !actions.contains(&KeeperAction::Rollout)) {
                        needs.push(apps(&["get"], resource, NOT_EVICTED));
                    }
                }
                KeeperAction::Rollout => {
                    for resource in ["deployments", "statefulsets", "daemonsets"] {
                        needs.push(apps(&["get", "patch"], resource, NOT_RESTARTED));
                    }
                }
            }
        }
        needs
    }

    fn of_events(self) -> Vec<Need> {
        let events = Permission::new(&["create", "patch"], "events.k8s.io", "events");
        if self.injects {
            const NOT_FOUND: &str =
                "events about pods are recorded on ReplicaSets and Jobs, not on their owners";
            return vec![
                Need::useful(events, "events about pods and certificates are not recorded"),
                Need::useful(Permission::new(&["get"], "apps", "replicasets"), NOT_FOUND),
                Need::useful(Permission::new(&["get"], "batch", "jobs"), NOT_FOUND),
            ];
        }
        let mut needs = Vec::new();
        if self.serving.certificates.certificates == Source::SelfSigned {
            let permission = events.clone().within(&self.serving.namespace);
            needs.push(Need::useful(permission, "events about certificates are not recorded"));
        }
        if self.serving.certificates.registers() {
            needs.push(Need::useful(
                events.within(NO_NAMESPACE),
                "events about conflicting writers of the registration are not recorded",
            ));
        }
        // Merges adjacent needs of the same permission.
        needs.dedup_by(|one, other| one.permission == other.permission);
        needs
    }
}
