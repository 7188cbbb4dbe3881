//! Kubernetes manifests as text: read as kubectl reads them, and edited in place.
//!
//! A tool that changes a few fields of a user's manifest should leave everything else as the user wrote it: the order of
//! keys, comments, `1.10` and `"yes"`. So a [`Document`] is its text, and a tree that knows where in the text each value
//! stands; [`Document::patch`] changes the text only where an operation needs it. What a plain scalar means is decided as
//! `sigs.k8s.io/yaml` does (YAML 1.1: `yes` is a boolean, `0777` is 511), so that [`Document::value`] is what
//! `kubectl apply` would send.
//!
//! An edit is proved before it is given out: the new text is read again and must mean exactly what the operations make of
//! the old value. Where the text allows no edit in place (a change inside of what an alias shares, say), the document is
//! written anew without its comments, and proved as well.
//!
//! - `input`: from files to their documents; `object`: the objects in a document, also those in lists;
//! - `stream`: from a file to its documents;
//! - `parse`, `json`: from text to the tree of `node`; `scalar`: what plain scalars mean;
//! - `edit`: operations on the tree; `splice`: from the changed tree to changed text; `write`: values as new text,
//!   in the `layout` of the document.

mod document;
mod edit;
mod error;
mod input;
mod json;
mod layout;
mod node;
mod object;
mod parse;
mod scalar;
mod splice;
mod stream;
mod write;

pub use document::{Document, Format};
pub use error::{EditError, SyntaxError};
pub use input::{Input, ReadError, inputs, read};
pub use object::{Object, objects};
pub use stream::documents;
