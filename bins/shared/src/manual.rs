//! Shell completions and man pages of a program.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;
use snafu::{ResultExt, Snafu};

/// The commands with which a program tells of itself, to be flattened into its own.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum ManualCommand {
    /// Print the script by which a shell completes the commands and options of this program.
    ///
    /// In bash: `source <(PROGRAM completions bash)`.
    Completions {
        /// The shell.
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },

    /// Write man pages of this program, one for each command, into a directory.
    Manual {
        /// The directory, which is made when there is none.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Completions or man pages could not be written.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum ManualError {
    /// Standard output cannot be written.
    #[snafu(display("failed to write: {source}"))]
    Print {
        /// Error of the operating system.
        source: io::Error,
    },
    /// The directory, or a page in it, cannot be written.
    #[snafu(display("failed to write man pages into {}: {source}", directory.display()))]
    Write {
        /// Target directory.
        directory: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl ManualCommand {
    /// Writes the completions or man pages of the program with the arguments `A`.
    ///
    /// # Errors
    ///
    /// Returns an error if `output` or the directory cannot be written.
    pub fn run<A: CommandFactory>(&self, output: &mut impl Write) -> Result<(), ManualError> {
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
                output.write_all(&script).and_then(|()| output.flush()).context(PrintSnafu)
            }
            Self::Manual { directory } => std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(command, directory))
                .context(WriteSnafu { directory }),
        }
    }
}
