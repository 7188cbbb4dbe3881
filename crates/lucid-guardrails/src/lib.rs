//! Judges for [`lucid_auditor`]: phrases and regular expressions, personal data and secrets, text-classification models, and
//! remote services.
//!
//! A judge is created with its options, and added to an auditor:
//!
//! ```no_run
//! use lucid_auditor::Auditor;
//! use lucid_guardrails::{Builtin, EntityOptions, Phrases, PhrasesOptions, Pii, Regex, Secrets};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let injection = PhrasesOptions::default().with_builtin(Builtin::Injection);
//!     let employee = serde_yaml::from_str(r"rules: [{name: employee, pattern: '\bEMP-\d{6}\b', action: mask}]")?;
//!     let pii = EntityOptions::default().with_entities(["CREDIT_CARD", "IBAN_CODE"]);
//!     let auditor = Auditor::from_env()?
//!         .judge(Phrases::new(injection)?)
//!         .judge(Regex::new(employee)?)
//!         .judge(Pii::new(pii)?)
//!         .judge(Secrets::new(EntityOptions::default())?);
//!     Ok(lucid_auditor::serve(auditor).await?)
//! }
//! ```
//!
//! ```toml
//! [dependencies]
//! lucid-auditor = "0.1"
//! lucid-guardrails = "0.1"
//! serde_yaml = "0.9"
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! | judge | options | feature |
//! |---|---|---|
//! | [`Phrases`] | [`PhrasesOptions`] | |
//! | [`Regex`] | [`RegexOptions`] | |
//! | [`Pii`], [`Secrets`] | [`EntityOptions`] | |
//!
//! # Failure
//!
//! Invalid options are errors when a judge is created. A judge that cannot decide, such as a remote one that does not respond, returns a
//! [`JudgeError`](lucid_auditor::JudgeError); [`JudgePolicy`](lucid_auditor::JudgePolicy) says what happens then.
//!
//! # Features
//!
//! | feature | default | enables |
//! |---|---|---|
//! | `classifier` | no | a judge that runs a text-classification transformer |
//! | `http` | yes | a judge that calls a remote service |
//!
//! # Stability
//!
//! Public items follow [Semantic Versioning](https://github.com/lucid/lucid/blob/main/docs/embedding.md#what-stays-and-what-may-change). All
//! crates of Lucid have one version.
#![cfg_attr(feature = "classifier", doc = "| [`Classifier`] | [`ClassifierOptions`] | `classifier` |")]
#![cfg_attr(not(feature = "classifier"), doc = "| `Classifier` | `ClassifierOptions` | `classifier` |")]
#![cfg_attr(feature = "http", doc = "| [`Http`] | [`HttpOptions`] | `http` (default) |")]
#![cfg_attr(not(feature = "http"), doc = "| `Http` | `HttpOptions` | `http` (default) |")]
//!
//! Options deserialize with the keys of [`Config`], which builds judges from YAML.

mod action;
#[cfg(feature = "classifier")]
mod classifier;
mod config;
mod entities;
#[cfg(feature = "http")]
mod http;
mod normalize;
mod options;
mod phrases;
mod pii;
mod regex;
mod rules;
mod secrets;
mod spans;

#[cfg(feature = "classifier")]
pub use crate::classifier::{Classifier, ClassifierOptions};
#[cfg(feature = "http")]
pub use crate::http::{Http, HttpOptions};
pub use crate::{
    config::Config,
    entities::EntityOptions,
    options::OptionsError,
    phrases::{Phrases, PhrasesOptions},
    pii::Pii,
    regex::{Regex, RegexOptions},
    rules::Builtin,
    secrets::Secrets,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
