//! Labels, annotations, ConfigMaps and environment variables of the user-facing API.
//!
//! These names are a public contract. A pod is a candidate for injection if it has the label [`SECURED_LABEL`] with
//! the value [`TRUE`], or the annotation [`AUDITORS`] with any value.

/// Namespace label: with the value [`TRUE`], the webhooks handle the pods of the namespace.
pub const ENABLED_LABEL: &str = "lucid.computing/enabled";

/// Namespace label: what a keeper does with running pods whose chain is not the planned one: `report`, `update`, `evict`
/// or `rollout`.
pub const KEEPER: &str = "lucid.computing/keeper";

/// Pod label: with the value [`TRUE`], the pod gets an auditor chain.
pub const SECURED_LABEL: &str = "lucid.io/secured";

/// Value that enables a boolean label or annotation.
pub const TRUE: &str = "true";

/// Pod annotation: comma-separated auditors to inject, each as in [`AUDITOR_CHAIN`]. Its presence triggers injection, even with an invalid value.
pub const AUDITORS: &str = "lucid.computing/auditors";

/// Pod annotation: comma-separated auditors, in order, each with optional parameters: `injection?mode=observe`. Takes
/// precedence over every other source of the chain.
pub const AUDITOR_CHAIN: &str = "lucid.computing/auditor-chain";

/// Pod annotation: an [`AuditMode`](crate::AuditMode).
pub const AUDIT_MODE: &str = "lucid.computing/audit-mode";

/// Pod annotation: `"true"` opts out of injection, if the [`SkipPolicy`](crate::SkipPolicy) allows it.
pub const SKIP_AUDIT: &str = "lucid.computing/skip-audit";

/// Pod annotation: the [`PortList`](crate::PortList) of the model.
pub const TARGET_PORT: &str = "lucid.computing/target-port";

/// Pod annotation: a [`Direction`](crate::Direction).
pub const DIRECTION: &str = "lucid.computing/direction";

/// Pod annotation: a [`SidecarMode`](crate::SidecarMode).
pub const SIDECAR_MODE: &str = "lucid.computing/sidecar-mode";

/// Pod annotation: an [`Intercept`](crate::Intercept) method.
pub const INTERCEPT: &str = "lucid.computing/intercept";

/// Pod or namespace annotation: the [`Upstream`](crate::Upstream) of outbound traffic.
pub const UPSTREAM: &str = "lucid.computing/upstream";

/// Pod annotation: the [`AllowedHosts`](crate::AllowedHosts) of outbound traffic.
pub const ALLOWED_HOSTS: &str = "lucid.computing/allowed-hosts";

/// Pod or namespace annotation: `open` or `closed`. A pod cannot open what its namespace closes.
pub const OTHER_PORTS: &str = "lucid.computing/other-ports";

/// Pod annotation: comma-separated ports that stay open although [`OTHER_PORTS`] is `closed`.
pub const OPEN_PORTS: &str = "lucid.computing/open-ports";

/// Pod annotation: `"true"` keeps the privileges of the pod's own containers, which are otherwise reduced when
/// network rules are installed.
pub const KEEP_PRIVILEGES: &str = "lucid.computing/keep-privileges";

/// Pod annotation written by [`Plan::patch`](crate::Plan::patch): a record of the injection. Lucid never trusts it.
pub const STATUS: &str = "lucid.computing/status";

/// Namespace label or annotation: with the value [`TRUE`], every pod of the namespace must have a chain.
pub const REQUIRE_CHAIN: &str = "lucid.computing/require-chain";

/// Namespace label or annotation: the [`PodChoices`](crate::PodChoices) of the namespace.
pub const POD_CHOICES: &str = "lucid.computing/pod-choices";

/// Namespace annotation: image repositories from which the namespace may run auditors of its own; none by default.
pub const AUDITOR_IMAGES: &str = "lucid.computing/auditor-images";

/// Pod label: ticket of an emergency exemption, which admits a pod that would be rejected.
pub const BREAK_GLASS: &str = "lucid.computing/break-glass";

/// Pod annotation: expiry of [`BREAK_GLASS`] (RFC 3339).
pub const BREAK_GLASS_UNTIL: &str = "lucid.computing/break-glass-until";

/// Pod label: audit tier of the pod.
pub const TIER: &str = "lucid.computing/tier";

/// ConfigMap with the chain of the namespace that it is in.
pub const NAMESPACE_CONFIG_MAP: &str = "lucid-auditor-chain";

/// Key of [`NAMESPACE_CONFIG_MAP`]: comma-separated auditors, in order, each as in [`AUDITOR_CHAIN`].
pub const CHAIN_KEY: &str = "chain";

/// ConfigMap in the operator's namespace with the cluster's catalogue.
pub const CATALOGUE_CONFIG_MAP: &str = "lucid-auditors";

/// Namespace label: with the value [`CANARY`], the catalogue of [`CANARY_CONFIG_MAP`] applies in the namespace.
pub const REVISION_LABEL: &str = "lucid.computing/revision";

/// Value of [`REVISION_LABEL`].
pub const CANARY: &str = "canary";

/// ConfigMap in the operator's namespace that replaces [`CATALOGUE_CONFIG_MAP`] for some namespaces.
pub const CANARY_CONFIG_MAP: &str = "lucid-auditors-canary";

/// Key of [`NAMESPACE_CONFIG_MAP`], [`CATALOGUE_CONFIG_MAP`] and [`CANARY_CONFIG_MAP`]: a catalogue in YAML.
pub const CATALOGUE_KEY: &str = "auditors.yaml";

pub(crate) const POD_SECURITY_ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Namespace annotation of OpenShift with the user IDs of its pods, `<first>/<size>` or `<first>-<last>`.
pub const SCC_UID_RANGE: &str = "openshift.io/sa.scc.uid-range";

/// Name of the init container that installs a [`Redirect`](crate::redirect::Redirect).
pub const INIT_CONTAINER: &str = "lucid-init";

pub(crate) const EGRESS_CONTAINER: &str = "lucid-egress";

/// Environment variable of `lucid-egress`: the JSON form of an [`Egress`](crate::Egress).
pub const EGRESS_ENV: &str = "LUCID_EGRESS";

/// Name of the empty volume that auditors and [`INIT_CONTAINER`] mount over the pod's ServiceAccount token.
pub const NO_TOKEN_VOLUME: &str = "lucid-no-token";

/// Name prefix of the volumes with the [files](crate::Auditor::volumes) of auditors.
pub const FILES_VOLUME: &str = "lucid-files-";

/// Environment variable of auditors: the auditor's name, by which its container is recognized.
pub const AUDITOR_ID_ENV: &str = "LUCID_AUDITOR_ID";

/// Environment variable of auditors: URL of the next hop.
pub const CHAIN_NEXT_ENV: &str = "LUCID_CHAIN_NEXT";

/// Environment variable of auditors and, for outbound traffic, of applications: URL of the next hop, or of the first
/// auditor.
pub const AUDITOR_URL_ENV: &str = "AUDITOR_URL";

/// Environment variable of auditors: port to listen on.
pub const AUDITOR_PORT_ENV: &str = "LUCID_AUDITOR_PORT";

/// Environment variable of auditors: port to listen on, for servers that do not read [`AUDITOR_PORT_ENV`].
pub const PORT_ENV: &str = "PORT";

/// Environment variable of auditors: the [`AuditMode`](crate::AuditMode).
pub const AUDIT_MODE_ENV: &str = "LUCID_AUDIT_MODE";

/// Environment variable of auditors: `deny` or `allow`, the consequence of an error or a timeout of a judge. Absent
/// unless the entry of the chain sets it.
pub const AUDIT_FAILURE_ENV: &str = "LUCID_AUDIT_FAILURE";

/// Environment variable of auditors: time for one verdict, in milliseconds. Absent unless the entry of the chain sets
/// it.
pub const AUDIT_TIMEOUT_ENV: &str = "LUCID_AUDIT_TIMEOUT_MS";

/// Environment variable of auditors: comma-separated paths of the kubelet's probes, which are not judged.
pub const PROBE_PATHS_ENV: &str = "LUCID_PROBE_PATHS";

/// Environment variable of auditors whose entry has `routes: true`: port to listen on and port of the
/// next hop for each of several model ports, such as `8090=8093,8091=8094`. The first pair is the auditor's own port
/// and its next hop.
pub const ROUTES_ENV: &str = "LUCID_ROUTES";

/// Environment variable of [`INIT_CONTAINER`]: the JSON form of a [`Redirect`](crate::redirect::Redirect).
pub const REDIRECT_ENV: &str = "LUCID_REDIRECT";

/// In bytes of keys and values (`TotalAnnotationSizeLimitB` of the API server).
pub(crate) const ANNOTATIONS_SIZE: usize = 256 * 1024;
