//! Decides whether a pod's auditor containers may run. Pure: verdicts come in as values, nothing is asked or stored.
//!
//! The way is: which containers of the pod are auditors ([`auditor_containers`]), which digests have to be looked up
//! ([`AuditorContainer::digest`]), and, with the verdicts, what is wrong ([`judge`]).
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use lucid_chain::{Catalogue, PodView};
//! use lucid_policy::{Strictness, auditor_containers, judge};
//!
//! let json = br#"{"spec": {"containers": [
//!     {"name": "model", "image": "shop/model:1"},
//!     {"name": "lucid-toxicity-auditor", "image": "ghcr.io/lucid/lucid-toxicity-auditor:latest"}]}}"#;
//! let pod = PodView::from_json(json)?;
//! let auditors = auditor_containers(&pod, [&Catalogue::builtin()]);
//! let judgement = judge(&auditors, &BTreeMap::new(), Strictness::Strict);
//! assert_eq!(
//!     judgement.denial().as_deref(),
//!     Some(
//!         "auditor container lucid-toxicity-auditor, image ghcr.io/lucid/lucid-toxicity-auditor:latest: \
//!          missing digest (strict notarization accepts only image@sha256:…)"
//!     )
//! );
//! # Ok::<(), lucid_chain::PodError>(())
//! ```

mod auditors;
mod judgement;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use auditors::{AuditorContainer, Place, auditor_containers, changed_since};
pub use judgement::{Finding, Judgement, Problem, Strictness, judge};
