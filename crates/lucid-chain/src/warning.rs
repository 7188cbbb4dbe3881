//! What a user should hear about although the pod is admitted.

use std::{borrow::Cow, fmt, num::NonZeroU16};

use crate::{
    keys,
    mode::{Intercept, PodChoices, SidecarMode},
    patch::ANNOTATIONS_SIZE,
    plan::SettingSource,
    pod_security::PodSecurity,
    text::Excerpt,
};

/// Something that planning or patching did not take as the user may have meant it.
///
/// Its `Display` is one line without control characters that names the key, what was found and
/// what is accepted: fit for an admission warning, a log line or an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// An annotation has a value that is not accepted; it counts as absent.
    InvalidAnnotation {
        /// Key of the annotation.
        key: &'static str,
        /// The value in quotes, cut and escaped.
        found: String,
        /// What is wrong and what is accepted.
        problem: String,
    },
    /// The namespace does not let pods choose by this annotation; it counts as absent.
    ChoiceNotAllowed {
        /// Key of the annotation.
        key: &'static str,
        /// Choices that the namespace allows.
        choices: PodChoices,
    },
    /// The label [`keys::SECURED_LABEL`] has a value that means nothing.
    InvalidSecuredLabel {
        /// The value in quotes, cut and escaped.
        found: String,
    },
    /// The label [`keys::SECURED_LABEL`] says `"false"` while [`keys::AUDITORS`] asks for injection.
    SecuredLabelOverruled,
    /// A chain is written on a pod that carries no trigger.
    TriggerMissing,
    /// [`keys::SKIP_AUDIT`] is not allowed here.
    SkipNotAllowed,
    /// Plain containers are asked for in a pod that is to come to an end: they never end.
    NeverCompletes {
        /// Who asked.
        source: SettingSource,
    },
    /// Plain containers are asked for in a pod whose model is a native sidecar: the kubelet starts them after it.
    ModelStartsFirst {
        /// Who asked.
        source: SettingSource,
    },
    /// No network rules are installed, for Pod Security admission would refuse the pod.
    NotRedirected {
        /// What the namespace enforces.
        level: PodSecurity,
    },
    /// Network rules are asked for where Pod Security admission refuses the pod.
    RedirectRefused {
        /// What the namespace enforces.
        level: PodSecurity,
        /// Who asked.
        source: SettingSource,
    },
    /// A probe that goes to the model by gRPC meets the first auditor.
    ProbeByGrpc {
        /// The container whose probe it is.
        container: String,
        /// The model's port.
        port: NonZeroU16,
    },
    /// A probe that goes to the model by HTTPS meets the first auditor, which speaks HTTP.
    ProbeByHttps {
        /// The container whose probe it is.
        container: String,
        /// The model's port.
        port: NonZeroU16,
    },
    /// The name of an auditor is in use by a container of another list.
    NameTaken {
        /// The name that is in use.
        name: String,
        /// The name given instead.
        given: String,
    },
    /// Nothing tells where the model listens.
    ModelPortAssumed {
        /// The port that is taken for the model's.
        port: NonZeroU16,
    },
    /// An auditor's container is in the pod and no part of the chain.
    LeftoverAuditor {
        /// The container.
        name: String,
    },
    /// An init container is in the pod that installs the rules of another chain.
    LeftoverRules {
        /// The container.
        name: String,
    },
    /// A container carried the name of a planned one and was another.
    ContainerReplaced {
        /// The name.
        name: String,
        /// Key of the container in which it differs.
        difference: String,
    },
    /// A container was planned before for other circumstances: another port was free, or the model listened elsewhere.
    ContainerReplanned {
        /// The name.
        name: String,
        /// Key of the container in which it differs.
        difference: String,
    },
    /// A volume carried the name of a planned one and was another.
    VolumeReplaced {
        /// The name.
        name: &'static str,
    },
    /// An init container stood where it comes too late, or in the wrong order.
    ContainerMoved {
        /// The name.
        name: String,
    },
    /// An annotation gave a planned container another AppArmor profile.
    ProfileTakenAway {
        /// Key of the annotation.
        key: String,
    },
    /// A container of the pod loses a privilege that its author wrote, because it leads around the network rules.
    PrivilegeRemoved {
        /// The container.
        container: String,
        /// Field and value.
        privilege: &'static str,
    },
    /// An application whose outbound traffic is to be audited sends it elsewhere.
    AuditorUrlKept {
        /// The application's container.
        container: String,
        /// The value of its `AUDITOR_URL`; `None` when that comes from a `valueFrom`.
        found: Option<String>,
        /// The address of the first auditor.
        expected: String,
    },
    /// [`uninject`](crate::uninject) cannot read the annotation [`keys::STATUS`] and takes nothing out.
    StatusUnreadable {
        /// The value in quotes, cut and escaped.
        found: String,
    },
    /// The annotation [`keys::STATUS`] names a container that is none of Lucid's; it stays.
    NotInjected {
        /// The name in quotes, cut and escaped.
        name: String,
    },
    /// The annotation [`keys::STATUS`] names a container that is not there.
    InjectedMissing {
        /// The name in quotes, cut and escaped.
        name: String,
    },
    /// With the annotation [`keys::STATUS`] the pod would have more annotations than the API server takes.
    StatusLeftOut {
        /// How many bytes all annotations would be.
        size: usize,
    },
}

impl Warning {
    /// What it is about, for machines: fit for the reason of an event or a metric's label. There are no more of these than
    /// kinds of warnings, and none changes.
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
            Self::PrivilegeRemoved { .. } => "PrivilegeRemoved",
            Self::StatusUnreadable { .. } => "StatusUnreadable",
            Self::NotInjected { .. } => "NotInjected",
            Self::InjectedMissing { .. } => "InjectedMissing",
            Self::StatusLeftOut { .. } => "StatusLeftOut",
        }
    }
}

/// Scheme and host of a URL: what stands before and behind the host may be a secret, and warnings are for many to read. A
/// text that is no URL stays as it is.
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
                write!(f, "annotation {key} is ignored: found {found}, {problem}")
            }
            Self::ChoiceNotAllowed { key, choices } => write!(
                f,
                "annotation {key} is ignored: {} of the namespace is \"{choices}\"",
                keys::POD_CHOICES
            ),
            Self::InvalidSecuredLabel { found } => {
                write!(
                    f,
                    "label {} is ignored: found {found}, accepted \"true\" or \"false\"",
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
                "{}: \"{}\" ({source}) keeps the pod from ever completing, for plain containers do not end: accepted \"auto\" or \"native\"",
                keys::SIDECAR_MODE,
                SidecarMode::Containers
            ),
            Self::ModelStartsFirst { source } => write!(
                f,
                "{}: \"{}\" ({source}) starts the auditors after the model, which is a native sidecar: it is not reached, by a \
                 startup probe either, before they are up: accepted \"auto\" or \"native\"",
                keys::SIDECAR_MODE,
                SidecarMode::Containers
            ),
            Self::NotRedirected { level } => write!(
                f,
                "no network rules are installed, for Pod Security level {level} of the namespace refuses NET_ADMIN: calls that \
                 are not sent to the first auditor are not audited"
            ),
            Self::RedirectRefused { level, source } => write!(
                f,
                "{}: \"{}\" ({source}) needs NET_ADMIN, which Pod Security level {level} of the namespace refuses: accepted \"{}\"",
                keys::INTERCEPT,
                Intercept::Redirect,
                Intercept::Env
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
            Self::ModelPortAssumed { port } => write!(
                f,
                "no declared port tells where the model listens; {port} is assumed: set the annotation {}",
                keys::TARGET_PORT
            ),
            Self::LeftoverAuditor { name } => write!(
                f,
                "container {} is an auditor that is no part of the chain; nothing is forwarded to it: remove it",
                Excerpt(name)
            ),
            Self::LeftoverRules { name } => write!(
                f,
                "init container {} installs network rules of another chain, which lead elsewhere: remove it",
                Excerpt(name)
            ),
            Self::ContainerReplaced { name, difference } => write!(
                f,
                "container {name} is replaced: it carries the name of an auditor and differs from it in {difference}"
            ),
            Self::ContainerReplanned { name, difference } => write!(
                f,
                "container {name} was planned before for other circumstances and is planned again: {difference} differs"
            ),
            Self::VolumeReplaced { name } => {
                write!(f, "volume {name} is replaced: auditors need an empty volume of that name")
            }
            Self::ContainerMoved { name } => write!(
                f,
                "init container {name} is moved: it stood after the model or in another order than the chain"
            ),
            Self::ProfileTakenAway { key } => {
                write!(f, "annotation {key} is taken away: what an auditor may do is not for the pod to say")
            }
            Self::PrivilegeRemoved { container, privilege } => write!(
                f,
                "container {} loses securityContext.{privilege}, which leads past the auditors: accepted with an exemption of \
                 its image, or with the annotation {}: \"true\" where the administrator allows it",
                Excerpt(container),
                keys::KEEP_PRIVILEGES
            ),
            Self::AuditorUrlKept { container, found, expected } => {
                let found = found
                    .as_ref()
                    .map_or_else(|| "valueFrom".to_owned(), |url| Excerpt(&host(url)).to_string());
                write!(
                    f,
                    "container {} sets AUDITOR_URL itself and may pass the auditors by: found {found}, expected \"{expected}\"",
                    Excerpt(container)
                )
            }
            Self::StatusUnreadable { found } => write!(
                f,
                "annotation {} cannot be read and nothing is taken out: found {found}, accepted what injection writes",
                keys::STATUS
            ),
            Self::NotInjected { name } => write!(
                f,
                "container {name} stays: annotation {} names it, but it is no auditor and installs no network rules",
                keys::STATUS
            ),
            Self::InjectedMissing { name } => {
                write!(f, "container {name}, which annotation {} names, is not in the pod", keys::STATUS)
            }
            Self::StatusLeftOut { size } => write!(
                f,
                "annotation {} is left out: with it the annotations would be {size} bytes, accepted at most {ANNOTATIONS_SIZE}",
                keys::STATUS
            ),
        }
    }
}
