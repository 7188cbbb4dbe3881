//! Names and paths of the webhooks.

/// Name of the webhook that mutates pods.
pub const MUTATE_NAME: &str = "mutate.lucid.computing";
/// Path of the webhook that mutates pods.
pub const MUTATE_PATH: &str = "/mutate";
/// Name of the webhook that validates pods.
pub const VALIDATE_NAME: &str = "validate.lucid.computing";
/// Path of the webhook that validates pods.
pub const VALIDATE_PATH: &str = "/validate";
/// Name of the webhook that warns about workloads whose pods will be rejected.
pub const WORKLOADS_NAME: &str = "workloads.lucid.computing";
/// Path of the webhook that warns about workloads.
pub const WORKLOADS_PATH: &str = "/validate-workloads";
