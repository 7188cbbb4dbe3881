//! Decides whether a pod may run, given its spec, the auditor chain it requires and the verdicts on its images.
//!
//! All inputs are values: the request, the current time, the verdicts and the break-glass permission. The crate
//! performs no I/O and keeps no state, so a webhook, a command-line tool and a table of tests reach the same
//! evaluation.
//!
//! # From a request to an evaluation
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use lucid_chain::{Catalogue, Configuration, Inputs};
//! use lucid_policy::{Case, Mode, Permission, Policy, Request, Strictness, Workload};
//!
//! let pod = br#"{"metadata": {"name": "web", "labels": {"lucid.computing/tier": "A"}}, "spec": {"containers": [
//!     {"name": "model", "image": "shop/model:1"},
//!     {"name": "lucid-toxicity-auditor", "image": "ghcr.io/lucid/lucid-toxicity-auditor:latest"}]}}"#;
//! let now = "2026-03-01T12:00:00Z".parse()?;
//! let request = Request::new(Workload::Pod, "shop", now).with_object(Some(pod));
//! // Scaling and metadata updates are not evaluated.
//! let Some(subject) = request.subject()? else { return Err("nothing to evaluate".into()) };
//!
//! // The chain is planned again: the pod's own markers prove nothing.
//! let configuration = Configuration::new(Catalogue::builtin(), None)?;
//! let catalogues = [Catalogue::builtin()];
//! let case = Case::new(&subject, &Inputs::new(&configuration), &catalogues);
//!
//! let mut policy = Policy::default();
//! policy.mode = Mode::Enforce;
//! policy.strictness = Strictness::Strict;
//!
//! // A webhook would look up the digests of these auditors at the Verifier.
//! let auditors = case.auditors();
//! let pinned = auditors.iter().filter(|auditor| policy.needs_verdict(&case, auditor));
//! assert_eq!(pinned.count(), 0);
//!
//! let evaluation = policy.evaluate(&case, &auditors, &BTreeMap::new(), &Permission::NotRequired);
//! assert_eq!(
//!     evaluation.denial().as_deref(),
//!     Some(
//!         "auditor container lucid-toxicity-auditor, image ghcr.io/lucid/lucid-toxicity-auditor:latest: \
//!          missing digest (strict notarization accepts only image@sha256:…)"
//!     )
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Checks
//!
//! Each [`Problem`] belongs to one [`Check`]. The project's docs/trust.md lists the attacks that each check stops and
//! its limits.
//!
//! - **Images.** Auditor images must be notarized. Auditors are identified by the pod spec ([`Case::auditors`]).
//! - **Chain.** A pod that requests a chain, or whose namespace requires one, must contain every planned container,
//!   as planned and in order. The plan comes from [`lucid_chain::plan()`], which the mutating webhook uses as well.
//! - **Bypass.** No other container of a secured pod may use an auditor's user, port or name, change network rules or
//!   the meaning of `localhost`, or reach the auditors' processes, including through the node.
//! - **Labels.** The [`RequiredLabel`] must be present, and Lucid's labels and annotations must not be misspelled.
//! - **Break-glass.** A ticket in a label overrides all checks ([`Tickets`]), until the expiry in an annotation if
//!   there is one. The override is reported to the client and recorded even if the pod passes all checks.
//!
//! # Outcome
//!
//! A [`Finding`] either warns or refuses ([`Severity`]); the [`Mode`] decides whether refusals are enforced.
//! [`Evaluation::denial`] and [`Evaluation::warnings`] are meant for the client, the other fields for the audit record.
//! Findings covered by an [`Exemption`] are not reported but listed as exempted.
//!
//! An update is evaluated only by what it changes, except that a missing chain is always reported. A pod template, such
//! as that of a Deployment, is never refused: its author receives warnings about the pods created from it.
//!
//! # Failure
//!
//! Reading a request returns an error with the path of the invalid value. An evaluation has no errors: what is unknown, such as the verdict of a
//! Verifier that does not respond, is a finding.
//!
//! # Features
//!
//! None.
//!
//! # Stability
//!
//! Public items follow [Semantic Versioning](https://github.com/lucid/lucid/blob/main/docs/embedding.md#what-stays-and-what-may-change). All
//! crates of Lucid have one version.

mod auditors;
mod break_glass;
mod bypass;
mod case;
mod chain;
mod container_list;
mod evaluated_keys;
mod evaluation;
mod exemptions;
mod finding;
mod findings;
mod labels;
mod mode;
mod policy;
mod subject;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use auditors::{AuditorContainer, Auditors};
pub use break_glass::{BreakGlass, DEFAULT_TICKET_PATTERN, Permission, TicketPatternError, Tickets};
pub use case::Case;
pub use container_list::ContainerList;
pub use evaluated_keys::EvaluatedKeys;
pub use evaluation::{EffectiveMode, Evaluation};
pub use exemptions::{Exempted, Exemption, ExemptionError};
pub use finding::{Check, Finding, Location, Problem, Severity};
pub use labels::RequiredLabel;
pub use lucid_notary::{ImagePattern, ImagePatternError};
pub use mode::{Mode, Strictness, UnknownMode};
pub use policy::Policy;
pub use subject::{Request, Subject, SubjectError, Workload};
