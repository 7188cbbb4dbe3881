//! Decisions as tables
