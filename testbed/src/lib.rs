//! A real Kubernetes control plane for tests: kube-apiserver with etcd, and on request
//! kube-controller-manager, kube-scheduler and a node with real pods.
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
//! Every [`Cluster`] has a folder, keys and ports of its own, so that several run side by side in
//! one process and in many. It ends when it is dropped, also by a panic, and its components end even
//! when the process is killed. Pods are stored and scheduled; they run with [`Builder::node`].
//!
//! # When a test fails
//!
//! The logs stay when the test panics, when a component has ended by itself and when the start fails; a line on
//! standard error says where. A test that *returns* an `Err` drops its cluster as a good one does, and the logs
//! are gone: tests should `unwrap`. With `LUCID_TESTBED_KEEP=1` in the environment, for a rerun, every cluster
//! leaves all its files.
//!
//! A process that is killed leaves its folder behind; the next start of a cluster removes it. Folders that were left on
//! purpose are yours to remove.
//!
//! # Where the programs come from
//!
//! The folder in `KUBEBUILDER_ASSETS`, when that is set. Otherwise they are built with Go from the
//! module in `testbed/components`, once, into a cache folder of the user; see [`Binaries`]. Go may download
//! through a proxy of the environment; a cluster and its client never use one.
//!
//! # Webhooks
//!
//! A webhook registered by URL runs in the test process on [`Cluster::host_address`]. A webhook
//! registered by Service needs root: with [`Builder::webhooks_by_service`] the API server lives in
//! a network namespace of its own, because an endpoint of a Service may not be a loopback address,
//! and [`Cluster::expose_service`] makes the Service. Its addresses are from 10.77.0.0/16, four that no route of
//! this machine but the default covers.
//!
//! # A node
//!
//! With [`Builder::node`], which needs root, pods run. Whatever belongs to the node lives in namespaces of its own, for
//! network, mounts and processes: they end with the cluster, also when the process is killed, and no mount is ever seen on
//! this machine. Images come from [`Cluster::load_image`]; [`Image::of_program`] makes one of a static program. Tests that
//! need a node ask [`node::can_run`] first.
//!
//! # Layout
//!
//! `binaries` finds or builds the programs, `builder` starts them, `cluster` is what a test holds.
//! `components` has their command lines, `readiness` waits for them; `node` has its namespaces, cgroup and files. Below:
//! `process` (children that end with us), `network` (namespace and veth pair), `image`, `client`, `ports`, `pki`, `folder`.
//! `cert_manager` runs cert-manager beside it. `objects` makes namespaces and Services. `page` runs the commands of a text
//! for people, `clients` one of kubectl's or helm's.
//! `atomic_writer` stands for the kubelet of a mounted Secret. `skip` says which tests cannot be run here.

mod atomic_writer;
pub mod binaries;
mod builder;
mod cert_manager;
mod client;
mod clients;
mod cluster;
mod components;
mod error;
mod folder;
mod image;
mod network;
pub mod node;
mod objects;
pub mod page;
mod pki;
mod ports;
mod process;
mod readiness;
mod skip;

pub use atomic_writer::AtomicWriter;
pub use binaries::{Binaries, Component};
pub use builder::Builder;
pub use cluster::Cluster;
pub use error::Error;
pub use image::{Image, Layer};
pub use network::can_use_namespaces;
pub use process::{CommandError, Process, command};
pub use skip::{has_program, skip};

/// Writes one line about the test bed to standard error, past the capture of `cargo test`, which
/// takes only what goes through the print macros.
fn say(line: impl std::fmt::Display) {
    use std::io::Write as _;
    // Nobody is left to tell when standard error is gone.
    let _ = writeln!(std::io::stderr(), "testbed: {line}");
}
