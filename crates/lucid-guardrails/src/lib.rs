//! Judges for [`lucid_auditor`]: phrases and expressions, prompt injection, personal data and secrets, classifiers, and
//! remote services.

mod action;
#[cfg(any(feature = "classifier", feature = "http"))]
mod cache;
#[cfg(feature = "classifier")]
pub mod classifier;
mod config;
mod entities;
#[cfg(feature = "http")]
pub mod http;
mod normalize;
#[cfg(any(feature = "classifier", feature = "http"))]
mod options;
pub mod phrases;
mod pii;
pub mod regex;
pub mod rules;
mod secrets;

pub use crate::{
    action::Action,
    config::{Config, ConfigError, JudgeConfig},
    entities::{EntityError, EntityOptions},
    pii::Pii,
    secrets::Secrets,
};
