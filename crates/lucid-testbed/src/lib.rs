//! A real Kubernetes for tests, as controller-runtime's envtest is for Go: kube-apiserver with etcd, and on request
//! kube-controller-manager, cert-manager, and nodes that run pods. No cluster, container daemon or download of programs is
//! needed: Go builds them, once.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::Namespace;
//! use kube::{Api, api::ListParams};
//! use lucid_testbed::Cluster;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::builder().start().await?;
//! let namespaces = Api::<Namespace>::all(cluster.client()).list(&ListParams::default()).await?;
//! assert!(namespaces.items.iter().any(|n| n.metadata.name.as_deref() == Some("default")));
//! # Ok(())
//! # }
//! ```
//!
//! Every [`Cluster`] has its own folder, keys and ports, so that tests run side by side, as threads of `cargo test` or as
//! processes of cargo-nextest. Dropping it, also in a panic, ends the cluster. The components end even when the process is
//! killed. Pods are stored; they run with [`Builder::nodes`].
//!
//! # Failure
//!
//! [`Builder::start`] returns an error that quotes the end of a component's log. If a test panics, or a component ends by
//! itself, the logs are kept, and a line on standard error names their path. A test that *returns* an `Err` drops its cluster
//! like a successful one and loses the logs, so tests should `unwrap`. For a rerun, `LUCID_TESTBED_KEEP=1` in the environment
//! keeps the files of every cluster, which the user removes.
//!
//! A killed process leaves its folder behind, and the next start of a cluster removes it.
//!
//! # Programs
//!
//! Programs come from the folder in `KUBEBUILDER_ASSETS`, if set. Otherwise they are built with Go, which may download through
//! a proxy of the environment, some five minutes for etcd and the API server on two cores. They stay in `LUCID_TESTBED_CACHE`,
//! by default `lucid/testbed` in the user's cache folder, below a hash of the versions and sources that they are built from.
//! Jobs of one user can share the folder: one process builds, and the others wait. Other users can use what is built.
//! [`binary`] returns the path of a program, such as that of kubectl.
//!
//! # Webhooks
//!
//! A webhook registered by URL runs in the test process on [`Cluster::host_address`].
//!
//! A webhook registered by Service needs root: with [`Builder::webhooks_by_service`] the API server runs in a separate network
//! namespace, because an endpoint of a Service must not be a loopback address. The endpoint is [`Cluster::host_address`], or a
//! program started by [`Cluster::command`] beside the API server. The addresses are four from 10.77.0.0/16 that no route of this
//! machine covers, except wider ones.
//!
//! # Nodes
//!
//! With [`Builder::nodes`], which needs root, pods run. A node has its own mount and process namespaces: they end with the
//! cluster, even when the process is killed, and its mounts are never visible on this machine. Images come from
//! [`Cluster::load_image`]. [`Builder::check`] tells whether a node can run here.
//!
//! # Features
//!
//! None. The crate that uses it chooses the version of Kubernetes in `k8s-openapi`.
//!
//! # Stability
//!
//! Linux only. Minor releases may move to another Kubernetes, and so build its programs anew. The files in
//! [`Cluster::folder`] that its documentation names are part of the API.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "lucid-testbed needs Linux: name it in [target.'cfg(target_os = \"linux\")'.dev-dependencies]"
);

mod binaries;
mod builder;
mod cert_manager;
mod cgroup;
mod client;
mod cluster;
mod components;
mod error;
mod folder;
mod image;
mod layout;
mod network;
mod node;
mod pki;
mod ports;
mod process;
mod readiness;

pub use self::{binaries::binary, builder::Builder, cluster::Cluster, error::Error};

/// Writes one line about the test bed to standard error, bypassing the capture of `cargo test`, which covers only the print
/// macros.
fn say(line: impl std::fmt::Display) {
    use std::io::Write as _;
    // There is nowhere to report a closed standard error.
    let _ = writeln!(std::io::stderr(), "testbed: {line}");
}
