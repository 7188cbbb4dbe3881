//! Tests of the framework from outside.

mod patch;
mod patch_properties;
