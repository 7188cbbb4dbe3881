//! Manifests read by the offline commands.

use std::path::PathBuf;

pub(super) use crate::documents::Input;
use crate::files::FilesError;

/// Input of the offline commands.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InputArgs {
    /// Manifests in YAML or JSON with any number of documents; `-` is standard input. Repeatable.
    #[arg(long = "file", short = 'f', value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,
}

impl InputArgs {
    /// Reads all documents of all files, in order.
    pub(super) fn read(&self) -> Result<Vec<Input<'_>>, FilesError> {
        Ok(crate::documents::inputs(&self.files)?)
    }
}
