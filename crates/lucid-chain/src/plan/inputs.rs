//! Inputs of planning.

use std::collections::BTreeSet;

use crate::{
    configuration::Configuration,
    namespace::{NamespaceChain, NamespaceSettings},
};

/// Inputs of planning besides the pod.
///
/// Exhaustive, so that a caller with all of a cluster's inputs cannot miss a new one. Others use
/// `..Inputs::new(configuration)`.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Configuration of the operator.
    pub configuration: &'a Configuration,
    /// Namespace of the pod. The JSON of a pod that is being created may omit it.
    pub namespace: Option<&'a str>,
    /// Settings of the pod's namespace.
    pub settings: &'a NamespaceSettings,
    /// Chain of the pod's namespace, if it configures one, or the reason why it is invalid. With a reason, no chain is
    /// planned and a pod that needs one is [`Decision::Impossible`](crate::Decision::Impossible).
    pub namespace_chain: Result<Option<&'a NamespaceChain>, &'a str>,
    /// `automountServiceAccountToken` of the pod's ServiceAccount; `None` if it is not set or not known. The pod's own
    /// value takes precedence.
    pub automounts_token: Option<bool>,
    /// Images whose containers keep their privileges, written as in the pod.
    pub exempt_images: Option<&'a BTreeSet<String>>,
    /// `true` if the pod gets a chain without a trigger.
    pub forced: bool,
}

impl<'a> Inputs<'a> {
    /// Creates the inputs for a namespace without a chain and settings of its own.
    pub fn new(configuration: &'a Configuration) -> Self {
        static UNSET: NamespaceSettings = NamespaceSettings::UNSET;
        Self {
            configuration,
            namespace: None,
            settings: &UNSET,
            namespace_chain: Ok(None),
            automounts_token: None,
            exempt_images: None,
            forced: false,
        }
    }
}
