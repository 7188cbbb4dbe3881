//! Findings, their severity and their messages.

use std::fmt;

use lucid_chain::PodChoices;

use crate::auditors::ContainerList;
use crate::text::{excerpt, shortened};

/// Capabilities that may be added in a secured pod: those of the Pod Security level `baseline` without MKNOD, SETFCAP
/// and SETUID. A process could use the last two to become an auditor's user.
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

/// Maximum number of characters shown of a container name (RFC 1123 label) and of an image reference.
const MAX_NAME: usize = 63;
const MAX_IMAGE: usize = 512;

/// Effect of a finding if the policy is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Warns the user.
    Warn,
    /// Denies the pod.
    Deny,
}

/// The container or image volume of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// List of the pod spec that contains it.
    pub list: ContainerList,
    /// Name of the container or volume.
    pub name: String,
    /// Image as written in the pod; empty if the pod names none.
    pub image: String,
}

/// A problem of a pod, with its severity and location.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Severity under the policy that was applied.
    pub severity: Severity,
    /// Container or image volume; `None` for the pod as a whole.
    pub location: Option<Location>,
    /// The problem.
    pub problem: Problem,
}

/// Part of the policy that a problem belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// Notarization of auditor images.
    Images,
    /// Presence, completeness and order of the chain.
    Chain,
    /// Ways around the chain.
    Bypass,
    /// The required label, and misspelled labels and annotations.
    Labels,
    /// Validity of a break-glass ticket.
    BreakGlass,
}

/// A violation of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The auditor's image is not a valid image reference.
    InvalidReference {
        /// Parse error.
        reason: String,
    },
    /// The auditor's image has no digest. Its tag may refer to another image later.
    MissingDigest,
    /// The auditor's image is not notarized.
    NotNotarized,
    /// The auditor's image could not be verified.
    Unverified {
        /// Cause.
        reason: String,
    },

    /// The pod requires a chain and has none.
    ChainMissing {
        /// Origin of the requirement.
        requirement: ChainRequirement,
    },
    /// A planned container is missing from its list.
    ContainerMissing,
    /// A container of the chain differs from the plan.
    ContainerDiffers {
        /// First differing field, such as `image`, `ports`, `securityContext` or `env LUCID_CHAIN_NEXT`.
        field: String,
    },
    /// A container of the chain is in the wrong order.
    ContainerMoved,
    /// The pod requires a chain, and none fits.
    ChainImpossible {
        /// Cause.
        reason: String,
    },
    /// Another part of the pod differs from the result of injection.
    NotAsInjected {
        /// JSON pointer into the pod.
        path: String,
    },
    /// The auditor is not part of the chain.
    LeftoverAuditor,

    /// The container runs as an auditor's user. Network rules identify auditors by UID.
    AuditorUid {
        /// UID.
        uid: i64,
        /// Container name of the auditor.
        auditor: String,
    },
    /// The container may run as root and keeps SETUID, so it can become an auditor's user.
    Root,
    /// The container is privileged.
    Privileged,
    /// The container adds a capability that secured pods may not have.
    Capability {
        /// Capability in upper case.
        name: String,
    },
    /// The container keeps NET_RAW, which container runtimes grant by default.
    NetRaw,
    /// The container can gain privileges through setuid files.
    PrivilegeEscalation,
    /// The container is a native sidecar that starts before the outbound network rules are installed.
    StartsBeforeRules,
    /// The container declares an auditor's listening port.
    AuditorPort {
        /// Port number.
        port: i32,
        /// Container name of the auditor.
        auditor: String,
    },
    /// The pod uses the node's network (`hostNetwork`).
    HostNetwork,
    /// The pod uses the node's PID namespace (`hostPID`).
    HostPid,
    /// The pod uses the node's IPC namespace (`hostIPC`).
    HostIpc,
    /// The pod's containers share a PID namespace with the auditors (`shareProcessNamespace`).
    SharedProcesses,
    /// `hostAliases` maps a name of the loopback interface, over which auditors forward, to another address.
    HostAlias {
        /// Alias, such as `localhost`.
        name: String,
        /// Address of the alias.
        address: String,
    },
    /// The pod's hostname is a name of the loopback interface, which therefore also resolves to the pod's address.
    Hostname {
        /// Hostname.
        name: String,
    },
    /// The container mounts a node path without an exemption.
    HostPath {
        /// Volume name.
        volume: String,
        /// Normalized node path.
        path: String,
    },
    /// The container's `/proc` is not masked (`procMount`), so it can change the pod's network settings.
    UnmaskedProc,
    /// An ephemeral container has the name of an auditor.
    AuditorName,
    /// An ephemeral container targets an auditor's process namespace (`targetContainerName`).
    AuditorTarget {
        /// Container name of the auditor.
        auditor: String,
    },
    /// The pod opts out of auditing where that is not allowed.
    SkipNotAllowed,
    /// The pod has an annotation that its namespace does not allow.
    ChoiceNotAllowed {
        /// Annotation key.
        key: &'static str,
        /// Choices allowed by the namespace.
        choices: PodChoices,
    },

    /// The required label is missing.
    TierMissing {
        /// Label key.
        key: String,
        /// Accepted values.
        accepted: Vec<String>,
    },
    /// The required label has a value that is not accepted.
    TierInvalid {
        /// Label key.
        key: String,
        /// Value found.
        found: String,
        /// Accepted values.
        accepted: Vec<String>,
    },
    /// A label or annotation is a likely misspelling of one that Lucid reads.
    Misspelt {
        /// `label` or `annotation`.
        list: &'static str,
        /// Label key.
        key: String,
        /// Suggestion, such as `label lucid.io/secured`.
        meant: String,
    },

    /// The ticket does not match the accepted pattern.
    TicketInvalid {
        /// Ticket found.
        found: String,
        /// Accepted pattern; `None` if no tickets are accepted.
        accepted: Option<String>,
    },
    /// The ticket's expiry is not a valid timestamp.
    ExpiryInvalid {
        /// Annotation value found.
        found: String,
    },
    /// The ticket has expired.
    TicketExpired {
        /// Expiry.
        until: String,
    },
    /// The user is not permitted to break the glass.
    NotPermitted {
        /// Reason, including the user.
        reason: String,
    },
    /// The namespace requires a permission for break-glass tickets, and permission checks are disabled.
    TicketNotAllowed {
        /// Choices allowed by the namespace.
        choices: PodChoices,
    },
}

/// Origin of the requirement for a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChainRequirement {
    /// A label or annotation of the pod.
    Pod,
    /// The namespace of the pod.
    Namespace,
}

impl Problem {
    /// Returns a stable, machine-readable reason, suitable as a metric label. There is at most one per variant.
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

    /// Returns the part of the policy that the problem belongs to.
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

/// Formats one bounded line without control characters, suitable for an admission warning, a denial or a log line.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Location { list, name, image }) = &self.location {
            // The API server accepts control characters within an image.
            let (name, image) = (shortened(name, MAX_NAME), shortened(image, MAX_IMAGE));
            let (name, image) = (name.escape_debug(), image.escape_debug());
            match self.problem.check() {
                Check::Images => write!(f, "auditor {list} {name}, image {image}: ")?,
                _ => write!(f, "{list} {name}: ")?,
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

            Self::ChainMissing { requirement: ChainRequirement::Namespace } => write!(
                f,
                "the namespace requires an auditor chain ({}) and the pod has none: set its label {}: \"true\"",
                keys::REQUIRE_CHAIN,
                keys::SECURED_LABEL
            ),
            Self::ChainMissing { requirement: ChainRequirement::Pod } => {
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
            Self::NotAsInjected { path } => write!(f, "{} is not as injection makes it", excerpt(path)),
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
                excerpt(name),
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
                excerpt(name),
                excerpt(address)
            ),
            Self::Hostname { name } => write!(
                f,
                "the pod's host name is {}, and each auditor calls the next one by localhost, which would be the pod's address \
                 as well: accepted is any other hostname",
                excerpt(name)
            ),
            Self::HostPath { volume, path } => write!(
                f,
                "volume {} mounts {} of the node: accepted are hostPaths of an exemption",
                excerpt(volume),
                excerpt(path)
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
                excerpt(auditor)
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
                write!(f, "label {key}: found {}, accepted {}", excerpt(found), Values(accepted))
            }
            Self::Misspelt { list, key, meant } => {
                write!(f, "{list} {} means nothing to Lucid, did you mean the {meant}?", excerpt(key))
            }

            Self::TicketInvalid { found, accepted: Some(accepted) } => write!(
                f,
                "label {}: found {}, accepted is a ticket that matches {accepted}",
                keys::BREAK_GLASS,
                excerpt(found)
            ),
            Self::TicketInvalid { found, accepted: None } => write!(
                f,
                "label {}: found {}, and no ticket is accepted in this cluster",
                keys::BREAK_GLASS,
                excerpt(found)
            ),
            Self::ExpiryInvalid { found } => write!(
                f,
                "annotation {}: found {}, accepted is a time such as 2026-01-31T18:00:00Z",
                keys::BREAK_GLASS_UNTIL,
                excerpt(found)
            ),
            Self::TicketExpired { until } => {
                write!(f, "the break-glass ticket has expired: it held until {until}")
            }
            Self::NotPermitted { reason } => write!(f, "the break-glass ticket does not count: {reason}"),
            Self::TicketNotAllowed { choices } => write!(
                f,
                "label {} does not count: {} of the namespace is \"{choices}\", and permissions are not checked",
                keys::BREAK_GLASS,
                keys::POD_CHOICES
            ),
        }
    }
}

struct Values<'v>(&'v [String]);

impl fmt::Display for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in self.0.iter().enumerate() {
            write!(f, "{}\"{value}\"", if index == 0 { "" } else { " or " })?;
        }
        Ok(())
    }
}
