//! The Lucid operator: injects auditor chains into pods and validates them
