//! What can be wrong with a pod, and how grave it is.

use std::fmt;

use lucid_chain::PodChoices;

use crate::auditors::Place;
use crate::text::{self, Excerpt, shown};

/// Capabilities that may be added beside a chain: those of the Pod Security level `baseline` without SETUID and SETFCAP, by
/// which a process becomes an auditor's user, and MKNOD.
pub(crate) const CAPABILITIES: [&str; 10] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETPCAP",
    "SYS_CHROOT",
];

/// What a finding does to a pod where the policy is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Its user is warned.
    Warn,
    /// It is refused.
    Refuse,
}

/// The container, or image volume, that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// In which list of the pod's spec it stands.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// Its image as the pod names it; empty when it names none.
    pub image: String,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How grave it is under the policy that found it.
    pub severity: Severity,
    /// Where; `None` for what is about the whole pod.
    pub location: Option<Location>,
    /// What.
    pub problem: Problem,
}

/// The part of the policy that a problem belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// Whether the images of auditors are notarized.
    Images,
    /// Whether the chain is there, whole and in order.
    Chain,
    /// Whether something of the pod can get around its chain.
    Bypass,
    /// The required label, and names that nobody reads.
    Labels,
    /// The ticket of a pod that breaks the glass.
    BreakGlass,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// An auditor's image is not an image reference.
    InvalidReference {
        /// What is wrong with it, and where.
        reason: String,
    },
    /// An auditor's image is named by tag only, which may mean another image tomorrow.
    MissingDigest,
    /// The Verifier does not know the digest as notarized.
    NotNotarized,
    /// The Verifier could not be asked.
    Unverified {
        /// Why not.
        reason: String,
    },

    /// The pod has to have a chain and has none.
    ChainMissing {
        /// Who demands it.
        demand: Demand,
    },
    /// A container of the chain is not where it has to be.
    ContainerMissing,
    /// A container of the chain is another than the planned one.
    ContainerDiffers {
        /// The first field that differs, such as `image`, `ports`, `securityContext` or `env LUCID_CHAIN_NEXT`.
        field: String,
    },
    /// A container of the chain stands in the wrong order.
    ContainerMoved,
    /// No chain fits into the pod, which has to have one.
    ChainImpossible {
        /// Why not.
        reason: String,
    },
    /// Something else of the pod is not as injection would make it.
    NotAsInjected {
        /// JSON pointer into the pod.
        path: String,
    },
    /// An auditor that is no part of the chain.
    LeftoverAuditor,

    /// It runs as the user by which the kernel knows an auditor.
    AuditorUid {
        /// The user.
        uid: i64,
        /// The auditor's container.
        auditor: String,
    },
    /// It runs as root and keeps SETUID, so that it can become an auditor's user.
    Root,
    /// It is privileged.
    Privileged,
    /// It adds a capability that is not allowed beside a chain.
    Capability {
        /// Its name, without the prefix `CAP_`.
        name: String,
    },
    /// It keeps NET_RAW, which container runtimes grant by default.
    NetRaw,
    /// It can gain privileges by setuid files.
    PrivilegeEscalation,
    /// It is a native sidecar that starts before the rules for outbound traffic are installed.
    StartsBeforeRules,
    /// It declares the port that an auditor listens on.
    AuditorPort {
        /// The port.
        port: i32,
        /// The auditor's container.
        auditor: String,
    },
    /// The pod is on the node's network.
    HostNetwork,
    /// The pod sees the node's processes.
    HostPid,
    /// The pod shares memory and message queues with the node.
    HostIpc,
    /// The pod's containers see each other's processes, auditors' included.
    SharedProcesses,
    /// A name of the loopback interface, by which auditors forward, has another address as well.
    HostAlias {
        /// The name, such as `localhost`.
        name: String,
        /// The address.
        address: String,
    },
    /// The pod goes by a name of the loopback interface, which so has the pod's address as well.
    Hostname {
        /// The name.
        name: String,
    },
    /// It mounts a path of the node that is not configured.
    HostPath {
        /// The volume.
        volume: String,
        /// The path of the node.
        path: String,
    },
    /// Its `/proc` is not masked: it can write the pod's network settings.
    UnmaskedProc,
    /// It bears the name of an auditor, and is none.
    AuditorName,
    /// It is to be among the processes of an auditor.
    AuditorTarget {
        /// The auditor's container.
        auditor: String,
    },
    /// The pod asks for no auditors and may not.
    SkipNotAllowed,
    /// The pod has an annotation by which the namespace lets no pod choose.
    ChoiceNotAllowed {
        /// Key of the annotation.
        key: &'static str,
        /// Choices that the namespace allows.
        choices: PodChoices,
    },

    /// The required label is not there.
    TierMissing {
        /// Its key.
        key: String,
        /// The values that are accepted.
        accepted: Vec<String>,
    },
    /// The required label has another value.
    TierInvalid {
        /// Its key.
        key: String,
        /// Its value.
        found: String,
        /// The values that are accepted.
        accepted: Vec<String>,
    },
    /// A label or annotation is not one that Lucid reads, and nearly is.
    Misspelt {
        /// `label` or `annotation`.
        list: &'static str,
        /// Its key.
        key: String,
        /// What may have been meant, such as `label lucid.io/secured`.
        meant: String,
    },

    /// A ticket does not look like one.
    TicketInvalid {
        /// The ticket.
        found: String,
        /// The pattern that is accepted; `None` where none is.
        accepted: Option<String>,
    },
    /// The time until which a ticket holds cannot be read.
    ExpiryInvalid {
        /// The value of the annotation.
        found: String,
    },
    /// The ticket does not hold any more.
    TicketExpired {
        /// Until when it did.
        until: String,
    },
    /// Who asks may not break the glass.
    NotPermitted {
        /// Who asks, and why not.
        reason: String,
    },
    /// The namespace lets pods break the glass only with a permission, and none is checked.
    TicketNotAllowed {
        /// Choices that the namespace allows.
        choices: PodChoices,
    },
}

/// Who demands a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Demand {
    /// The pod itself, by its label or annotation.
    Pod,
    /// Its namespace.
    Namespace,
}

impl Problem {
    /// What it is about, for machines: fit for a metric's label. There are no more of these than variants, and none changes.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::InvalidReference { .. } => "InvalidReference",
            Self::MissingDigest => "MissingDigest",
            Self::NotNotarized => "NotNotarized",
            Self::Unverified { .. } => "Unverified",
            Self::ChainMissing { .. } => "ChainMissing",
            Self::ContainerMissing => "ContainerMissing",
            Self::ContainerDiffers { .. } => "ContainerDiffers",
            Self::ContainerMoved => "ContainerMoved",
            Self::ChainImpossible { .. } => "ChainImpossible",
            Self::NotAsInjected { .. } => "NotAsInjected",
            Self::LeftoverAuditor => "LeftoverAuditor",
            Self::AuditorUid { .. } => "AuditorUid",
            Self::Root => "Root",
            Self::Privileged => "Privileged",
            Self::Capability { .. } | Self::NetRaw => "Capability",
            Self::PrivilegeEscalation => "PrivilegeEscalation",
            Self::StartsBeforeRules => "StartsBeforeRules",
            Self::AuditorPort { .. } => "AuditorPort",
            Self::HostNetwork => "HostNetwork",
            Self::HostPid => "HostPID",
            Self::HostIpc => "HostIPC",
            Self::SharedProcesses => "SharedProcesses",
            Self::HostAlias { .. } => "HostAlias",
            Self::Hostname { .. } => "Hostname",
            Self::HostPath { .. } => "HostPath",
            Self::UnmaskedProc => "UnmaskedProc",
            Self::AuditorName => "AuditorName",
            Self::AuditorTarget { .. } => "AuditorTarget",
            Self::SkipNotAllowed => "SkipNotAllowed",
            Self::ChoiceNotAllowed { .. } => "ChoiceNotAllowed",
            Self::TierMissing { .. } => "TierMissing",
            Self::TierInvalid { .. } => "TierInvalid",
            Self::Misspelt { .. } => "Misspelt",
            Self::TicketInvalid { .. } => "TicketInvalid",
            Self::ExpiryInvalid { .. } => "ExpiryInvalid",
            Self::TicketExpired { .. } => "TicketExpired",
            Self::NotPermitted { .. } => "NotPermitted",
            Self::TicketNotAllowed { .. } => "TicketNotAllowed",
        }
    }

    /// The part of the policy that it belongs to.
    #[must_use]
    pub const fn check(&self) -> Check {
        match self {
            Self::InvalidReference { .. }
            | Self::MissingDigest
            | Self::NotNotarized
            | Self::Unverified { .. } => Check::Images,
            Self::ChainMissing { .. }
            | Self::ContainerMissing
            | Self::ContainerDiffers { .. }
            | Self::ContainerMoved
            | Self::ChainImpossible { .. }
            | Self::NotAsInjected { .. }
            | Self::LeftoverAuditor => Check::Chain,
            Self::AuditorUid { .. }
            | Self::Root
            | Self::Privileged
            | Self::Capability { .. }
            | Self::NetRaw
            | Self::PrivilegeEscalation
            | Self::StartsBeforeRules
            | Self::AuditorPort { .. }
            | Self::HostNetwork
            | Self::HostPid
            | Self::HostIpc
            | Self::SharedProcesses
            | Self::HostAlias { .. }
            | Self::Hostname { .. }
            | Self::HostPath { .. }
            | Self::UnmaskedProc
            | Self::AuditorName
            | Self::AuditorTarget { .. }
            | Self::SkipNotAllowed
            | Self::ChoiceNotAllowed { .. } => Check::Bypass,
            Self::TierMissing { .. } | Self::TierInvalid { .. } | Self::Misspelt { .. } => Check::Labels,
            Self::TicketInvalid { .. }
            | Self::ExpiryInvalid { .. }
            | Self::TicketExpired { .. }
            | Self::NotPermitted { .. }
            | Self::TicketNotAllowed { .. } => Check::BreakGlass,
        }
    }
}

/// One line without control characters, whose length has a bound: fit for an admission warning, a denial or a log line.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Location { place, name, image }) = &self.location {
            // The API server accepts control characters within an image.
            let (name, image) = (shown(name, text::NAME), shown(image, text::IMAGE));
            match self.problem.check() {
                Check::Images => write!(f, "auditor {place} {name}, image {image}: ")?,
                _ => write!(f, "{place} {name}: ")?,
            }
        }
        self.problem.fmt(f)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use lucid_chain::keys;
        match self {
            Self::InvalidReference { reason } => write!(f, "not an image reference: {reason}"),
            Self::MissingDigest => f.write_str("missing digest (strict notarization accepts only image@sha256:…)"),
            Self::NotNotarized => f.write_str("not notarized"),
            Self::Unverified { reason } => write!(f, "could not be verified: {reason}"),

            Self::ChainMissing { demand: Demand::Namespace } => write!(
                f,
                "the namespace requires an auditor chain ({}) and the pod has none: set its label {}: \"true\"",
                keys::REQUIRE_CHAIN,
                keys::SECURED_LABEL
            ),
            Self::ChainMissing { demand: Demand::Pod } => {
                f.write_str("the pod asks for an auditor chain and has none: it was not injected, or taken out again")
            }
            Self::ContainerMissing => f.write_str("it is part of the pod's auditor chain and is missing"),
            Self::ContainerDiffers { field } => {
                write!(f, "it is part of the pod's auditor chain and differs from the plan in {field}")
            }
            Self::ContainerMoved => {
                f.write_str("it is part of the pod's auditor chain and stands after the model or in another order")
            }
            Self::ChainImpossible { reason } => f.write_str(reason),
            Self::NotAsInjected { path } => write!(f, "{} is not as injection makes it", Excerpt(path)),
            Self::LeftoverAuditor => {
                f.write_str("it is an auditor that is no part of the pod's chain; nothing is forwarded to it: remove it")
            }

            Self::AuditorUid { uid, auditor } => write!(
                f,
                "it runs as user {uid}, by which the kernel knows auditor {auditor}, and can pass the chain by: accepted is any \
                 other runAsUser"
            ),
            Self::Root => f.write_str(
                "it may run as root and keeps SETUID, so that it can become an auditor's user: accepted is runAsNonRoot, \
                 another runAsUser, or capabilities.drop with SETUID or ALL",
            ),
            Self::Privileged => f.write_str("it is privileged and can change the network rules of the chain"),
            Self::Capability { name } => write!(
                f,
                "it adds the capability {}, which is not allowed beside an auditor chain: accepted are {}",
                Excerpt(name),
                CAPABILITIES.join(", ")
            ),
            Self::NetRaw => f.write_str(
                "it keeps the capability NET_RAW, with which it can write into connections past the chain: accepted is \
                 capabilities.drop with NET_RAW or ALL",
            ),
            Self::PrivilegeEscalation => f.write_str(
                "it can become an auditor's user by a setuid file: accepted is allowPrivilegeEscalation: false",
            ),
            Self::StartsBeforeRules => f.write_str(
                "it is a native sidecar that starts before the rules for outbound traffic are installed, and can open \
                 connections that pass the chain: accepted is a container of spec.containers",
            ),
            Self::AuditorPort { port, auditor } => {
                write!(f, "it declares port {port}, on which auditor {auditor} listens, and can stand in its place")
            }
            Self::HostNetwork => f.write_str("hostNetwork is true: the model can be called on the node, past the chain"),
            Self::HostPid => f.write_str("hostPID is true: the auditors' processes can be reached from the pod"),
            Self::SharedProcesses => f.write_str(
                "shareProcessNamespace is true: the auditors' processes and files can be reached from other containers",
            ),
            Self::HostIpc => f.write_str(
                "hostIPC is true: the model can be called through the node's shared memory, past the chain",
            ),
            Self::HostAlias { name, address } => write!(
                f,
                "hostAliases gives {} the address {}, and each auditor calls the next one by localhost: accepted are 127.0.0.1 \
                 and ::1",
                Excerpt(name),
                Excerpt(address)
            ),
            Self::Hostname { name } => write!(
                f,
                "the pod's host name is {}, and each auditor calls the next one by localhost, which would be the pod's address \
                 as well: accepted is any other hostname",
                Excerpt(name)
            ),
            Self::HostPath { volume, path } => write!(
                f,
                "volume {} mounts {} of the node: accepted are hostPaths of an exemption",
                Excerpt(volume),
                Excerpt(path)
            ),
            Self::UnmaskedProc => f.write_str(
                "securityContext.procMount is not Default: it can change the pod's network settings, accepted is Default",
            ),
            Self::AuditorName => f.write_str(
                "it bears the name of an auditor, and an ephemeral container is never part of a chain: accepted is any other name",
            ),
            Self::AuditorTarget { auditor } => write!(
                f,
                "targetContainerName is auditor {}, whose processes and files it would reach: accepted is a container of the \
                 application",
                Excerpt(auditor)
            ),
            Self::SkipNotAllowed => {
                write!(f, "annotation {}: \"true\" is not allowed here", keys::SKIP_AUDIT)
            }
            Self::ChoiceNotAllowed { key, choices } => write!(
                f,
                "annotation {key} is not allowed: {} of the namespace is \"{choices}\"; remove the annotation",
                keys::POD_CHOICES
            ),

            Self::TierMissing { key, accepted } => {
                write!(f, "label {key} is missing, accepted {}", Values(accepted))
            }
            Self::TierInvalid { key, found, accepted } => {
                write!(f, "label {key}: found {}, accepted {}", Excerpt(found), Values(accepted))
            }
            Self::Misspelt { list, key, meant } => {
                write!(f, "{list} {} means nothing to Lucid, did you mean the {meant}?", Excerpt(key))
            }

            Self::TicketInvalid { found, accepted: Some(accepted) } => write!(
                f,
                "label {}: found {}, accepted is a ticket that matches {accepted}",
                keys::BREAK_GLASS,
                Excerpt(found)
            ),
            Self::TicketInvalid { found, accepted: None } => write!(
                f,
                "label {}: found {}, and no ticket is accepted in this cluster",
                keys::BREAK_GLASS,
                Excerpt(found)
            ),
            Self::ExpiryInvalid { found } => write!(
                f,
                "annotation {}: found {}, accepted is a time such as 2026-01-31T18:00:00Z",
                keys::BREAK_GLASS_UNTIL,
                Excerpt(found)
            ),
            Self::TicketExpired { until } => {
                write!(f, "the break-glass ticket has expired: it held until {until}")
            }
            Self::NotPermitted { reason } => write!(f, "the break-glass ticket does not count: {reason}"),
            Self::TicketNotAllowed { choices } => write!(
                f,
                "label {} does not count: {} of the namespace is \"{choices}\", and no permission is checked \
                 (LUCID_BREAK_GLASS_ACCESS_REVIEW)",
                keys::BREAK_GLASS,
                keys::POD_CHOICES
            ),
        }
    }
}

struct Values<'v>(&'v [String]);

impl fmt::Display for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, value) in self.0.iter().enumerate() {
            write!(f, "{}\"{value}\"", if place == 0 { "" } else { " or " })?;
        }
        Ok(())
    }
}
