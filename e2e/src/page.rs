//! Commands in documentation pages, run as written.

use std::{
    collections::BTreeSet,
    env, fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
};

use lucid_testbed::Cluster;

use crate::{command, has_program};

/// Word after the language of a block that no test runs.
pub const NOT_RUN: &str = "not-run";

const COMMANDS: [&str; 5] = ["sh", "bash", "shell", "console", "python"];

/// Programs in commands that a machine may lack.
const PROGRAMS: [&str; 2] = ["curl", "openssl"];

/// Returns `true` if a reader can run the block, by the info string after its fence.
#[must_use]
pub fn is_command(info: &str) -> bool {
    COMMANDS.contains(&info.split([' ', ',']).next().unwrap_or_default())
}

/// A documentation page whose commands are run by a test. Dropping it fails unless all of them were run.
#[derive(Debug)]
pub struct Page {
    path: String,
    text: String,
    ran: Mutex<BTreeSet<String>>,
}

impl Page {
    /// Reads the page at a path relative to the root of the repository, such as `docs/cli.md`. A test must read each page with
    /// commands, other than those marked as not run, by this path.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub fn read(path: &str) -> io::Result<Self> {
        let text = fs::read_to_string(root().join(path))?;
        Ok(Self { path: path.to_owned(), text, ran: Mutex::default() })
    }

    /// Path relative to the root of the repository.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Complete text of the page.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Info string and content of the fenced blocks, in order, except those marked as not run. The test that reads the page
    /// must run all of them.
    #[must_use]
    pub fn blocks(&self) -> Vec<(&str, &str)> {
        let all = blocks(&self.text).into_iter();
        all.filter(|(info, _)| info.split_whitespace().all(|word| word != NOT_RUN)).collect()
    }

    /// Returns `true` if the programs that the page's commands call are installed. Otherwise [skips](crate::skip()) the page.
    ///
    /// # Panics
    ///
    /// See [`skip()`](crate::skip()).
    #[must_use]
    pub fn can_run(&self) -> bool {
        let commands = self.blocks().into_iter().filter(|(info, _)| is_command(info));
        let commands: Vec<_> = commands.map(|(_, text)| text).collect();
        let separates = |char: char| !char.is_ascii_alphanumeric() && !"-_./".contains(char);
        let calls =
            |program: &str| commands.iter().any(|text| text.split(separates).any(|word| word == program));
        let can = PROGRAMS.into_iter().filter(|program| calls(program)).all(has_program);
        if !can {
            commands.into_iter().for_each(|text| self.ran(text));
        }
        can
    }

    /// Records that the test has run a block.
    pub fn ran(&self, text: &str) {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // The panic already reports the failure.
        if thread::panicking() {
            return;
        }
        let ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.blocks().into_iter().find(|(info, text)| is_command(info) && !ran.contains(*text));
        assert!(left.is_none(), "{}: not run, and not marked as that: {left:?}", self.path);
    }
}

/// Root folder of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).map(Path::to_owned).unwrap_or_default()
}

/// Info string and content of the fenced blocks of a Markdown text, in order. A block in a list item is returned with its
/// indentation.
#[must_use]
pub fn blocks(markdown: &str) -> Vec<(&str, &str)> {
    let mut blocks = Vec::new();
    let mut open = None;
    let mut end = 0;
    for line in markdown.split_inclusive('\n') {
        let start = end;
        end += line.len();
        if let Some(rest) = line.trim_start_matches(' ').strip_prefix("```") {
            open = match open {
                None => Some((rest.trim_end(), end)),
                Some((info, begin)) => {
                    blocks.push((info, &markdown[begin..start]));
                    None
                }
            };
        }
    }
    blocks
}

/// Commands of a terminal session with their output. A line that begins with `$ ` is a command, continued on the next line
/// after a trailing backslash.
#[must_use]
pub fn commands(session: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut continues = false;
    for line in session.lines() {
        if let Some(command) = line.strip_prefix("$ ").filter(|_| !continues) {
            commands.push((format!("{command}\n"), String::new()));
        } else if let Some((command, printed)) = commands.last_mut() {
            let text = if continues { command } else { printed };
            text.push_str(line);
            text.push('\n');
        }
        continues = line.ends_with('\\') && (continues || line.starts_with("$ "));
    }
    commands
}

/// A shell with `kubectl`, configured for the cluster if there is one.
#[derive(Clone, Debug)]
pub struct Shell {
    folder: PathBuf,
    kubeconfig: Option<PathBuf>,
    /// Folders of programs, in search order.
    programs: Vec<PathBuf>,
}

impl Shell {
    /// Creates a shell in `folder`, its home folder, with this kubectl.
    #[must_use]
    pub fn new(cluster: &Cluster, kubectl: &Path, folder: &Path) -> Self {
        let programs = kubectl.parent().map(Path::to_owned).into_iter().collect();
        Self { folder: folder.to_owned(), kubeconfig: Some(cluster.kubeconfig_path()), programs }
    }

    /// Creates a shell in `folder`, without a cluster.
    #[must_use]
    pub fn offline(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), kubeconfig: None, programs: Vec::new() }
    }

    /// Adds a folder of programs, which is searched before all others.
    #[must_use]
    pub fn with_programs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.programs.insert(0, folder.into());
        self
    }

    /// Runs a script of sh up to its first failing command. Returns `true` if all commands succeeded, and the output.
    ///
    /// # Errors
    ///
    /// Returns an error if the shell cannot be started.
    pub fn run(&self, script: &str) -> io::Result<(bool, String)> {
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(self.programs.iter().cloned().chain(env::split_paths(&path)));
        let mut command = command("sh");
        command.args(["-ec", &format!("exec 2>&1\n{script}")]).current_dir(&self.folder);
        command.env("PATH", path.map_err(io::Error::other)?);
        let none = self.folder.join("no-kubeconfig");
        command.env("KUBECONFIG", self.kubeconfig.as_ref().unwrap_or(&none)).env("HOME", &self.folder);
        let output = command.output()?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page { path: "docs/page.md".to_owned(), text: text.to_owned(), ran: Mutex::default() }
    }

    #[test]
    fn blocks_are_found_with_their_language() {
        let text = "```sh\none\n```\ntext `with` ticks\n\n```console\n$ two\n```\n```text\n```\nend";
        assert_eq!(blocks(text), [("sh", "one\n"), ("console", "$ two\n"), ("text", "")]);
    }

    #[test]
    fn blocks_marked_not_run_are_skipped() {
        let text =
            "```sh not-run\none\n```\n1. item\n   ```sh\n   two\n   ```\n```yaml refused\nthree\n```\n"
                .to_owned();
        let page = page(&text);
        assert_eq!(page.blocks(), [("sh", "   two\n"), ("yaml refused", "three\n")]);
        page.ran("   two\n");
    }

    #[test]
    #[should_panic = "docs/page.md: not run, and not marked as that: Some((\"console\", \"$ two\\n\"))"]
    fn omitted_commands_fail_the_test() {
        let page = page("```sh\none\n```\n```console\n$ two\n```\n");
        page.ran("one\n");
    }

    #[test]
    fn a_command_ends_with_a_line_without_backslash() {
        let session = "$ one \\\n  more\nprinted \\\n$ two\n$ three\n\nlast\n";
        let expected = [("one \\\n  more\n", "printed \\\n"), ("two\n", ""), ("three\n", "\nlast\n")];
        assert_eq!(commands(session), expected.map(|(command, text)| (command.to_owned(), text.to_owned())));
    }
}
