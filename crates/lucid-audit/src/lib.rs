//! The record of admission decisions: what was asked, by whom, what was answered and why, kept so that it shows when somebody
//! changed it afterwards.
//!
//! # Recording
//!
//! A [`Decision`] is one answer of a webhook. A [`Recorder`] keeps the latest in memory, in a ring that never grows, and each in
//! a [`Log`] on the disk when it is given one. What it returns then is the record's [`Anchor`], to be kept elsewhere: in the
//! answer's audit annotations, for example, and so in the API server's own audit log.
//!
//! ```
//! use lucid_audit::log::Options;
//! use lucid_audit::note::SigningKey;
//! use lucid_audit::{Decision, Log, Recorder};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let directory = folder.path();
//! let key = SigningKey::generate("lucid.computing/prod/lucid-operator-0")?;
//! let recorder = Recorder::new(1000).with_log(Log::open(directory, Options::new().key(key))?);
//!
//! let mut decision = Decision::new("validate", "705ab4f5-6393-11e8-b7cc-42010a800002");
//! decision.namespace = "shop".into();
//! decision.name = "web-7d9c".into();
//! decision.allowed = false;
//! decision.message = "image shop/web:1: missing digest".into();
//! let anchor = recorder.record(decision).await?;
//! assert_eq!(anchor.map(|anchor| anchor.seq), Some(0));
//! assert!(!recorder.latest()[0].allowed);
//! # Ok(())
//! # }
//! ```
//!
//! # What a log promises
//!
//! - **A record that was kept stays.** With [`Sync::Batch`](log::Sync::Batch), the default, `record` returns when the disk says that
//!   it has the line, and one fdatasync(2) serves all that came while the last one ran. A process that is killed, a full disk
//!   and a power failure lose nothing that was returned. What was not returned is not there, but for what the process could
//!   not take back because it was killed.
//! - **Nothing is decided in secret.** What becomes of a decision that cannot be kept is [`OnFailure`]: the recorder fails, so that
//!   who decided can refuse, or it is in memory only and each one is an alarm.
//! - **Changes show.** Lines are chained by hashes and are the leaves of a Merkle tree; a checkpoint signs its root. The log only
//!   ever grows: one that is smaller than its checkpoint says, or has other records, is not opened, and so never signed again.
//!
//! Sealing is nobody's wait: a second thread reads what the disk has back, checks that it is what was written, extends the tree
//! and signs it, some times a second. What is not sealed yet is sealed when the log is opened again.
//!
//! # Reading
//!
//! [`verify::verify`] compares every record with everything that the directory says of it and names each fault. [`proof::Proof`] says of
//! one record that it is in the log, to who has none of the others. [`correlate::Correlator`] holds logs against the API server's
//! audit log, which has the anchors; [`follow`] reads both as they grow. [`witness`] has somebody else vouch for what a log has
//! had.
//!
//! # Formats
//!
//! They are others' formats, so that others' programs read them: JSON lines, trees of RFC 6962, and C2SP's
//! signed notes, checkpoints and tiles. Each is a module that can be used alone: [`merkle`], [`note`], [`checkpoint`], [`tile`];
//! [`layout`] says what is where in a log's directory.
//!
//! # Layout
//!
//! - [`Decision`], [`Event`], [`Anchor`]: what is recorded.
//! - [`Recorder`], [`Entry`]: the ring, and the policy.
//! - [`log`]: the log as the one process that writes it sees it.
//! - [`metrics`]: what a monitoring system gets to know.
//!
//! Nothing here reads an environment variable or needs Kubernetes.

mod anchor;
mod budget;
pub mod checkpoint;
pub mod correlate;
mod decision;
mod event;
pub mod follow;
pub mod layout;
pub mod log;
pub mod merkle;
pub mod metrics;
pub mod note;
pub mod proof;
mod read;
mod recorder;
mod ring;
pub mod tile;
pub mod verify;
pub mod witness;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use anchor::Anchor;
pub use decision::{Decision, ImageVerdict, LONGEST_DECISION};
pub use event::Event;
pub use log::Log;
pub use read::ReadError;
pub use recorder::{OnFailure, ParseOnFailureError, RecordError, Recorder, Unrecorded};
pub use ring::Entry;
