//! A real Kubernetes control plane for tests: kube-apiserver with etcd, and on request kube-controller-manager, kube-scheduler
//! and nodes that run pods.
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
//! Every [`Cluster`] has its own folder, keys and ports, so that several run side by side in one or more processes. Dropping
//! it, also in a panic, ends the cluster. The components end even when the process is killed. Pods are stored and scheduled;
//! they run with [`Builder::node`].
//!
//! # Failed tests
//!
//! The logs are kept if the test panics, if a component has ended by itself, or if the start fails. A line on standard error
//! names their path. A test that *returns* an `Err` drops its cluster like a successful one and loses the logs, so tests should
//! `unwrap`. For a rerun, `LUCID_TESTBED_KEEP=1` in the environment keeps the files of every cluster.
//!
//! A killed process leaves its folder behind, and the next start of a cluster removes it. The user removes folders that were
//! kept on request.
//!
//! # Programs
//!
//! Programs come from the folder in `KUBEBUILDER_ASSETS`, if set. Otherwise they are built with Go from the module in
//! `components`, once, into a cache folder of the user; see [`Binaries`]. Go may download through a proxy of the
//! environment; a cluster and its client never use one.
//!
//! # Webhooks
//!
//! A webhook registered by URL runs in the test process on [`Cluster::host_address`].
//!
//! A webhook registered by Service needs root: with [`Builder::webhooks_by_service`] the API server runs in a separate network
//! namespace, because an endpoint of a Service must not be a loopback address. [`Cluster::expose_service`] creates the Service.
//! The addresses are four from 10.77.0.0/16 that no route of this machine except the default route covers.
//!
//! # Nodes
//!
//! With [`Builder::node`], which needs root, pods run. The node has its own network, mount and process namespaces: they end
//! with the cluster, even when the process is killed, and its mounts are never visible on this machine. Images come from
//! [`Cluster::load_image`]; [`Image::of_program`] creates one from a static program. [`Builder::check`] tells whether a node
//! can run here.
//!
//! # Layout
//!
//! - `binaries` finds or builds the programs, `builder` starts them, and `cluster` is the handle for tests.
//! - `components` has their command lines, and `readiness` waits for them.
//! - `node` has the namespaces, the cgroup and the files of nodes.
//! - `process` (children that end with the parent), `network` (namespace and veth pair), `image`, `client`, `ports`, `pki` and
//!   `folder` are the lower layer.
//! - `cert_manager` runs cert-manager beside the control plane.
//! - `objects` creates namespaces and Services.
//! - `clients` runs kubectl and helm.

mod binaries;
mod builder;
mod cert_manager;
mod cgroup;
mod client;
mod clients;
mod cluster;
mod components;
mod error;
mod folder;
mod image;
mod network;
mod node;
mod objects;
mod pki;
mod ports;
mod process;
mod readiness;

pub use binaries::{Binaries, Component};
pub use builder::Builder;
pub use cluster::Cluster;
pub use error::Error;
pub use image::Image;
pub use process::{Process, command};

/// Writes one line about the test bed to standard error, bypassing the capture of `cargo test`, which covers only the print
/// macros.
fn say(line: impl std::fmt::Display) {
    use std::io::Write as _;
    // There is nowhere to report a closed standard error.
    let _ = writeln!(std::io::stderr(), "testbed: {line}");
}
