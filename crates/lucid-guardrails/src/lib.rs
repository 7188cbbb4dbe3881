//! Judges for [`lucid_auditor`]: phrases and regular expressions, personal data and secrets, text-classification models, and
//! remote services.
//!
//! A judge is created with its options, and added to an auditor:
//!
//! ```no_run
//! use lucid_auditor::Auditor;
//! use lucid_guardrails::{
//!     Action, Builtin, EntityOptions, Phrases, PhrasesOptions, Pii, Regex, RegexOptions, Rule, Secrets,
//! };
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let injection = PhrasesOptions::default().with_builtin(Builtin::Injection);
//!     let employee = Rule::pattern("employee", r"\bEMP-\d{6}\b").with_action(Action::Mask);
//!     let pii = EntityOptions::default().with_entity_action("CREDIT_CARD", Action::Deny);
//!     let auditor = Auditor::from_env()?
//!         .judge(Phrases::new(injection)?)
//!         .judge(Regex::new(RegexOptions::default().with_rules([employee]))?)
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
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! | judge | options | feature |
//! |---|---|---|
//! | [`Phrases`] | [`PhrasesOptions`] | |
//! | [`Regex`] | [`RegexOptions`] | |
//! | [`Pii`], [`Secrets`] | [`EntityOptions`] | |
#![cfg_attr(feature = "classifier", doc = "| [`Classifier`] | [`ClassifierOptions`] | `classifier` |")]
#![cfg_attr(not(feature = "classifier"), doc = "| `Classifier` | `ClassifierOptions` | `classifier` |")]
#![cfg_attr(feature = "http", doc = "| [`Http`] | [`HttpOptions`] | `http` (default) |")]
#![cfg_attr(not(feature = "http"), doc = "| `Http` | `HttpOptions` | `http` (default) |")]
//!
//! Fields of options are public. They deserialize with the keys of [`Config`], which builds judges from YAML.

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
pub use crate::http::{BreakerOptions, Http, HttpApi, HttpOptions};
pub use crate::{
    action::Action,
    config::{CacheConfig, Config, JudgeConfig},
    entities::EntityOptions,
    options::OptionsError,
    phrases::{Phrases, PhrasesOptions},
    pii::Pii,
    regex::{Regex, RegexOptions},
    rules::{Builtin, Rule},
    secrets::Secrets,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
