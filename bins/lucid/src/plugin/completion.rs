//! Shell completion by `kubectl_complete-lucid`, which kubectl runs with the words of `kubectl lucid` so far.
//!
//! The output follows Cobra, kubectl's command-line library: one candidate per line, with a tab and its description, and
//! a colon with a bit set of directives in the last line.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::engine;

use super::Plugin;

/// Cobra's `ShellCompDirectiveNoSpace`: no space after the candidate.
const NO_SPACE: u8 = 2;
/// Cobra's `ShellCompDirectiveNoFileComp`: no completion of file names.
const NO_FILES: u8 = 4;

/// Writes the completions of the last of `arguments`, the first of which is the program's name.
pub(crate) fn complete(arguments: Vec<OsString>, output: &mut impl Write) -> io::Result<()> {
    let last = arguments.len().saturating_sub(1);
    // As in kubectl, options are offered only after a dash.
    let wants_options = arguments.last().is_some_and(|it| it.to_string_lossy().starts_with('-'));
    let directory = std::env::current_dir().ok();
    let candidates = engine::complete(&mut Plugin::command(), arguments, last, directory.as_deref())?;
    let mut flags = NO_FILES;
    for candidate in candidates.iter().filter(|it| !it.is_hide_set()) {
        let word = candidate.get_value().to_string_lossy();
        if word.starts_with('-') && !wants_options {
            continue;
        }
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        match help.lines().next().filter(|line| !line.is_empty()) {
            Some(line) => writeln!(output, "{word}\t{line}")?,
            None => writeln!(output, "{word}")?,
        }
        // Directories continue with further path components.
        flags |= if word.ends_with('/') { NO_SPACE } else { 0 };
    }
    writeln!(output, ":{flags}")?;
    output.flush()
}
