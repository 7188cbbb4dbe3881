//! Judges for [`lucid_auditor`]: phrases and expressions, prompt injection, personal data and secrets, classifiers, and
//! remote services.

mod action;
mod config;
mod entities;
mod normalize;
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
