//! Decides whether a pod may run, from what it is, the chain that it should have, and what is known of its images.
//!
//! Everything comes in as values: the request, the present, the verdicts, whether somebody may break the glass. Nothing is
//! asked or stored here, so a webhook, a command on a file and a table of tests come to the same judgement.
//!
//! # From a request to a judgement
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use lucid_chain::{Catalogue, Configuration, Inputs};
//! use lucid_policy::{Case, Mode, Operation, Permission, Policy, Request, Strictness, Workload};
//!
//! let pod = br#"{"metadata": {"name": "web", "labels": {"lucid.computing/tier": "A"}}, "spec": {"containers": [
//!     {"name": "model", "image": "shop/model:1"},
//!     {"name": "lucid-toxicity-auditor", "image": "ghcr.io/lucid/lucid-toxicity-auditor:latest"}]}}"#;
//! let now = "2026-03-01T12:00:00Z".parse()?;
//! let request = Request::new(Operation::Create, Workload::Pod, "shop", now).with_object(Some(pod));
//! // Deletions, scaling and changes of metadata pass without a look.
//! let Some(subject) = request.subject()? else { return Err("nothing to judge".into()) };
//!
//! // The chain is planned again: what the pod says of itself is no proof.
//! let configuration = Configuration::new(Catalogue::builtin(), None)?;
//! let catalogues = [Catalogue::builtin()];
//! let case = Case::new(&subject, &Inputs::new(&configuration), &catalogues, false);
//!
//! let mut policy = Policy::default();
//! policy.mode = Mode::Enforce;
//! policy.strictness = Strictness::Strict;
//!
//! // Their digests are what a Verifier would be asked for.
//! let auditors = case.auditors();
//! let asked = auditors.iter().filter(|auditor| policy.asks_about(&case, auditor));
//! assert_eq!(asked.count(), 0);
//!
//! let judgement = policy.judge(&case, &auditors, &BTreeMap::new(), &Permission::NotRequired);
//! assert_eq!(
//!     judgement.denial().as_deref(),
//!     Some(
//!         "auditor container lucid-toxicity-auditor, image ghcr.io/lucid/lucid-toxicity-auditor:latest: \
//!          missing digest (strict notarization accepts only image@sha256:…)"
//!     )
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is looked at
//!
//! Each [`Problem`] belongs to one [`Check`]; docs/trust.md of the project says what each stops and what it does not.
//!
//! - **Images.** Auditors run images that are notarized. Who is an auditor follows from the spec ([`Case::auditors`]).
//! - **Chain.** A pod that asks for a chain, or whose namespace demands one, has it: every planned container, as planned, in
//!   order. The plan comes from [`lucid_chain::plan()`], the same that injects.
//! - **Bypass.** Nothing else in such a pod can take an auditor's user, port or name, change the network rules or what
//!   `localhost` means, or reach the auditors' processes, also by way of the node.
//! - **Labels.** A [`RequiredLabel`] is there, and no name of ours is misspelt.
//! - **Break-glass.** A ticket in a label opens all of this ([`Tickets`]), for a time if its author says so. It is told to
//!   the client and stands in the record also when nothing was wrong.
//!
//! # What becomes of it
//!
//! A [`Finding`] warns or refuses ([`Severity`]), and the [`Mode`] says whether refusing is in force. [`Judgement::denial`] and
//! [`Judgement::warnings`] are for the client, the rest is for the record. An [`Exemption`] keeps what it covers from being
//! held against a pod, and is listed.
//!
//! Of an update only what it changes is judged, but for a chain that is missing altogether. A template of pods, as a
//! Deployment has it, is never refused: its author is warned of what its pods will meet.

mod auditors;
mod break_glass;
mod bypass;
mod case;
mod chain;
mod exemptions;
mod finding;
mod findings;
mod judgement;
mod labels;
mod policy;
mod subject;
mod text;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use auditors::{AuditorContainer, Auditors, Place};
pub use break_glass::{BreakGlass, DEFAULT_TICKET_PATTERN, Permission, TicketPatternError, Tickets};
pub use case::Case;
pub use exemptions::{Exempted, Exemption, ExemptionError};
pub use finding::{Check, Demand, Finding, Location, Problem, Severity};
pub use judgement::{EffectiveMode, Judgement};
pub use labels::RequiredLabel;
pub use lucid_notary::{ImagePattern, ImagePatternError};
pub use policy::{Mode, Policy, Strictness};
pub use subject::{Operation, Request, Subject, SubjectError, Workload};
