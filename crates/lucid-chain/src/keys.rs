//! The names users write: labels, annotations, ConfigMaps and their keys.
//!
//! They are a public contract. A pod is a candidate for injection when it carries the label
//! [`SECURED_LABEL`] with the value [`TRUE`], or the annotation [`AUDITORS`] with any value
//! (see [`Trigger`](crate::Trigger)).

/// Namespace label; with the value [`TRUE`] the webhooks look at the pods of the namespace.
pub const ENABLED_LABEL: &str = "lucid.computing/enabled";

/// Pod label; with the value [`TRUE`] the pod gets its auditor chain.
pub const SECURED_LABEL: &str = "lucid.io/secured";

/// The value that switches a label or `skip-audit` on.
pub const TRUE: &str = "true";

/// Pod annotation: comma-separated auditors to inject. Its presence alone is a trigger.
pub const AUDITORS: &str = "lucid.computing/auditors";

/// Pod annotation: comma-separated auditors, in order; wins over every other source of the chain.
pub const AUDITOR_CHAIN: &str = "lucid.computing/auditor-chain";

/// Pod annotation: an [`AuditMode`](crate::AuditMode).
pub const AUDIT_MODE: &str = "lucid.computing/audit-mode";

/// Pod annotation: `"true"` asks for no injection.
pub const SKIP_AUDIT: &str = "lucid.computing/skip-audit";

/// Pod annotation: the port the model listens on.
pub const TARGET_PORT: &str = "lucid.computing/target-port";

/// Pod annotation: a [`Direction`](crate::Direction).
pub const DIRECTION: &str = "lucid.computing/direction";

/// Pod annotation: plain containers or native sidecars.
pub const SIDECAR_MODE: &str = "lucid.computing/sidecar-mode";

/// Pod annotation: interception with or without network rules.
pub const INTERCEPT: &str = "lucid.computing/intercept";

/// Pod annotation: `"true"` keeps the privileges of the pod's own containers, which network rules otherwise reduce.
pub const KEEP_PRIVILEGES: &str = "lucid.computing/keep-privileges";

/// Pod annotation written by [`Plan::patch`](crate::Plan::patch): what was injected, for people to read.
/// Nothing in Lucid takes it as proof.
pub const STATUS: &str = "lucid.computing/status";

/// Namespace label or annotation; with the value [`TRUE`] every pod of the namespace has to have its chain.
pub const REQUIRE_CHAIN: &str = "lucid.computing/require-chain";

/// Namespace label or annotation: the [`PodChoices`](crate::PodChoices) of the namespace.
pub const POD_CHOICES: &str = "lucid.computing/pod-choices";

/// Namespace annotation: the [`AuditorImages`](crate::AuditorImages) of the namespace.
pub const AUDITOR_IMAGES: &str = "lucid.computing/auditor-images";

/// Pod label: the ticket under which a pod is admitted that would be refused.
pub const BREAK_GLASS: &str = "lucid.computing/break-glass";

/// Pod annotation: until when [`BREAK_GLASS`] holds (RFC 3339).
pub const BREAK_GLASS_UNTIL: &str = "lucid.computing/break-glass-until";

/// Pod label: which tier of audit the pod belongs to.
pub const TIER: &str = "lucid.computing/tier";

/// ConfigMap in a pod's namespace with the chain of that namespace.
pub const NAMESPACE_CONFIG_MAP: &str = "lucid-auditor-chain";

/// Key of [`NAMESPACE_CONFIG_MAP`]: comma-separated auditor names, in order.
pub const CHAIN_KEY: &str = "chain";

/// ConfigMap beside the operator with the cluster's catalogue.
pub const CATALOGUE_CONFIG_MAP: &str = "lucid-auditors";

/// Key of [`NAMESPACE_CONFIG_MAP`] and [`CATALOGUE_CONFIG_MAP`]: a catalogue in YAML.
pub const CATALOGUE_KEY: &str = "auditors.yaml";

/// Namespace label by which Pod Security admission is told what to refuse; see [`PodSecurity`](crate::PodSecurity).
pub const POD_SECURITY_ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// The init container that installs a [`Redirect`](crate::redirect::Redirect).
pub const INIT_CONTAINER: &str = "lucid-init";

/// The empty volume that auditors and [`INIT_CONTAINER`] mount in place of the token of the pod's ServiceAccount.
pub const NO_TOKEN_VOLUME: &str = "lucid-no-token";

/// Environment variable of [`INIT_CONTAINER`]: the JSON form of a [`Redirect`](crate::redirect::Redirect).
pub const REDIRECT_ENV: &str = "LUCID_REDIRECT";

/// Environment variable of [`INIT_CONTAINER`]: by which tool it installs the rules, `auto`, `nft` or `iptables`.
pub const INIT_BACKEND_ENV: &str = "LUCID_INIT_BACKEND";
