//! Commands in a text for people, to be run as they are written.

use std::{
    collections::BTreeSet,
    env, fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
};

use crate::{Binaries, Cluster, process};

/// The word behind a block's language that says that no test runs it.
pub const NOT_RUN: &str = "not-run";

/// Languages of blocks that somebody may type in, or run.
const COMMANDS: [&str; 5] = ["sh", "bash", "shell", "console", "python"];

/// Whether a block is for a reader to run, by what stands behind its fence.
#[must_use]
pub fn is_command(info: &str) -> bool {
    COMMANDS.contains(&info.split([' ', ',']).next().unwrap_or_default())
}

/// A page of the documentation, whose commands a test runs: all of them, or it fails when the page is dropped.
#[derive(Debug)]
pub struct Page {
    path: String,
    text: String,
    /// Blocks that the test has run.
    ran: Mutex<BTreeSet<String>>,
}

impl Page {
    /// Reads the page at a path from the root of the repository, such as `docs/cli.md`. A page with commands that are
    /// not marked as not run has to be read by some test by this path.
    ///
    /// # Errors
    ///
    /// When there is no such file.
    pub fn read(path: &str) -> io::Result<Self> {
        let text = fs::read_to_string(root().join(path))?;
        Ok(Self { path: path.to_owned(), text, ran: Mutex::default() })
    }

    /// Where it is, from the root of the repository.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// All of it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The fenced blocks of the page but those that are marked as not run: what stands behind the fence, and the
    /// content. In order, each of them meant for the test that reads the page.
    #[must_use]
    pub fn blocks(&self) -> Vec<(&str, &str)> {
        let all = blocks(&self.text).into_iter();
        all.filter(|(info, _)| info.split_whitespace().all(|word| word != NOT_RUN)).collect()
    }

    /// Says that the test has run a block.
    pub fn ran(&self, text: &str) {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // What went wrong before is told already.
        if thread::panicking() {
            return;
        }
        let ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.blocks().into_iter().find(|(info, text)| is_command(info) && !ran.contains(*text));
        assert!(left.is_none(), "{}: not run, and not marked as that: {left:?}", self.path);
    }
}

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// The fenced blocks of a Markdown text: what stands behind the fence, and the content, in order. A block in an item of
/// a list is indented, and given as it stands.
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

/// What is typed in a session at a terminal, and what that is said to print. A line that begins with `$ ` is a command,
/// with the lines after it as long as each ends in a backslash.
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

/// A shell in which `kubectl` is there and knows the cluster, if there is one.
#[derive(Clone, Debug)]
pub struct Shell {
    folder: PathBuf,
    kubeconfig: Option<PathBuf>,
    /// Folders of programs, the first first.
    programs: Vec<PathBuf>,
}

impl Shell {
    /// In `folder`, which is the home folder as well. `binaries` has kubectl.
    #[must_use]
    pub fn new(cluster: &Cluster, binaries: &Binaries, folder: &Path) -> Self {
        let programs = vec![binaries.folder()];
        Self { folder: folder.to_owned(), kubeconfig: Some(cluster.kubeconfig_path()), programs }
    }

    /// In `folder`, without a cluster.
    #[must_use]
    pub fn offline(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), kubeconfig: None, programs: Vec::new() }
    }

    /// Also finds the programs of another folder, before all others.
    #[must_use]
    pub fn with_programs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.programs.insert(0, folder.into());
        self
    }

    /// Runs a script of sh until its first command that fails. Returns whether none did, and what was printed.
    ///
    /// # Errors
    ///
    /// When there is no shell.
    pub fn run(&self, script: &str) -> io::Result<(bool, String)> {
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(self.programs.iter().cloned().chain(env::split_paths(&path)));
        let mut command = process::command("sh");
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
    fn what_is_marked_as_not_run_is_not_for_a_test() {
        let text =
            "```sh not-run\none\n```\n1. item\n   ```sh\n   two\n   ```\n```yaml refused\nthree\n```\n"
                .to_owned();
        let page = page(&text);
        assert_eq!(page.blocks(), [("sh", "   two\n"), ("yaml refused", "three\n")]);
        page.ran("   two\n");
    }

    #[test]
    #[should_panic = "docs/page.md: not run, and not marked as that: Some((\"console\", \"$ two\\n\"))"]
    fn a_command_that_a_test_leaves_out_fails_it() {
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
