//! The thread that seals what the other one has written: tree, tiles, checkpoint.
//!
//! It reads the lines back from their segments, only what is on the disk for good, and compares them with the hashes of
//! what was written. Whoever waits for a record waits for none of this.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snafu::{ResultExt, Snafu, ensure};

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::layout::{self, Line};
use crate::merkle::{Hash, leaf_hash};
use crate::metrics::{Metrics, gauge};
use crate::note::SigningKey;

use super::files;
use super::lines::{self, Lines};
use super::status::Status;
use super::tree::Tree;

/// How many hashes wait for the sealing thread: 2 MiB. While it cannot seal, older ones go; of their lines the later ones tell
/// as well, since each line has the hash of the one before.
const MOST_LEAVES: usize = 1 << 16;

/// What can be sealed, as the writing thread tells the sealing one.
#[derive(Debug, Default)]
pub(super) struct Durable {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many records are on the disk for good.
    size: u64,
    /// The hashes of the latest of them, at most [`MOST_LEAVES`].
    leaves: VecDeque<Hash>,
    /// How many of them the checkpoint covers.
    sealed: u64,
    closed: bool,
}

impl Durable {
    pub(super) fn new(size: u64, sealed: u64) -> Self {
        Self { state: Mutex::new(State { size, sealed, ..State::default() }), changed: Condvar::new() }
    }

    /// These followed.
    pub(super) fn extend(&self, leaves: &[Hash]) {
        let mut state = self.lock();
        state.size += leaves.len() as u64;
        state.leaves.extend(leaves);
        let surplus = state.leaves.len().saturating_sub(MOST_LEAVES);
        state.leaves.drain(..surplus);
        drop(state);
        self.changed.notify_all();
    }

    /// No more will follow.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub(super) fn sealed(&self) -> u64 {
        self.lock().sealed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why something is not sealed.
#[derive(Debug, Snafu)]
pub(super) enum SealError {
    #[snafu(display("failed to {what} {}: {source}", path.display()))]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[snafu(display("record {seq} is not in {}", directory.display()))]
    Missing { seq: u64, directory: PathBuf },
    #[snafu(display(
        "record {seq} was changed before it was sealed: its hash is {found}, it was written with {written}"
    ))]
    Rewritten { seq: u64, found: Hash, written: Hash },
    #[snafu(display("record {seq} does not follow the one before it in {}: a line was changed, added or taken out", directory.display()))]
    Chain { seq: u64, directory: PathBuf },
    #[snafu(transparent)]
    Checkpoint { source: CheckpointError },
}

#[derive(Debug)]
pub(super) struct Sealer {
    pub(super) directory: PathBuf,
    pub(super) key: Arc<SigningKey>,
    pub(super) tree: Tree,
    pub(super) durable: Arc<Durable>,
    pub(super) interval: Duration,
    pub(super) status: Arc<Status>,
    pub(super) metrics: Metrics,
    /// Where the leaf after the tree's last is.
    pub(super) lines: Option<Lines>,
    /// The tree's last leaf, once one was appended.
    pub(super) prev: Option<Hash>,
}

impl Sealer {
    /// Seals until no more will follow.
    pub(super) fn run(mut self) {
        let mut failure = None;
        loop {
            let (size, closed) = self.wait();
            let begin = Instant::now();
            let outcome = if size > self.durable.sealed() { self.seal(size) } else { Ok(()) };
            if let Err(error) = &outcome {
                self.lines = None;
                self.metrics.failed("seal");
                let text = error.to_string();
                // Once is enough.
                if failure.as_ref() != Some(&text) {
                    tracing::error!("failed to seal the log in {}: {text}", self.directory.display());
                    self.status.not_sealed(Some(text.clone()));
                    failure = Some(text);
                }
            } else if failure.take().is_some() {
                self.status.not_sealed(None);
                tracing::info!("the log in {} is sealed again", self.directory.display());
            }
            if closed {
                return;
            }
            self.pause(self.interval.max(begin.elapsed() * 9));
        }
    }

    /// Waits until there is something to be sealed.
    fn wait(&self) -> (u64, bool) {
        let idle = |state: &mut State| state.size == state.sealed && !state.closed;
        let state = self.durable.changed.wait_while(self.durable.lock(), idle);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        (state.size, state.closed)
    }

    /// Lets some more records come, unless none will.
    fn pause(&self, time: Duration) {
        let open = |state: &mut State| !state.closed;
        drop(self.durable.changed.wait_timeout_while(self.durable.lock(), time, open));
    }

    /// Seals the first `size` records.
    fn seal(&mut self, size: u64) -> Result<(), SealError> {
        while self.tree.size() < size {
            self.append()?;
        }
        self.tree.write_partial().context(IoSnafu { what: "write the tree in", path: &self.directory })?;
        self.sign()
    }

    /// Seals what there is.
    pub(super) fn seal_all(&mut self) -> Result<(), SealError> {
        let size = self.durable.lock().size;
        self.seal(size)
    }

    /// Signs the tree as it is.
    pub(super) fn sign(&self) -> Result<(), SealError> {
        let (size, root) = (self.tree.size(), self.tree.root());
        let note = Checkpoint::new(self.key.verifier().name(), size, root).sign(&self.key)?;
        let path = self.directory.join(layout::CHECKPOINT);
        files::replace(&path, note.to_string().as_bytes()).context(IoSnafu { what: "write", path })?;
        self.durable.lock().sealed = size;
        self.metrics.sealed_size.set(gauge(size));
        Ok(())
    }

    /// Appends the next line to the tree.
    fn append(&mut self) -> Result<(), SealError> {
        let seq = self.tree.size();
        let read = IoSnafu { what: "read", path: &self.directory };
        let mut lines = match self.lines.take() {
            Some(lines) => lines,
            None => find(&self.directory, seq).context(read)?,
        };
        let line = match lines.next().context(read)? {
            Some(line) => line,
            None => {
                // The segment has ended; the next one begins with this record.
                lines = find(&self.directory, seq).context(read)?;
                let Some(line) = lines.next().context(read)? else {
                    return MissingSnafu { seq, directory: &self.directory }.fail();
                };
                line
            }
        };
        let found = leaf_hash(line);
        let prev = Line::parse(line).ok().map(|line| line.prev);
        if let Some(written) = self.written(seq) {
            ensure!(found == written, RewrittenSnafu { seq, found, written });
        }
        let follows = prev.is_some_and(|prev| self.prev.is_none_or(|last| last == prev));
        ensure!(follows, ChainSnafu { seq, directory: &self.directory });
        let grow = IoSnafu { what: "write the tree in", path: &self.directory };
        self.tree.append(found, line).context(grow)?;
        self.prev = Some(found);
        self.lines = Some(lines);
        Ok(())
    }

    /// The hash that record `seq` was written with; none of those that were there when the log was opened, or whose hash went.
    fn written(&self, seq: u64) -> Option<Hash> {
        let mut state = self.durable.lock();
        let first = state.size - state.leaves.len() as u64;
        let skipped = seq.checked_sub(first)?;
        // Those before are in the tree.
        let skipped = usize::try_from(skipped).ok()?.min(state.leaves.len());
        state.leaves.drain(..skipped);
        state.leaves.front().copied()
    }
}

/// Where record `seq` is.
fn find(directory: &Path, seq: u64) -> io::Result<Lines> {
    let segments = lines::segments(directory)?;
    let first = segments.iter().rev().find(|first| **first <= seq).copied().unwrap_or(0);
    let mut lines = Lines::open(directory, first, 0)?;
    for _ in first..seq {
        if lines.next()?.is_none() {
            break;
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::write_line;

    /// A log of this many records, of which none is sealed.
    fn unsealed(directory: &Path, records: usize) -> Sealer {
        let (mut lines, mut leaves) = (Vec::new(), vec![]);
        for seq in 0..records {
            let begin = lines.len();
            let prev = leaves.last().copied().unwrap_or(Hash::ZERO);
            write_line(&mut lines, seq as u64, &prev, format!("{{\"a\":{seq}}}").as_bytes());
            leaves.push(leaf_hash(&lines[begin..lines.len() - 1]));
        }
        std::fs::create_dir(directory.join(layout::SEGMENTS)).unwrap();
        std::fs::write(layout::segment(directory, 0), lines).unwrap();
        let durable = Arc::new(Durable::new(0, 0));
        leaves.chunks(64).for_each(|leaves| durable.extend(leaves));
        Sealer {
            directory: directory.to_owned(),
            key: Arc::new(SigningKey::generate("lucid.computing/test/0").unwrap()),
            tree: Tree::new(directory),
            durable,
            interval: Duration::ZERO,
            status: Arc::new(Status::new(records as u64, Metrics::default())),
            metrics: Metrics::default(),
            lines: None,
            prev: None,
        }
    }

    fn edit(directory: &Path, from: &str, to: &str) {
        let path = layout::segment(directory, 0);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
    }

    #[test]
    fn what_waits_to_be_sealed_for_long_takes_no_more_room_and_is_not_sealed_when_it_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let mut sealer = unsealed(folder.path(), MOST_LEAVES + 100);
        assert_eq!(sealer.durable.lock().leaves.len(), MOST_LEAVES);
        edit(folder.path(), "\"a\":7}", "\"a\":8}");
        let error = sealer.seal_all().unwrap_err();
        assert!(error.to_string().starts_with("record 8 does not follow the one before it"), "{error}");
        assert!(!folder.path().join(layout::CHECKPOINT).exists());
    }

    #[test]
    fn what_waited_to_be_sealed_for_long_is_sealed_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut sealer = unsealed(folder.path(), MOST_LEAVES + 100);
        sealer.seal_all().unwrap();
        assert_eq!(sealer.durable.sealed(), sealer.tree.size());
        assert_eq!(sealer.durable.lock().leaves.len(), 1);

        let folder = tempfile::tempdir().unwrap();
        let mut sealer = unsealed(folder.path(), 3);
        edit(folder.path(), "\"a\":2}", "\"a\":3}");
        let error = sealer.seal_all().unwrap_err();
        assert!(matches!(error, SealError::Rewritten { seq: 2, .. }), "{error}");
    }
}
