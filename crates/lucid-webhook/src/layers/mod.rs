//! Layers, each usable alone.

mod shed;

pub use shed::{Shed, ShedLayer};
