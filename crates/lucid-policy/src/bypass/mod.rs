//! Checks for ways around a chain.

mod host_alias;
pub(crate) mod host_path;

use std::collections::{BTreeMap, BTreeSet};

use lucid_chain::{ContainerView, Intercept, Plan, SettingSource, Warning, keys};
use lucid_text::{Excerpt, names::is_loopback_name};

use crate::case::Case;
use crate::container_list::ContainerList;
use crate::container_list::{declares_auditor, declares_init};
use crate::finding::{Problem, truncated};
use crate::findings::{Findings, Site};

/// Capabilities that may be added in a secured pod: those of the Pod Security level `baseline` without MKNOD, SETFCAP
/// and SETUID, and IPC_LOCK, with which servers lock their memory for GPUs and RDMA. A process could use SETFCAP and
/// SETUID to become an auditor's user.
const CAPABILITIES: [&str; 11] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "KILL",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETPCAP",
    "SYS_CHROOT",
];

/// Properties of a chain that other containers must not interfere with.
struct Chain<'p> {
    listeners: BTreeMap<i32, &'p str>,
    users: BTreeMap<i64, &'p str>,
    names: BTreeSet<&'p str>,
    host_paths: BTreeMap<&'p str, String>,
    redirects: bool,
    require_non_root: bool,
}

/// Returns the problem behind a warning about a setting that contradicts those of the namespace.
fn choice_problem(warning: &Warning) -> Option<Problem> {
    match *warning {
        Warning::SkipNotAllowed => Some(Problem::bypass(
            "SkipNotAllowed",
            format!("annotation {}: \"true\" is not allowed here; remove the annotation", keys::SKIP_AUDIT),
        )),
        Warning::ChoiceNotAllowed { key, choices } => Some(Problem::bypass(
            "ChoiceNotAllowed",
            format!(
                "annotation {key} is not allowed: {} of the namespace is \"{choices}\"; remove the annotation",
                keys::POD_CHOICES
            ),
        )),
        Warning::PortsNotClosed { source: SettingSource::Namespace, intercept } => Some(Problem::bypass(
            "PortsNotClosed",
            format!(
                "{key} of the namespace is \"closed\", which needs network rules: expected {} \"{}\", found \"{}\" \
                 ({intercept}); change it, or set {key}: \"open\" on the namespace",
                keys::INTERCEPT,
                Intercept::Redirect,
                Intercept::Env,
                key = keys::OTHER_PORTS,
            ),
        )),
        _ => None,
    }
}

impl Case<'_> {
    /// With `require_non_root`, containers must be unable to become root.
    pub(crate) fn bypass_findings(&self, require_non_root: bool, findings: &mut Findings<'_>) {
        let of_pod = findings.pod();
        let is_new = self.is_created() || !self.is_pod();
        if is_new {
            for problem in self.outcome.warnings.iter().filter_map(choice_problem) {
                findings.add(&of_pod, problem);
            }
        }
        // Annotations under which no chain can be planned do not remove the auditors from a running pod.
        if self.plan().is_none() && !self.carries_chain() {
            return;
        }
        let pod = self.pod();
        if is_new {
            self.pod_problems().for_each(|problem| findings.add(&of_pod, problem));
        }
        let redirects = match self.is_pod() {
            true => pod.init_containers().iter().any(declares_init),
            false => self.plan().is_some_and(|plan| plan.init.is_some()),
        };
        let host_paths = pod.host_paths();
        let chain = Chain {
            listeners: self.listeners(),
            users: self.users(redirects),
            names: self.names(),
            host_paths: host_paths.map(|(volume, path)| (volume, host_path(path))).collect(),
            redirects,
            require_non_root,
        };
        let planned: BTreeSet<_> = self.planned().into_iter().collect();
        let is_application = |list: ContainerList, found: &ContainerView<'_>| {
            // A running auditor that is no longer planned keeps its accepted image.
            let is_auditor = list != ContainerList::EphemeralContainers && self.runs_as_auditor(found);
            !planned.contains(&(found.name(), list)) && !is_auditor && !self.is_unchanged(list, found)
        };
        for list in ContainerList::CONTAINERS {
            for found in list.containers(pod).iter().filter(|found| is_application(list, found)) {
                let site = findings.container(list, found);
                self.container_findings(&chain, found, &site, findings);
            }
        }
        for found in self.plan().map(|plan| self.sidecars_before_rules(plan)).unwrap_or_default() {
            if is_application(ContainerList::InitContainers, found) {
                let site = findings.container(ContainerList::InitContainers, found);
                let message = "it is a native sidecar that starts before the rules for outbound traffic are installed, and can \
                               open connections that bypass the chain: expected a container of spec.containers";
                findings.add(&site, Problem::bypass("StartsBeforeRules", message));
            }
        }
    }

    /// Returns the native sidecars that start before lucid-init, if the chain covers outbound traffic.
    fn sidecars_before_rules(&self, plan: &Plan) -> Vec<&ContainerView<'_>> {
        let Some(init) = plan.init.as_ref().filter(|_| plan.covers_outbound()) else {
            return Vec::new();
        };
        // In the pods of a template, lucid-init will precede the model if that is a native sidecar, or come last.
        let ends = |found: &ContainerView<'_>| match self.is_pod() {
            true => found.name() == init.name,
            false => found.is_native_sidecar() && plan.is_model(found),
        };
        let before = self.pod().init_containers().iter().take_while(|found| !ends(found));
        before.filter(|found| found.is_native_sidecar()).collect()
    }

    fn pod_problems(&self) -> impl Iterator<Item = Problem> {
        let pod = self.pod();
        let flags = [
            (
                "hostNetwork",
                "HostNetwork",
                "hostNetwork is true: the model can be called on the node, past the chain; expected false, with a Service or a \
                 hostPort to reach it",
            ),
            (
                "hostPID",
                "HostPID",
                "hostPID is true: the auditors' processes can be reached from the pod; expected false",
            ),
            (
                "hostIPC",
                "HostIPC",
                "hostIPC is true: the model can be called through the node's shared memory, past the chain; expected false, with \
                 an emptyDir of medium Memory at /dev/shm",
            ),
            (
                "shareProcessNamespace",
                "SharedProcesses",
                "shareProcessNamespace is true: the auditors' processes and files can be reached from other containers; expected \
                 false, with a volume of type image for files of another image",
            ),
        ];
        let shared: Vec<_> = pod.shared_namespaces().collect();
        let flags = flags.into_iter().filter(move |(field, ..)| shared.contains(field));
        let flags = flags.map(|(_, reason, message)| Problem::bypass(reason, message));
        let names = pod.host_names().filter(|(_, name)| is_loopback_name(name));
        let names = names.filter_map(|(address, name)| {
            if let Some(address) = address {
                return (!host_alias::is_loopback(address)).then(|| host_alias(address, name));
            }
            let message = format!(
                "the pod's host name is {}, and each auditor calls the next one by localhost, which would be the pod's address \
                 as well: expected any other hostname",
                Excerpt(name)
            );
            Some(Problem::bypass("Hostname", message))
        });
        flags.chain(names)
    }

    fn container_findings<'p>(
        &self,
        chain: &Chain<'_>,
        found: &ContainerView<'_>,
        site: &Site<'_, 'p>,
        findings: &mut Findings<'p>,
    ) {
        let (own, of_pod) = (found.privileges(), self.pod().privileges());
        let is_privileged = own.is_some_and(|own| own.is_privileged());
        if is_privileged {
            let message = "it is privileged and can change the network rules of the chain; expected privileged: false; use a \
                           device plugin for devices";
            findings.add(site, Problem::bypass("Privileged", message));
        }
        if own.is_some_and(|own| own.proc_mount() != "Default") {
            let message = "securityContext.procMount is not Default: it can change the pod's network settings; expected Default";
            findings.add(site, Problem::bypass("UnmaskedProc", message));
        }
        let may_keep = self.plan().is_some_and(|plan| plan.keep_privileges);
        // Injection will remove NET_RAW and privilege escalation from the pods of a template.
        let is_hardened = !self.is_pod() && chain.redirects && !may_keep;
        let mut keeps_net_raw = !is_privileged && !own.is_some_and(|own| own.drops("NET_RAW"));
        for name in own.into_iter().flat_map(|own| own.added()) {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            if is("NET_RAW") && (may_keep || is_hardened) {
                keeps_net_raw = true;
            } else if !CAPABILITIES.into_iter().any(is) {
                let message = format!(
                    "it adds the capability {}, which is not allowed beside an auditor chain: expected one of {}",
                    Excerpt(&truncated(name).to_ascii_uppercase()),
                    CAPABILITIES.join(", ")
                );
                findings.add(site, Problem::bypass("Capability", message));
                // Avoids a second finding about NET_RAW.
                keeps_net_raw &= !is("NET_RAW") && !is("ALL");
            }
        }
        if chain.redirects && keeps_net_raw && !is_hardened {
            let message = "it keeps the capability NET_RAW, with which it can write into connections past the chain: expected \
                           capabilities.drop with NET_RAW or ALL";
            findings.add(site, Problem::bypass("Capability", message).warn_if(may_keep));
        }
        // Ephemeral containers are never part of a chain.
        let is_ephemeral = site.list() == Some(ContainerList::EphemeralContainers);
        if is_ephemeral && (chain.names.contains(found.name()) || self.is_name_of_auditor(found.name())) {
            let message = "it bears the name of an auditor, and an ephemeral container is never part of a chain: expected \
                           any other name";
            findings.add(site, Problem::bypass("AuditorName", message));
        }
        if let Some(auditor) = found.target().filter(|target| chain.names.contains(target)) {
            let message = format!(
                "targetContainerName is auditor {}, whose processes and files it would reach: expected a container of the \
                 application",
                Excerpt(auditor)
            );
            findings.add(site, Problem::bypass("AuditorTarget", message));
        }
        for volume in found.mounted_volumes() {
            if let Some(path) = chain.host_paths.get(volume) {
                let message = format!(
                    "volume {} mounts {} of the node: expected a hostPath of an exemption",
                    Excerpt(volume),
                    Excerpt(path)
                );
                let problem = Problem::bypass("HostPath", message);
                findings.add(site, Problem { host_path: Some(path.clone()), ..problem });
            }
        }
        let user = own.and_then(|own| own.run_as_user()).or(of_pod.and_then(|pod| pod.run_as_user()));
        if let Some((uid, auditor)) = user.and_then(|uid| Some((uid, chain.users.get(&uid)?))) {
            let message = format!(
                "it runs as user {uid}, by which the kernel knows auditor {}, and can bypass the chain: expected any other \
                 runAsUser",
                truncated(auditor)
            );
            findings.add(site, Problem::bypass("AuditorUid", message));
        }
        let never_root =
            own.and_then(|own| own.run_as_non_root()).or(of_pod.and_then(|pod| pod.run_as_non_root()));
        // Most images run as root by default, so this is reported only with `require_non_root`.
        let may_be_root =
            user == Some(0) || (chain.require_non_root && user.is_none() && never_root != Some(true));
        if may_be_root && !own.is_some_and(|own| own.drops("SETUID")) {
            let message = "it may run as root and keeps SETUID, so that it can become an auditor's user: expected \
                           runAsNonRoot, another runAsUser, or capabilities.drop with SETUID or ALL";
            findings.add(site, Problem::bypass("Root", message).warn_if(!chain.require_non_root));
        }
        let by_default = !is_hardened && (chain.redirects || chain.require_non_root);
        let may_escalate = own.and_then(|own| own.allows_privilege_escalation()).unwrap_or(by_default);
        // A privileged container is already reported.
        if may_escalate && !is_privileged {
            let message =
                "it can become an auditor's user by a setuid file: expected allowPrivilegeEscalation: false";
            let is_refused = chain.require_non_root || (chain.redirects && !may_keep && !is_hardened);
            findings.add(site, Problem::bypass("PrivilegeEscalation", message).warn_if(!is_refused));
        }
        for port in found.tcp_ports() {
            if let Some(auditor) = chain.listeners.get(&port) {
                let message = format!(
                    "it declares port {port}, on which auditor {} listens, and can stand in its place: expected any other port",
                    truncated(auditor)
                );
                findings.add(site, Problem::bypass("AuditorPort", message));
            }
        }
    }

    fn names(&self) -> BTreeSet<&str> {
        let running =
            ContainerList::chain_containers(self.pod()).filter(|(_, found)| declares_auditor(found));
        running
            .map(|(_, found)| found.name())
            .chain(self.planned().into_iter().map(|(name, _)| name))
            .collect()
    }

    /// Returns `true` for a container that runs as an auditor. The plan cannot tell: it depends on annotations, which
    /// can be changed while the pod runs.
    fn runs_as_auditor(&self, found: &ContainerView<'_>) -> bool {
        !self.is_created() && declares_auditor(found)
    }

    fn users(&self, redirects: bool) -> BTreeMap<i64, &str> {
        let planned = self.plan().into_iter().flat_map(|plan| &plan.containers);
        let planned = planned.filter_map(|planned| Some((i64::from(planned.uid?), planned.name.as_str())));
        // Without network rules, OpenShift gives auditors and applications the same user.
        let is_assigned = self.settings.sets_uids() && !redirects;
        let running = ContainerList::chain_containers(self.pod())
            .filter(|(_, found)| !is_assigned && self.runs_as_auditor(found));
        let running = running.filter_map(|(_, found)| {
            let user = found.privileges().and_then(|own| own.run_as_user())?;
            (user != 0).then_some((user, found.name()))
        });
        running.chain(planned).collect()
    }

    /// Returns the auditors by the ports that the pod declares for them. A new plan would assign other ports where an
    /// application has taken theirs.
    fn listeners(&self) -> BTreeMap<i32, &str> {
        let planned: BTreeSet<_> = self.planned().into_iter().collect();
        let auditors = ContainerList::chain_containers(self.pod()).filter(|(list, found)| {
            (planned.contains(&(found.name(), *list)) && found.name() != keys::INIT_CONTAINER)
                || self.runs_as_auditor(found)
        });
        auditors.flat_map(|(_, found)| found.tcp_ports().map(|port| (port, found.name()))).collect()
    }
}

fn host_alias(address: &str, name: &str) -> Problem {
    let message = format!(
        "hostAliases gives {} the address {}, and each auditor calls the next one by localhost: expected \
         127.0.0.1 or ::1",
        Excerpt(name),
        Excerpt(address)
    );
    Problem::bypass("HostAlias", message)
}

fn host_path(path: &str) -> String {
    truncated(&host_path::normalized(path))
}
