//! The record of admission decisions
