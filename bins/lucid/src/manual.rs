//! `lucid completions` and `lucid manual`.

use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;
use lucid_shared::Error;

use crate::Args;

/// Commands that print shell completions and man pages.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum ManualCommand {
    /// Print a shell completion script.
    ///
    /// For bash: `source <(lucid completions bash)`.
    Completions {
        /// Shell to print the script for.
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },

    /// Write man pages, one per command, into a directory.
    Manual {
        /// Directory to write to. Created if missing.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

impl ManualCommand {
    pub(crate) fn run(&self, output: &mut impl Write) -> Result<(), Error> {
        let mut command = Args::command();
        match self {
            Self::Completions { shell } => {
                // The generator panics on write errors.
                let mut script = Vec::new();
                let name = command.get_name().to_owned();
                clap_complete::generate(*shell, &mut command, name, &mut script);
                let written = output.write_all(&script).and_then(|()| output.flush());
                written.map_err(Error::with_context("failed to write"))
            }
            Self::Manual { directory } => std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(command, directory))
                .map_err(Error::with_context(format_args!(
                    "failed to write man pages into {}",
                    directory.display()
                ))),
        }
    }
}
