//! What kubectl asks `kubectl_complete-lucid`: the words of `kubectl lucid` so far, of which the last is to be completed.
//!
//! It is answered as kubectl's own library for command lines, Cobra, has it: a word on each line, with what it means behind a
//! tab, and a colon with a number of flags on the last one.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::engine;

use super::Plugin;

/// Cobra's `ShellCompDirectiveNoSpace`: more follows in the same word.
const NO_SPACE: u8 = 2;
/// Cobra's `ShellCompDirectiveNoFileComp`: names of files are none of the words.
const NO_FILES: u8 = 4;

/// Writes what the last of `arguments` may become; the first is the program's name.
///
/// # Errors
///
/// When it cannot be written.
pub fn complete(arguments: Vec<OsString>, output: &mut impl Write) -> io::Result<()> {
    let last = arguments.len().saturating_sub(1);
    // As kubectl does: options only when one is begun.
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
        // A directory.
        flags |= if word.ends_with('/') { NO_SPACE } else { 0 };
    }
    writeln!(output, ":{flags}")?;
    output.flush()
}
