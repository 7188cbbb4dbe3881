//! What can get around a chain.

mod host_alias;
mod host_path;

use std::collections::{BTreeMap, BTreeSet};

use lucid_chain::{ContainerView, Warning, keys};

use crate::auditors::Place;
use crate::case::{Case, location, says_auditor};
use crate::finding::{Finding, Location, Problem};

/// Capabilities that change network rules, take another user's place, read what processes or files of the node hold, or open
/// the way to these.
const CAPABILITIES: [&str; 8] =
    ["ALL", "NET_ADMIN", "SETUID", "SYS_ADMIN", "SYS_MODULE", "BPF", "PERFMON", "DAC_READ_SEARCH"];
/// Those of them that leave something behind in the pod's network: rules that are there before ours count before ours, for a
/// connection is translated once.
const LASTING: [&str; 5] = ["ALL", "NET_ADMIN", "SYS_ADMIN", "SYS_MODULE", "BPF"];
/// Those that are worth a warning. NET_RAW every container has that does not drop it, so to refuse who writes it down would
/// stop nobody; SYS_PTRACE, which `kubectl debug` asks for, reaches only processes that the container sees anyway.
const DOUBTFUL: [&str; 2] = ["NET_RAW", "SYS_PTRACE"];

/// What containers are compared with.
struct Chain<'p> {
    /// Names of auditors by the ports that they listen on.
    listeners: BTreeMap<i32, &'p str>,
    /// Names of auditors by their users.
    users: BTreeMap<i64, &'p str>,
    /// Names of the containers of the chain.
    names: BTreeSet<&'p str>,
    /// What of the node is mounted, by volume.
    host_paths: BTreeMap<&'p str, &'p str>,
}

/// The problem with an annotation that the pod's author may not set.
fn choice_problem(warning: &Warning) -> Option<Problem> {
    match *warning {
        Warning::SkipNotAllowed => Some(Problem::SkipNotAllowed),
        Warning::ChoiceNotAllowed { key, choices } => Some(Problem::ChoiceNotAllowed { key, choices }),
        _ => None,
    }
}

impl Case<'_> {
    /// What of a secured pod can get around its chain. `require_non_root` asks of containers that they cannot be root.
    pub(crate) fn bypass_findings(&self, require_non_root: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        let is_new = self.is_created() || !self.is_pod();
        if is_new {
            let choices = self.outcome.warnings.iter().filter_map(choice_problem);
            findings.extend(choices.map(|problem| Finding::new(None, problem)));
        }
        // Annotations by which no chain would fit any more do not take auditors out of a pod that runs.
        if self.plan().is_none() && !self.carries_chain() {
            return findings;
        }
        let pod = self.pod();
        if is_new {
            findings.extend(self.pod_problems().into_iter().map(|problem| Finding::new(None, problem)));
        }
        let chain = Chain {
            listeners: self.listeners(),
            users: self.users(),
            names: self.names(),
            host_paths: pod.host_paths().collect(),
        };
        let planned = self.planned();
        let is_planned = |place: Place, name: &str| planned.contains(&(name, place));
        let first =
            pod.init_containers().iter().position(|found| is_planned(Place::InitContainers, found.name()));
        for place in Place::CONTAINERS {
            for (number, found) in place.of(pod).iter().enumerate() {
                // An auditor that is not planned any more runs on, with the image that it is allowed.
                let is_auditor = place != Place::EphemeralContainers && self.runs_as_auditor(found);
                if is_planned(place, found.name()) || is_auditor || self.stood(place, found) {
                    continue;
                }
                // What has ended before there are rules reaches nothing that they hide, but may have left rules of its own.
                let ends_before = place == Place::InitContainers
                    && !found.is_native_sidecar()
                    && first.map_or(!self.is_pod(), |first| number < first);
                let location = location(place, found);
                self.container_findings(
                    &chain,
                    found,
                    &location,
                    ends_before,
                    require_non_root,
                    &mut findings,
                );
            }
        }
        findings
    }

    /// What of the pod as a whole can get around its chain.
    fn pod_problems(&self) -> Vec<Problem> {
        let pod = self.pod();
        let flags = [
            (pod.host_network(), Problem::HostNetwork),
            (pod.host_pid(), Problem::HostPid),
            (pod.host_ipc(), Problem::HostIpc),
            (pod.shares_processes(), Problem::SharedProcesses),
        ];
        let hostname = pod.hostname().filter(|name| host_alias::is_loopback_name(name));
        let aliases = pod.host_aliases().filter(|(address, name)| {
            host_alias::is_loopback_name(name) && !host_alias::is_loopback(address)
        });
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, problem)| problem);
        let hostname = hostname.map(|name| Problem::Hostname { name: name.to_owned() });
        let aliases = aliases
            .map(|(address, name)| Problem::HostAlias { name: name.to_owned(), address: address.to_owned() });
        flags.chain(hostname).chain(aliases).collect()
    }

    fn container_findings(
        &self,
        chain: &Chain<'_>,
        found: &ContainerView<'_>,
        location: &Location,
        ends_before: bool,
        require_non_root: bool,
        findings: &mut Vec<Finding>,
    ) {
        let mut add = |problem, lenient: bool| {
            let finding = Finding::new(Some(location.clone()), problem);
            findings.push(if lenient { finding.lenient() } else { finding });
        };
        let (own, of_pod) = (found.privileges(), self.pod().privileges());
        if own.is_some_and(|own| own.is_privileged()) {
            add(Problem::Privileged, false);
        }
        if own.is_some_and(|own| own.proc_mount() != "Default") {
            add(Problem::UnmaskedProc, ends_before);
        }
        for name in own.into_iter().flat_map(|own| own.added()) {
            let name = name.to_ascii_uppercase();
            let is_doubtful = DOUBTFUL.contains(&name.as_str());
            if is_doubtful || CAPABILITIES.contains(&name.as_str()) {
                let is_over = ends_before && !LASTING.contains(&name.as_str());
                add(Problem::Capability { name }, is_over || is_doubtful);
            }
        }
        // What is ephemeral is never part of a chain.
        let is_ephemeral = location.place == Place::EphemeralContainers;
        if is_ephemeral && (chain.names.contains(found.name()) || self.is_name_of_auditor(found.name())) {
            add(Problem::AuditorName, false);
        }
        if let Some(auditor) = found.target().filter(|target| chain.names.contains(target)) {
            add(Problem::AuditorTarget { auditor: auditor.to_owned() }, false);
        }
        // A container that somebody starts from there does not end with this one.
        for mount in found.mounts() {
            let Some(path) = chain.host_paths.get(mount.volume()) else { continue };
            let path = host_path::mounted(path, mount.sub_path());
            if let Some(kept) = host_path::kept(&path) {
                add(Problem::HostPath { volume: mount.volume().to_owned(), path, kept }, false);
            }
        }
        if !ends_before {
            let user = own.and_then(|own| own.run_as_user()).or(of_pod.and_then(|pod| pod.run_as_user()));
            if let Some((uid, auditor)) = user.and_then(|uid| Some((uid, chain.users.get(&uid)?))) {
                add(Problem::AuditorUid { uid, auditor: (*auditor).to_owned() }, false);
            }
            let never_root =
                own.and_then(|own| own.run_as_non_root()).or(of_pod.and_then(|pod| pod.run_as_non_root()));
            // Most images run as root when nobody says otherwise: only who asks for more hears of these.
            let may_be_root =
                user == Some(0) || (require_non_root && user.is_none() && never_root != Some(true));
            if may_be_root && !own.is_some_and(|own| own.drops("SETUID")) {
                add(Problem::Root, !require_non_root);
            }
        }
        for port in found.ports().filter(|port| port.is_tcp()).filter_map(|port| port.container_port()) {
            if let Some(auditor) = chain.listeners.get(&port) {
                add(Problem::AuditorPort { port, auditor: (*auditor).to_owned() }, false);
            }
        }
    }

    /// The containers of the chain, those of the plan and the auditors that run.
    fn names(&self) -> BTreeSet<&str> {
        let running = Place::of_chain(self.pod()).filter(|(_, found)| says_auditor(found));
        running
            .map(|(_, found)| found.name())
            .chain(self.planned().into_iter().map(|(name, _)| name))
            .collect()
    }

    /// Whether an auditor runs in the container: annotations that the plan comes from can be changed while it does.
    fn runs_as_auditor(&self, found: &ContainerView<'_>) -> bool {
        !self.is_created() && says_auditor(found)
    }

    /// The auditors by their users, those of the plan and those that run.
    fn users(&self) -> BTreeMap<i64, &str> {
        let planned = self.plan().into_iter().flat_map(|plan| &plan.containers);
        let planned = planned.map(|planned| (i64::from(planned.uid), planned.name.as_str()));
        let running = Place::of_chain(self.pod()).filter(|(_, found)| self.runs_as_auditor(found));
        let running = running.filter_map(|(_, found)| {
            let user = found.privileges().and_then(|own| own.run_as_user())?;
            (user != 0).then_some((user, found.name()))
        });
        running.chain(planned).collect()
    }

    /// The auditors by the ports that they listen on as they stand in the pod: planning again would give them others where an
    /// application has taken theirs.
    fn listeners(&self) -> BTreeMap<i32, &str> {
        let planned: BTreeSet<_> = self.planned().into_iter().collect();
        let auditors = Place::of_chain(self.pod()).filter(|(place, found)| {
            (planned.contains(&(found.name(), *place)) && found.name() != keys::INIT_CONTAINER)
                || self.runs_as_auditor(found)
        });
        let ports =
            auditors.flat_map(|(_, found)| found.ports().map(|port| (port.container_port(), found.name())));
        ports.filter_map(|(port, name)| Some((port?, name))).collect()
    }
}
