//! Shell completions and man pages of a program.

use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Error;

/// Commands that print shell completions and man pages, to be flattened into a program's commands.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum ManualCommand {
    /// Print a shell completion script.
    ///
    /// For bash: `source <(PROGRAM completions bash)`.
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
    /// Writes the completions or man pages of the program with the arguments `A`.
    ///
    /// # Errors
    ///
    /// Returns an error if `output` or the directory cannot be written.
    pub fn run<A: CommandFactory>(&self, output: &mut impl Write) -> Result<(), Error> {
        let mut command = A::command();
        match self {
            Self::Completions { shell } => {
                // The generator panics on write errors.
                let mut script = Vec::new();
                let name = command.get_name().to_owned();
                clap_complete::generate(*shell, &mut command, &name, &mut script);
                let script = String::from_utf8_lossy(&script);
                // For bash, the generator uses two spellings of the subcommands of a program with a hyphen in its name:
                // it defines one and looks up the other.
                let (there, wanted) = (name.replace('-', "__subcmd__"), name.replace('-', "__"));
                let script = script.replace(&there, &wanted).into_bytes();
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
