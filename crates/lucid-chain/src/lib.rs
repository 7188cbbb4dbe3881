//! Plans an ordered chain of auditor sidecars for a Kubernetes pod and writes it as a JSON patch
mod annotations;
mod catalogue;
mod chain;
mod configuration;
pub mod keys;
mod mode;
mod namespace;
mod patch;
mod plan;
mod pod;
mod port;
mod quantity;
mod text;
mod trigger;
mod warning;

pub use annotations::Annotations;
pub use catalogue::{
    Auditor, Catalogue, CatalogueError, DEFAULT_PORT, RESERVED_ENV, Resources, UnknownAuditor,
};
pub use chain::{ChainError, ChainSource, MAX_CHAIN};
pub use configuration::{Configuration, ConfigurationError, DEFAULT_CHAIN, Overrides};
pub use mode::{AuditMode, Direction, ModeError};
pub use namespace::{NamespaceChain, NamespaceChainError};
pub use patch::{Operation, Patch};
pub use plan::{
    DEFAULT_MODEL_PORT, Decision, FIRST_UID, ImpossibleReason, Inputs, ModelPort, ModelPortSource, Outcome,
    Plan, PlannedContainer, PortHolder, PortReason, Setting, SettingSource, SkipReason, plan,
};
pub use pod::{ContainerView, PodError, PodView, PortView};
pub use trigger::Trigger;
pub use warning::Warning;
