//! Tamper-evident records of admission decisions: request, user, response and reason.
//!
//! # Recording
//!
//! A [`Decision`] is one response of a webhook. A [`Recorder`] keeps the latest decisions in a ring of fixed size in memory
//! and, if configured, each decision in a [`Log`] on disk. Recording to a log returns the record's [`Anchor`], to be stored
//! elsewhere: for example in the response's audit annotations, and thereby in the API server's own audit log.
//!
//! ```
//! use lucid_audit::log::Options;
//! use lucid_audit::note::SigningKey;
//! use lucid_audit::{Decision, Recorder};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let directory = folder.path();
//! let key = SigningKey::generate("lucid.computing/prod/lucid-operator-0")?;
//! let recorder = Recorder::new(1000);
//! recorder.open_log(directory, Options::new().with_key(key))?;
//!
//! let mut decision = Decision::new("validate", "705ab4f5-6393-11e8-b7cc-42010a800002");
//! decision.namespace = "shop".into();
//! decision.name = "web-7d9c".into();
//! decision.allowed = false;
//! decision.message = "image shop/web:1: missing digest".into();
//! let anchor = recorder.record(decision).await?;
//! assert_eq!(anchor.map(|anchor| anchor.seq), Some(0));
//! assert!(!recorder.latest()[0].decision().allowed);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **Durability.** `record` returns after fdatasync(2) has completed for the line. One fdatasync(2) covers all records that arrived during the previous one. Killing the process, a full disk
//!   or a power failure loses no acknowledged record. A record that was not acknowledged is not in the log, unless the
//!   process was killed before it could withdraw the record.
//! - **No silent loss.** [`LogFailurePolicy`] determines what happens to decisions that cannot be written: the recorder returns an
//!   error, so that the caller can deny the request, or keeps the decision in memory only and counts a failure.
//! - **Tamper evidence.** Lines form a hash chain and are the leaves of a Merkle tree, whose root a checkpoint signs. A log
//!   only grows: one with fewer records than its checkpoint covers, or with different ones, is not opened and never signed
//!   again.
//!
//! Sealing runs in the background: a second thread reads lines back from the disk, compares them with the lines written,
//! extends the tree and signs it, several times a second. Opening a log seals records that are not yet sealed.
//!
//! # Reading
//!
//! [`verify::verify`] compares every record with the rest of the log's directory and reports each fault. A [`proof::Proof`]
//! shows that one record is in the log, without the other records. A [`correlate::Correlator`] compares logs with the API
//! server's audit log, which contains the anchors. A [`follow::LogFollower`] reads a log as it grows. With [`witness`], independent
//! witnesses cosign the checkpoints of a log.
//!
//! # Formats
//!
//! Logs use standard formats that third-party tools can read: JSON lines, RFC 6962 trees, and C2SP signed [notes](note),
//! checkpoints and tiles:
//!
//! ```text
//! DIRECTORY/
//!   segments/00000000000000000000.jsonl   records, one per line; named after the first seq
//!   segments/00000000000000081920.jsonl
//!   checkpoint                            size and root, signed
//!   checkpoint.cosigned                   latest checkpoint cosigned by a witness, if any
//!   minimum                               first record kept, signed, if earlier ones were pruned
//!   vkey                                  verifier key of the log
//!   key                                   signing key, if the log generated it
//!   tile/0/000, tile/0/001.p/17, …        the tree
//!   tile/entries/000, …                   the records again, as leaves of the tree
//!   lock                                  locked by the writing process
//!   reserve                               temporary: space check before a full log accepts records again
//! ```
//!
//! A line is `{"seq":7,"prev":"9f86d0…","time":…}`: the record's position in the log, from 0; the leaf hash of the previous
//! line, or zeros in the first one; and the fields of the record. Its bytes without the newline are a leaf of the tree.
//!
//! # Modules
//!
//! - [`Decision`], [`Record`], [`Anchor`]: contents of a log.
//! - [`Recorder`], [`Entry`]: the in-memory ring and the failure policy.
//! - [`log`]: the log, for the process that writes it.
//!
//! The crate reads no environment variables and does not depend on Kubernetes.
//!
//! # Failure
//!
//! Opening and writing return an [`Error`] that names the file. What happens to a decision that cannot be written is
//! [`LogFailurePolicy`]. A log that was changed is not opened.
//!
//! # Features
//!
//! None.
//!
//! # Stability
//!
//! Public items follow [Semantic Versioning](https://github.com/lucid/lucid/blob/main/docs/embedding.md#what-stays-and-what-may-change). All
//! crates of Lucid have one version.

mod anchor;
mod budget;
mod checkpoint;
pub mod correlate;
mod decision;
mod error;
mod event;
pub mod follow;
mod layout;
pub mod log;
mod merkle;
mod metrics;
mod minimum;
pub mod note;
pub mod proof;
mod read;
mod recorder;
mod ring;
mod tile;
pub mod verify;
pub mod witness;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use anchor::Anchor;
pub use decision::{Decision, ImageVerdict, Record};
pub use error::Error;
pub use log::Log;
pub use recorder::{LogFailurePolicy, Recorder, Unrecorded};
pub use ring::Entry;
