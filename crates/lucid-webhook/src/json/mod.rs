//! JSON that is read where it is needed.
//!
//! `scan` finds the end of a value without reading what is in it, `cursor` goes through the members of an object,
//! `outline` remembers where those of one object are, and `reader` is a serde `Deserializer` on top of it: of a struct's
//! members it reads those that the struct has. Whatever is unusual, and every error, is left to serde_json.

mod cursor;
mod object;
mod outline;
mod reader;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use cursor::Cursor;
pub use object::{DecodeError, RawObject};
