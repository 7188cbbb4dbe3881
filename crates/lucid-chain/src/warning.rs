//! Warnings for the user about a pod that is admitted.

use std::{borrow::Cow, fmt, num::NonZeroU16};

use lucid_text::{Excerpt, Name};

use crate::{
    keys::{self, ANNOTATIONS_SIZE},
    mode::{Intercept, OtherPorts, PodChoices, SidecarMode},
    setting_source::SettingSource,
};

/// A problem with a pod or its settings that planning or patching worked around.
///
/// The `Display` form is a single line without control characters that names the key, the expected values and
/// the value found. It is suitable for admission warnings, logs and events.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// An annotation has an invalid value and counts as absent.
    InvalidAnnotation {
        /// Key of the annotation.
        key: &'static str,
        /// The value, quoted, escaped and truncated.
        found: String,
        /// Problem and expected values.
        problem: String,
    },
    /// The namespace does not allow pods to use the annotation, which counts as absent.
    ChoiceNotAllowed {
        /// Key of the annotation.
        key: &'static str,
        /// Choices that the namespace allows to pods.
        choices: PodChoices,
    },
    /// The label [`keys::SECURED_LABEL`] has an invalid value.
    InvalidSecuredLabel {
        /// The value, quoted, escaped and truncated.
        found: String,
    },
    /// The label [`keys::SECURED_LABEL`] is `"false"`, but [`keys::AUDITORS`] triggers injection.
    SecuredLabelOverruled,
    /// The pod specifies a chain but has no trigger.
    TriggerMissing,
    /// The pod may not opt out with [`keys::SKIP_AUDIT`].
    SkipNotAllowed,
    /// Plain containers are configured for a pod that should complete; they keep it running.
    NeverCompletes {
        /// Source of the setting.
        source: SettingSource,
    },
    /// Plain containers are configured for a pod whose model is a native sidecar; they start after the model.
    ModelStartsFirst {
        /// Source of the setting.
        source: SettingSource,
    },
    /// No network rules are installed, because Pod Security admission would reject the pod.
    NotRedirected {
        /// Level that the namespace enforces.
        level: &'static str,
    },
    /// Network rules are configured, but Pod Security admission rejects pods with them.
    RedirectRefused {
        /// Level that the namespace enforces.
        level: &'static str,
        /// Source of the setting.
        source: SettingSource,
    },
    /// The pod's other ports should be closed, but no network rules are installed.
    PortsNotClosed {
        /// Source of [`keys::OTHER_PORTS`].
        source: SettingSource,
        /// Source of [`keys::INTERCEPT`].
        intercept: SettingSource,
    },
    /// The namespace's range of user IDs has too few for the auditors, which run as user IDs outside of it.
    UidRangeTooSmall {
        /// Range of the namespace.
        range: String,
        /// Number of user IDs that the chain needs.
        expected: usize,
        /// Number of user IDs that no other container uses.
        found: usize,
    },
    /// An auditor uses the ServiceAccount token, which the pod does not mount.
    TokenMissing {
        /// Name of the auditor's container.
        name: String,
        /// `true` if the pod itself disables the mount, `false` if its ServiceAccount does.
        by_pod: bool,
    },
    /// A gRPC probe of the model reaches the first auditor, which may not support gRPC.
    ProbeByGrpc {
        /// Container with the probe.
        container: String,
        /// The model's port.
        port: NonZeroU16,
    },
    /// An HTTPS probe of the model reaches the first auditor, which may not support TLS.
    ProbeByHttps {
        /// Container with the probe.
        container: String,
        /// The model's port.
        port: NonZeroU16,
    },
    /// The name of an auditor is taken by a container of another list.
    NameTaken {
        /// The name that is taken.
        name: String,
        /// The name used instead.
        given: String,
    },
    /// The model's port is unknown.
    ModelPortAssumed {
        /// The assumed port.
        port: NonZeroU16,
        /// The ports that could be the model's, each with a container that declares it; at most 8.
        candidates: Vec<(NonZeroU16, String)>,
    },
    /// The pod contains an auditor that is not part of the chain.
    LeftoverAuditor {
        /// Name of the container.
        name: String,
    },
    /// The pod contains an init container that installs the rules of another chain.
    LeftoverRules {
        /// Name of the container.
        name: String,
    },
    /// A container with a planned name was not the planned one.
    ContainerReplaced {
        /// Name of the container.
        name: String,
        /// First key that differs.
        difference: String,
    },
    /// A container of an earlier plan is outdated, such as by a change of ports.
    ContainerReplanned {
        /// Name of the container.
        name: String,
        /// First key that differs.
        difference: String,
    },
    /// A volume with a planned name was not the planned one.
    VolumeReplaced {
        /// Name of the volume.
        name: String,
    },
    /// An init container was after the model or in the wrong order.
    ContainerMoved {
        /// Name of the container.
        name: String,
    },
    /// An annotation set the AppArmor profile of a planned container.
    ProfileTakenAway {
        /// Key of the annotation.
        key: String,
    },
    /// The pod-level `spec.resources` are used up by the chain.
    NothingLeft {
        /// Containers that request none of these resources themselves.
        containers: Vec<String>,
        /// Resources that are used up.
        shortages: String,
    },
    /// A container loses a privilege that its author configured, because it allows bypassing the network rules.
    PrivilegeRemoved {
        /// Name of the container.
        container: String,
        /// Field and value, such as `capabilities.add: NET_RAW`.
        privilege: &'static str,
    },
    /// An application whose outbound traffic is audited sets another `AUDITOR_URL`.
    AuditorUrlKept {
        /// The application's container.
        container: String,
        /// Name of the variable: `AUDITOR_URL` or a base URL of an SDK.
        variable: &'static str,
        /// Its value; `None` for a `valueFrom`.
        found: Option<String>,
        /// Address of the first auditor, with the path of the upstream.
        expected: String,
    },
    /// [`uninject`](crate::uninject) finds an auditor but no annotation [`keys::STATUS`], and removes nothing.
    StatusMissing {
        /// Name of the auditor's container, quoted, escaped and truncated.
        name: String,
    },
    /// [`uninject`](crate::uninject) cannot parse the annotation [`keys::STATUS`] and removes nothing.
    StatusUnreadable {
        /// The value, quoted, escaped and truncated.
        found: String,
    },
    /// The annotation [`keys::STATUS`] names a container that was not injected; it stays.
    NotInjected {
        /// The name, quoted, escaped and truncated.
        name: String,
    },
    /// The annotation [`keys::STATUS`] does not name an auditor of the pod; it stays.
    AuditorNotListed {
        /// Name of the auditor's container, quoted, escaped and truncated.
        name: String,
    },
    /// The annotation [`keys::STATUS`] names a container that does not exist.
    InjectedMissing {
        /// The name, quoted, escaped and truncated.
        name: String,
    },
    /// The annotation [`keys::STATUS`] is omitted, because the annotations would exceed the limit of the API server.
    StatusLeftOut {
        /// Size of all annotations with it, in bytes.
        size: usize,
    },
}

impl Warning {
    /// Machine-readable identifier of the warning, suitable as an event reason or a metric label. Identifiers are
    /// stable, one for each variant.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::InvalidAnnotation { .. } => "InvalidAnnotation",
            Self::ChoiceNotAllowed { .. } => "ChoiceNotAllowed",
            Self::InvalidSecuredLabel { .. } => "InvalidSecuredLabel",
            Self::SecuredLabelOverruled => "SecuredLabelOverruled",
            Self::TriggerMissing => "TriggerMissing",
            Self::SkipNotAllowed => "SkipNotAllowed",
            Self::NeverCompletes { .. } => "NeverCompletes",
            Self::ModelStartsFirst { .. } => "ModelStartsFirst",
            Self::NotRedirected { .. } => "NotRedirected",
            Self::RedirectRefused { .. } => "RedirectRefused",
            Self::PortsNotClosed { .. } => "PortsNotClosed",
            Self::UidRangeTooSmall { .. } => "UidRangeTooSmall",
            Self::TokenMissing { .. } => "TokenMissing",
            Self::ProbeByGrpc { .. } => "ProbeByGrpc",
            Self::ProbeByHttps { .. } => "ProbeByHttps",
            Self::NameTaken { .. } => "NameTaken",
            Self::ModelPortAssumed { .. } => "ModelPortAssumed",
            Self::LeftoverAuditor { .. } => "LeftoverAuditor",
            Self::LeftoverRules { .. } => "LeftoverRules",
            Self::ContainerReplaced { .. } => "ContainerReplaced",
            Self::ContainerReplanned { .. } => "ContainerReplanned",
            Self::VolumeReplaced { .. } => "VolumeReplaced",
            Self::ContainerMoved { .. } => "ContainerMoved",
            Self::AuditorUrlKept { .. } => "AuditorUrlKept",
            Self::ProfileTakenAway { .. } => "ProfileTakenAway",
            Self::NothingLeft { .. } => "NothingLeft",
            Self::PrivilegeRemoved { .. } => "PrivilegeRemoved",
            Self::StatusMissing { .. } => "StatusMissing",
            Self::StatusUnreadable { .. } => "StatusUnreadable",
            Self::NotInjected { .. } => "NotInjected",
            Self::AuditorNotListed { .. } => "AuditorNotListed",
            Self::InjectedMissing { .. } => "InjectedMissing",
            Self::StatusLeftOut { .. } => "StatusLeftOut",
        }
    }
}

/// Returns scheme and host of a URL, dropping parts that may be secret; other texts are unchanged.
fn host(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("://") else { return url.into() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}").into()
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidAnnotation { key, found, problem } => {
                write!(f, "annotation {key} is ignored: {problem}; found {found}")
            }
            Self::ChoiceNotAllowed { key, choices } => write!(
                f,
                "annotation {key} is ignored: {} of the namespace is \"{choices}\"",
                keys::POD_CHOICES
            ),
            Self::InvalidSecuredLabel { found } => {
                write!(
                    f,
                    "label {} is ignored: expected \"true\" or \"false\", found {found}",
                    keys::SECURED_LABEL
                )
            }
            Self::SecuredLabelOverruled => write!(
                f,
                "label {}: \"false\" does not stop the injection that annotation {} asks for: remove the annotation",
                keys::SECURED_LABEL,
                keys::AUDITORS
            ),
            Self::TriggerMissing => write!(
                f,
                "annotation {} has no effect without the label {}: \"true\"; the pod gets no auditors",
                keys::AUDITOR_CHAIN,
                keys::SECURED_LABEL
            ),
            Self::SkipNotAllowed => write!(
                f,
                "annotation {}: \"true\" is not allowed here; the pod gets its auditors",
                keys::SKIP_AUDIT
            ),
            Self::NeverCompletes { source } => write!(
                f,
                "{}: \"{}\" ({source}) keeps the pod from ever completing, because plain containers do not end: expected \"auto\" or \"native\"",
                keys::SIDECAR_MODE,
                SidecarMode::Containers
            ),
            Self::ModelStartsFirst { source } => write!(
                f,
                "{}: \"{}\" ({source}) starts the auditors after the model, which is a native sidecar: it is not reached, by a \
                 startup probe either, before they are up: expected \"auto\" or \"native\"",
                keys::SIDECAR_MODE,
                SidecarMode::Containers
            ),
            Self::NotRedirected { level } => write!(
                f,
                "no network rules are installed, because Pod Security level {level} of the namespace refuses NET_ADMIN: calls that \
                 are not sent to the first auditor are not audited"
            ),
            Self::RedirectRefused { level, source } => write!(
                f,
                "{}: \"{}\" ({source}) needs NET_ADMIN, which Pod Security level {level} of the namespace refuses: expected \"{}\"",
                keys::INTERCEPT,
                Intercept::Redirect,
                Intercept::Env
            ),
            Self::PortsNotClosed { source, intercept } => write!(
                f,
                "{}: \"{}\" ({source}) needs network rules and closes no port: expected {}: \"{}\", found \"{}\" ({intercept})",
                keys::OTHER_PORTS,
                OtherPorts::Closed,
                keys::INTERCEPT,
                Intercept::Redirect,
                Intercept::Env
            ),
            Self::UidRangeTooSmall { range, expected, found } => write!(
                f,
                "the auditors run as users outside of {range}, and OpenShift refuses the pod unless its SCC allows them: expected \
                 {expected} uids in {} of the namespace that no other container uses, found {found}; enlarge the range, or set \
                 {}: \"{}\"",
                keys::SCC_UID_RANGE,
                keys::INTERCEPT,
                Intercept::Env
            ),
            Self::TokenMissing { name, by_pod } => write!(
                f,
                "auditor {name} gets no ServiceAccount token, which serviceAccountToken of its catalogue entry requests: expected \
                 automountServiceAccountToken: true in {}, found false",
                if *by_pod { "the pod" } else { "its ServiceAccount or in the pod" }
            ),
            Self::ProbeByGrpc { container, port } => write!(
                f,
                "a grpc probe of container {} goes to port {port} and so to the first auditor: it succeeds only if that forwards gRPC",
                Excerpt(container)
            ),
            Self::ProbeByHttps { container, port } => write!(
                f,
                "an https probe of container {} goes to port {port} and so to the first auditor: it succeeds only if that speaks TLS",
                Excerpt(container)
            ),
            Self::NameTaken { name, given } => write!(
                f,
                "container name {name} is in use by a container of another list; the auditor is named {given}"
            ),
            Self::ModelPortAssumed { port, candidates } => {
                write!(f, "the model is assumed to listen on {port}")?;
                if candidates.is_empty() {
                    f.write_str(", because no declared port or readiness probe names one")?;
                }
                write!(
                    f,
                    ": name a port `model`, or set {} or target-port in auditors.yaml",
                    keys::TARGET_PORT
                )?;
                let mut candidates = candidates.iter();
                if let Some((port, container)) = candidates.next() {
                    write!(f, ", to one or more of {port} ({})", Name(container))?;
                }
                candidates.try_for_each(|(port, container)| write!(f, ", {port} ({})", Name(container)))
            }
            Self::LeftoverAuditor { name } => write!(
                f,
                "container {} is an auditor outside of the chain; nothing is forwarded to it: remove it",
                Excerpt(name)
            ),
            Self::LeftoverRules { name } => write!(
                f,
                "init container {} installs network rules of another chain, which lead elsewhere: remove it",
                Excerpt(name)
            ),
            Self::ContainerReplaced { name, difference } => write!(
                f,
                "container {name} is replaced: it has the name of an auditor and differs from it in {difference}"
            ),
            Self::ContainerReplanned { name, difference } => write!(
                f,
                "container {name} is planned again, because its earlier plan is outdated: {difference} differs"
            ),
            Self::VolumeReplaced { name } => {
                write!(
                    f,
                    "volume {name} is replaced: its name is reserved for the volume of auditors, which differs"
                )
            }
            Self::ContainerMoved { name } => write!(
                f,
                "init container {name} is moved: it was after the model, or not in the order of the chain"
            ),
            Self::ProfileTakenAway { key } => {
                write!(f, "annotation {key} is removed: pods cannot set the AppArmor profile of an auditor")
            }
            Self::NothingLeft { containers, shortages } => {
                let names: Vec<_> = containers.iter().take(3).map(|name| Excerpt(name).to_string()).collect();
                write!(
                    f,
                    "the auditors leave nothing of spec.resources of the pod for container {}: {}",
                    names.join(", "),
                    shortages
                )
            }
            Self::PrivilegeRemoved { container, privilege } => write!(
                f,
                "container {} loses securityContext.{privilege}, which bypasses the auditors: expected an exemption of its \
                 image, or the annotation {}: \"true\" where the administrator allows it",
                Excerpt(container),
                keys::KEEP_PRIVILEGES
            ),
            Self::AuditorUrlKept { container, variable, found, expected } => {
                let found = found
                    .as_ref()
                    .map_or_else(|| "valueFrom".to_owned(), |url| Excerpt(&host(url)).to_string());
                write!(
                    f,
                    "container {} sets {variable} itself and may bypass the auditors: expected \"{expected}\", found {found}",
                    Excerpt(container)
                )
            }
            Self::StatusMissing { name } => write!(
                f,
                "container {name} is an auditor, but without the annotation {} nothing can be removed: inject the original \
                 manifest again",
                keys::STATUS
            ),
            Self::StatusUnreadable { found } => write!(
                f,
                "annotation {} cannot be parsed and nothing is removed: expected the value that injection writes, found {found}",
                keys::STATUS
            ),
            Self::NotInjected { name } => write!(
                f,
                "container {name} stays: annotation {} names it, but it is not an auditor and does not install network rules",
                keys::STATUS
            ),
            Self::AuditorNotListed { name } => {
                write!(
                    f,
                    "container {name} stays: it is an auditor that annotation {} does not name",
                    keys::STATUS
                )
            }
            Self::InjectedMissing { name } => {
                write!(f, "container {name}, which annotation {} names, is not in the pod", keys::STATUS)
            }
            Self::StatusLeftOut { size } => write!(
                f,
                "annotation {} is omitted: expected at most {ANNOTATIONS_SIZE} bytes of annotations, found {size} with it",
                keys::STATUS
            ),
        }
    }
}
