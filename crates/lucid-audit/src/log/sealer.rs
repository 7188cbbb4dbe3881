//! Thread that seals written records: tree, tiles, checkpoint.
//!
//! It reads durable lines back from the segments and compares them with the hashes computed when they were written. Appending
//! records never waits for it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use snafu::ResultExt;

use crate::checkpoint::Checkpoint;
use crate::layout::{self, Line};
use crate::merkle::{Hash, leaf_hash};
use crate::minimum::Minimum;
use crate::note::SigningKey;
use crate::read::{FileError, FileSnafu, reading};

use super::files;
use super::lines::{self, Lines};
use super::prune::{self, Retention};
use super::shared::{LogStatus, Shared};
use super::tree::Tree;

#[derive(Debug)]
pub(super) struct Sealer {
    directory: PathBuf,
    pub(super) key: Arc<SigningKey>,
    tree: Tree,
    interval: Duration,
    shared: Arc<Shared>,
    /// Reader positioned at the first line that is not in the tree.
    lines: Option<Lines>,
    /// Last leaf of the tree, once one was appended.
    prev: Option<Hash>,
    retention: Retention,
    minimum: Minimum,
}

impl Sealer {
    pub(super) fn new(
        directory: &Path,
        key: Arc<SigningKey>,
        tree: Tree,
        interval: Duration,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            directory: directory.to_owned(),
            key,
            tree,
            interval,
            shared,
            lines: None,
            prev: None,
            retention: Retention::default(),
            minimum: Minimum::default(),
        }
    }

    pub(super) fn with_retention(self, retention: Retention, minimum: Minimum) -> Self {
        Self { retention, minimum, ..self }
    }

    pub(super) fn run(mut self) {
        loop {
            let (size, closed) = self.shared.wait(self.retention.interval());
            let begin = Instant::now();
            let sealed = self.shared.lock().status.sealed_size;
            let outcome = if size > sealed { self.seal(size) } else { Ok(()) };
            let is_sealed = outcome.is_ok();
            if !is_sealed {
                self.lines = None;
            }
            self.report("seal", outcome, |now| &mut now.seal_failure);
            if is_sealed {
                let outcome = self.prune();
                self.report("prune", outcome, |now| &mut now.prune_failure);
            }
            if closed {
                return;
            }
            self.shared.pause(self.interval.max(begin.elapsed() * 9));
        }
    }

    /// Reports the outcome of a step in metrics, log and status; the same failure only once in the log.
    fn report(
        &self,
        step: &'static str,
        outcome: io::Result<()>,
        status: impl Fn(&mut LogStatus) -> &mut Option<String>,
    ) {
        let failure = outcome.err().map(|error| error.to_string());
        if failure.is_some() {
            self.shared.metrics.failed(step);
        }
        let mut state = self.shared.lock();
        if *status(&mut state.status) == failure {
            return;
        }
        drop(state);
        let directory = self.directory.display();
        match &failure {
            Some(failure) => tracing::error!("failed to {step} the log in {directory}: {failure}"),
            None => tracing::info!("recovered from the failure to {step} the log in {directory}"),
        }
        self.shared.set(|now| *status(&mut now.status) = failure);
    }

    fn seal(&mut self, size: u64) -> io::Result<()> {
        // Fail early if the log was deleted, before recreating folders. Reopening the lines detects a replaced log.
        lines::segments(&self.directory)?;
        self.lines = self.lines.take().filter(|lines| lines.check_path().is_ok());
        self.tree.write_full().context(self.writing())?;
        while self.tree.size() < size {
            self.append()?;
            self.tree.write_full().context(self.writing())?;
        }
        // Keep the previous tiles, since readers may still use the previous checkpoint.
        let before = self.shared.lock().status.sealed_size;
        let written = self.tree.write_partial().context(self.writing());
        let signed = written.map_err(io::Error::from).and_then(|()| self.sign());
        self.tree.prune([before, self.tree.size()]);
        signed
    }

    pub(super) fn seal_all(&mut self) -> io::Result<()> {
        let size = self.shared.lock().status.size;
        self.seal(size)
    }

    pub(super) fn sign(&self) -> io::Result<()> {
        let (size, root) = (self.tree.size(), self.tree.root());
        let checkpoint = Checkpoint::new(self.key.verifier().name(), size, root);
        let note = checkpoint.sign(&self.key).map_err(io::Error::other)?;
        let path = self.directory.join(layout::CHECKPOINT);
        files::replace(&path, note.to_string().as_bytes()).context(FileSnafu { what: "write", path })?;
        self.shared.set(|now| now.status.sealed_size = size);
        Ok(())
    }

    fn prune(&mut self) -> io::Result<()> {
        let sealed = (self.tree.size(), self.tree.root());
        let Some(minimum) = self.retention.minimum(&self.directory, &self.minimum, sealed)? else {
            return Ok(());
        };
        self.minimum = minimum;
        self.sign_minimum()?;
        tracing::info!(
            "pruned the log in {}: it begins with record {}",
            self.directory.display(),
            minimum.first
        );
        self.remove_pruned()
    }

    /// Signs the minimum index. No segment below it may be removed earlier.
    pub(super) fn sign_minimum(&self) -> io::Result<()> {
        let note = self.minimum.sign(&self.key).map_err(io::Error::other)?;
        let path = self.directory.join(layout::MINIMUM);
        files::replace(&path, note.to_string().as_bytes()).context(FileSnafu { what: "write", path })?;
        self.shared.set(|now| now.status.first = self.minimum.first);
        Ok(())
    }

    /// Removes what is below the minimum index.
    pub(super) fn remove_pruned(&self) -> io::Result<()> {
        let cosigned = self.shared.lock().status.cosigned_size;
        Ok(prune::remove(&self.directory, &self.minimum, cosigned)?)
    }

    fn append(&mut self) -> io::Result<()> {
        let (seq, directory) = (self.tree.size(), self.directory.display());
        let reading = reading(&self.directory);
        let mut lines = match self.lines.take() {
            Some(lines) => lines,
            None => find(&self.directory, seq)?,
        };
        let line = match lines.next().context(reading)? {
            Some(line) => line,
            None => {
                // End of the segment: the next one begins with this record.
                lines = find(&self.directory, seq)?;
                let line = lines.next().context(reading)?;
                line.ok_or_else(|| io::Error::other(format!("record {seq} is not in {directory}")))?
            }
        };
        let found = leaf_hash(line);
        if let Some(written) = self.written(seq).filter(|written| *written != found) {
            return Err(io::Error::other(format!(
                "record {seq} was changed before it was sealed: its hash is {found}, it was written with {written}"
            )));
        }
        let follows = |line: Line| self.prev.is_none_or(|last| last == line.prev);
        if !Line::parse(line).is_ok_and(follows) {
            return Err(io::Error::other(format!(
                "record {seq} does not follow the one before it in {directory}: a line was changed, added or removed"
            )));
        }
        self.tree.append(found, line);
        self.prev = Some(found);
        self.lines = Some(lines);
        Ok(())
    }

    /// Returns the hash with which record `seq` was written; `None` if it was written before opening the log, or dropped.
    fn written(&self, seq: u64) -> Option<Hash> {
        let mut state = self.shared.lock();
        let first = state.status.size - state.leaves.len() as u64;
        let skipped = seq.checked_sub(first)?;
        // Hashes of earlier records are in the tree.
        let skipped = usize::try_from(skipped).ok()?.min(state.leaves.len());
        state.leaves.drain(..skipped);
        state.leaves.front().copied()
    }

    /// Adds the directory to an error of writing the tree.
    fn writing(&self) -> FileSnafu<&'static str, PathBuf> {
        FileSnafu { what: "write the tree in", path: self.directory.clone() }
    }
}

/// Opens a reader positioned at record `seq`.
fn find(directory: &Path, seq: u64) -> Result<Lines, FileError> {
    let segments = lines::segments(directory)?;
    let first = segments.iter().rev().find(|first| **first <= seq).copied().unwrap_or(0);
    let mut lines = Lines::open(directory, first).context(reading(directory))?;
    for _ in first..seq {
        if lines.next().context(reading(directory))?.is_none() {
            break;
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::write_line;
    use crate::log::shared::MOST_LEAVES;
    use crate::metrics::Metrics;
    use crate::verify::{Expectations, verify};

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
        let key = SigningKey::generate("lucid.computing/test/0").unwrap();
        std::fs::write(directory.join(layout::VKEY), key.verifier().to_string()).unwrap();
        let status = LogStatus { vkey: Some(key.verifier().clone()), ..LogStatus::default() };
        let shared = Arc::new(Shared::new(status, Metrics::default()));
        leaves.chunks(64).for_each(|leaves| shared.extend(leaves));
        Sealer::new(directory, Arc::new(key), Tree::new(directory), Duration::ZERO, shared)
    }

    /// Lists the partial files of tile 0, which its bundle has as well.
    fn partials(directory: &Path) -> Vec<String> {
        let names = |folder: &str| {
            let names = std::fs::read_dir(directory.join(folder)).into_iter().flatten();
            let mut names: Vec<_> = names.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let hashes = names("tile/0/000.p");
        assert_eq!(hashes, names("tile/entries/000.p"));
        hashes
    }

    fn bytes(folder: &Path) -> u64 {
        let entries = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap());
        let length = |it: std::fs::DirEntry| {
            let metadata = it.metadata().unwrap();
            if metadata.is_dir() { bytes(&it.path()) } else { metadata.len() }
        };
        entries.map(length).sum()
    }

    #[test]
    fn frequent_seals_do_not_grow_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut sealer = unsealed(folder.path(), 1000);
        let lines = bytes(&folder.path().join(layout::SEGMENTS));
        for size in 1..=1000 {
            sealer.seal(size).unwrap();
            // Each line again with its length, each hash, and the partial tiles of the previous checkpoint.
            let partial = 256 * (lines / 1000 + 1 + 34) + 8 * 32;
            let found = bytes(&folder.path().join("tile"));
            assert!(found <= size * (lines / 1000 + 1 + 34) + partial, "{size}: {found}");
        }
        let report = verify(folder.path(), &Expectations::default()).unwrap();
        assert!(report.is_intact() && report.sealed == Some(1000), "{report:?}");
    }

    #[test]
    fn a_log_that_is_deleted_or_replaced_is_not_sealed() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, moved) = (folder.path().join("log"), folder.path().join("moved"));
        std::fs::create_dir(&directory).unwrap();
        let mut sealer = unsealed(&directory, 3);
        sealer.seal(1).unwrap();
        sealer.append().unwrap();
        std::fs::rename(&directory, moved).unwrap();
        sealer.seal(2).unwrap_err();
        assert!(!directory.exists());
        std::fs::create_dir(&directory).unwrap();
        drop(unsealed(&directory, 1));
        sealer.seal(3).unwrap_err();
        assert!(!directory.join(layout::CHECKPOINT).exists());
    }

    #[test]
    fn partial_tiles_of_the_last_two_checkpoints_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut sealer = unsealed(folder.path(), 100);
        sealer.seal(10).unwrap();
        let checkpoint = folder.path().join(layout::CHECKPOINT);
        let signed = std::fs::read(&checkpoint).unwrap();
        std::fs::remove_file(&checkpoint).unwrap();
        std::fs::create_dir(&checkpoint).unwrap();
        for size in 11..=30 {
            sealer.seal(size).unwrap_err();
            assert_eq!(partials(folder.path()), ["10".to_owned(), size.to_string()]);
        }
        std::fs::remove_dir(&checkpoint).unwrap();
        std::fs::write(&checkpoint, signed).unwrap();
        sealer.seal(30).unwrap();
        assert_eq!(partials(folder.path()), ["10", "30"]);
        for (size, expected) in [(31, vec!["30", "31"]), (40, vec!["31", "40"]), (99, vec!["40", "99"])] {
            sealer.seal(size).unwrap();
            assert_eq!(partials(folder.path()), expected);
        }
    }

    #[test]
    fn a_log_opens_after_a_crash_at_any_step_of_a_seal() {
        for (crash, sealed) in
            [("with tiles", 10), ("with a checkpoint", 20), ("while tiles are removed", 20)]
        {
            let folder = tempfile::tempdir().unwrap();
            let mut sealer = unsealed(folder.path(), 20);
            sealer.seal(5).unwrap();
            sealer.seal(10).unwrap();
            while sealer.tree.size() < 20 {
                sealer.append().unwrap();
            }
            sealer.tree.write_partial().unwrap();
            if crash != "with tiles" {
                sealer.sign().unwrap();
            }
            if crash == "while tiles are removed" {
                std::fs::remove_file(folder.path().join("tile/0/000.p/5")).unwrap();
            }
            let report = verify(folder.path(), &Expectations::default()).unwrap();
            assert!(report.is_intact() && report.sealed == Some(sealed), "{crash}: {report:?}");
            let key = sealer.key.named("lucid.computing/test/0").unwrap();
            drop(crate::log::Log::open(folder.path(), crate::log::Options::new().with_key(key)).unwrap());
            let report = verify(folder.path(), &Expectations::default()).unwrap();
            assert!(report.is_intact(), "{crash}: {report:?}");
        }
    }

    fn edit(directory: &Path, from: &str, to: &str) {
        let path = layout::segment(directory, 0);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
    }

    #[test]
    fn waiting_records_are_bounded_and_verified_before_sealing() {
        let folder = tempfile::tempdir().unwrap();
        let mut sealer = unsealed(folder.path(), MOST_LEAVES + 100);
        assert_eq!(sealer.shared.lock().leaves.len(), MOST_LEAVES);
        edit(folder.path(), "\"a\":7}", "\"a\":8}");
        let error = sealer.seal_all().unwrap_err();
        assert!(error.to_string().starts_with("record 8 does not follow the one before it"), "{error}");
        assert!(!folder.path().join(layout::CHECKPOINT).exists());
    }

    #[test]
    fn late_records_are_sealed_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut sealer = unsealed(folder.path(), MOST_LEAVES + 100);
        sealer.seal_all().unwrap();
        assert_eq!(sealer.shared.lock().status.sealed_size, sealer.tree.size());
        assert_eq!(sealer.shared.lock().leaves.len(), 1);

        let folder = tempfile::tempdir().unwrap();
        let mut sealer = unsealed(folder.path(), 3);
        edit(folder.path(), "\"a\":2}", "\"a\":3}");
        let error = sealer.seal_all().unwrap_err();
        assert!(error.to_string().starts_with("record 2 was changed before it was sealed"), "{error}");
    }
}
