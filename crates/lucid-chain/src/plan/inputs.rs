//! Inputs of planning.

use std::collections::BTreeSet;

use crate::{
    configuration::Configuration,
    egress::Upstream,
    mode::{OtherPorts, PodChoices},
    namespace::NamespaceChain,
    pod_security::PodSecurity,
    uid_range::UidRange,
};

/// Inputs of planning besides the pod.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Inputs<'a> {
    /// Configuration of the operator.
    pub configuration: &'a Configuration,
    /// Namespace of the pod. The JSON of a pod that is being created may omit it.
    pub(crate) namespace: Option<&'a str>,
    /// Chain of the pod's namespace, if it configures one.
    pub(crate) namespace_chain: Option<&'a NamespaceChain>,
    /// Reason why the namespace's chain is invalid. If set, no chain is planned and a pod that needs one is
    /// [`Decision::Impossible`](crate::Decision::Impossible).
    pub(crate) invalid_namespace_chain: Option<&'a str>,
    /// Level that Pod Security admission enforces in the pod's namespace.
    pub(crate) pod_security: PodSecurity,
    /// User IDs that OpenShift allows in the pod's namespace; `None` if it sets no range.
    pub uid_range: Option<UidRange>,
    /// `automountServiceAccountToken` of the pod's ServiceAccount; `None` if it is not set or not known.
    pub(crate) automounts_token: Option<bool>,
    /// Pod annotations that take effect.
    pub pod_choices: PodChoices,
    /// Upstream of pods without the annotation, from the annotation of the namespace.
    pub(crate) upstream: Option<&'a Upstream>,
    /// Minimum for the pods of the namespace.
    pub(crate) other_ports: OtherPorts,
    /// Images whose containers keep their privileges, written as in the pod.
    pub(crate) exempt_images: Option<&'a BTreeSet<String>>,
    /// `true` if the pod gets a chain without a trigger.
    pub(crate) forced: bool,
}

impl<'a> Inputs<'a> {
    /// Creates the inputs for a namespace without a chain, Pod Security level and [`PodChoices`] of its own.
    pub fn new(configuration: &'a Configuration) -> Self {
        Self {
            configuration,
            namespace: None,
            namespace_chain: None,
            invalid_namespace_chain: None,
            pod_security: PodSecurity::default(),
            uid_range: None,
            automounts_token: None,
            pod_choices: PodChoices::default(),
            upstream: None,
            other_ports: OtherPorts::default(),
            exempt_images: None,
            forced: false,
        }
    }

    /// Sets the configuration.
    #[must_use]
    pub fn with_configuration(self, configuration: &'a Configuration) -> Self {
        Self { configuration, ..self }
    }

    /// Sets the pod's namespace. By default it is read from the pod.
    #[must_use]
    pub fn with_namespace(self, namespace: &'a str) -> Self {
        Self { namespace: Some(namespace), ..self }
    }

    /// Sets the chain of the pod's namespace.
    #[must_use]
    pub fn with_namespace_chain(self, namespace_chain: Option<&'a NamespaceChain>) -> Self {
        Self { namespace_chain, ..self }
    }

    /// Sets the reason why the namespace's chain is invalid. With a reason, no chain is planned.
    #[must_use]
    pub fn with_invalid_namespace_chain(self, reason: Option<&'a str>) -> Self {
        Self { invalid_namespace_chain: reason, ..self }
    }

    /// Sets the level that Pod Security admission enforces in the namespace.
    #[must_use]
    pub fn with_pod_security(self, pod_security: PodSecurity) -> Self {
        Self { pod_security, ..self }
    }

    /// Sets the user IDs that OpenShift allows in the namespace.
    #[must_use]
    pub fn with_uid_range(self, uid_range: Option<UidRange>) -> Self {
        Self { uid_range, ..self }
    }

    /// Sets `automountServiceAccountToken` of the pod's ServiceAccount. The pod's own value takes precedence.
    #[must_use]
    pub fn with_token_automount(self, automounts_token: Option<bool>) -> Self {
        Self { automounts_token, ..self }
    }

    /// Sets which pod annotations take effect.
    #[must_use]
    pub fn with_pod_choices(self, pod_choices: PodChoices) -> Self {
        Self { pod_choices, ..self }
    }

    /// Sets the upstream of pods without the annotation.
    #[must_use]
    pub fn with_upstream(self, upstream: Option<&'a Upstream>) -> Self {
        Self { upstream, ..self }
    }

    /// Sets the minimum for [`Plan::other_ports`](crate::Plan::other_ports).
    #[must_use]
    pub fn with_other_ports(self, other_ports: OtherPorts) -> Self {
        Self { other_ports, ..self }
    }

    /// Sets the images whose containers keep their privileges, written as in the pod.
    #[must_use]
    pub fn with_exempt_images(self, exempt_images: &'a BTreeSet<String>) -> Self {
        Self { exempt_images: Some(exempt_images), ..self }
    }

    /// Plans a chain for a pod without a trigger.
    #[must_use]
    pub fn with_forced_injection(self) -> Self {
        Self { forced: true, ..self }
    }
}
