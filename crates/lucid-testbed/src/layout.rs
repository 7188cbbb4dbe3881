//! Names and addresses that are the same in every cluster.

use std::net::Ipv4Addr;

pub(crate) const CA: &str = "pki/ca.crt";
pub(crate) const CA_KEY: &str = "pki/ca.key";
pub(crate) const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";
pub(crate) const AUDIT_LOG: &str = "audit.jsonl";

/// Name of the first Node object and of its folder, and prefix of the others.
pub(crate) const NODE_NAME: &str = "node";

/// Group with all permissions.
pub(crate) const MASTERS: &str = "system:masters";
pub(crate) const NODES: &str = "system:nodes";

/// The first cluster IP, that of the Service `kubernetes`.
pub(crate) const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
