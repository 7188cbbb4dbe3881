//! JSON of Kubernetes objects, read in one pass and written as the API server writes it.

mod error;
mod go;
mod reader;
mod value;

pub use error::Error;
pub use go::{GoEscapes, to_string};
pub use reader::{LONGEST_LIST, LazyText, Reader, Text};
