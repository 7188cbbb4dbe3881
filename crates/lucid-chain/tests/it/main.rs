//! Integration tests of planning and patching, using the public API.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod annotations;
mod auditor_images;
mod bad_input;
mod catalogue;
mod catalogue_bounds;
mod catalogue_defaults;
mod catalogue_files;
mod catalogue_in_plan;
mod catalogue_probes;
mod catalogue_reference;
mod catalogue_security_context;
mod chain;
mod common;
mod egress;
mod entry_policy;
mod goldens;
mod hardening;
mod hostile;
mod init_containers;
mod model_port;
mod openshift;
mod other_ports;
mod patch;
mod plan;
mod pod;
mod pod_choices;
mod properties;
mod redirect;
mod restricted;
mod spec;
mod token;
mod uninject;
