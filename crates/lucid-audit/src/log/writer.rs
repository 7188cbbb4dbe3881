//! The thread that writes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use crate::anchor::Anchor;
use crate::layout::{LONGEST_RECORD, write_line};
use crate::merkle::{Hash, leaf_hash};

use super::error::AppendError;
use super::options::{Options, Sync};
use super::queue::{Queue, Waiting};
use super::sealer::Durable;
use super::segment::Segment;
use super::status::Status;

/// How many records are written at once.
const GROUP: usize = 64;

/// Writes records to the end of the log, a group at a time. A group is kept as a whole or not at all.
#[derive(Debug)]
pub(super) struct Writer {
    directory: PathBuf,
    options: Options,
    status: Arc<Status>,
    /// Who seals what is written; nobody does without a key.
    durable: Option<Arc<Durable>>,
    /// The segment at the end; none when the next record begins a new one.
    segment: Option<Segment>,
    /// How many records there are.
    size: u64,
    /// The leaf hash of the last one.
    prev: Hash,
    /// Lines that the disk may not have yet, and their hashes. They can be written again.
    tail: Vec<u8>,
    leaves: Vec<Hash>,
    /// When the disk last had everything.
    synced: Instant,
    /// A segment that was given up, and cut; the disk may not know it yet.
    given_up: Option<Segment>,
    /// What has to be written before anything else: records that take others back, and could not be written so far.
    owed: Vec<Waiting>,
    broken: Option<String>,
}

impl Writer {
    pub(super) fn new(
        directory: &Path,
        options: Options,
        status: Arc<Status>,
        durable: Option<Arc<Durable>>,
        segment: Option<Segment>,
        (size, prev): (u64, Hash),
    ) -> Self {
        Self {
            directory: directory.to_owned(),
            options,
            status,
            durable,
            segment,
            size,
            prev,
            tail: Vec::new(),
            leaves: Vec::new(),
            synced: Instant::now(),
            given_up: None,
            owed: Vec::new(),
            broken: None,
        }
    }

    /// Writes what comes until the queue is closed.
    pub(super) fn run(mut self, queue: &Queue) {
        let most = if self.options.sync == Sync::Always { 1 } else { GROUP };
        while let Some(group) = queue.take(most, self.patience()) {
            if !group.is_empty() {
                self.write_group(group);
            }
            self.sync_when_due();
        }
        if !self.owed.is_empty() {
            self.write_group(Vec::new());
        }
        if let Err(error) = self.sync() {
            self.failed(&error);
        }
    }

    fn write_group(&mut self, mut group: Vec<Waiting>) {
        group.splice(..0, self.owed.drain(..));
        let (fit, unfit): (Vec<_>, Vec<_>) = group.into_iter().partition(|waiting| fits(&waiting.record));
        for waiting in unfit {
            let found = waiting.record.len();
            waiting.answer(Err(AppendError::Unfit { found }));
        }
        let records: Vec<&[u8]> = fit.iter().map(|waiting| &waiting.record[..]).collect();
        let first = self.size;
        match self.write(&records) {
            Ok(leaves) => {
                let size = self.size;
                for ((waiting, leaf), seq) in fit.into_iter().zip(leaves).zip(first..) {
                    waiting.answer(Ok(Anchor { seq, leaf, size }));
                }
            }
            Err(error) => {
                self.failed(&error);
                let (owed, asked): (Vec<_>, Vec<_>) = fit.into_iter().partition(Waiting::is_owed);
                self.owed = owed;
                asked.into_iter().for_each(|waiting| waiting.answer(Err(error.clone())));
            }
        }
    }

    /// Writes records, and returns their leaf hashes when they are kept.
    pub(super) fn write(&mut self, records: &[&[u8]]) -> Result<Vec<Hash>, AppendError> {
        if let Some(reason) = &self.broken {
            return Err(AppendError::Broken { reason: reason.clone() });
        }
        if records.is_empty() {
            return Ok(Vec::new());
        }
        self.rotate_when_due()?;
        // The disk refused what was promised, and the segment was given up: nothing more is promised until it has that.
        let is_behind = self.segment.is_none() && !self.leaves.is_empty();
        let before = (self.tail.len(), self.leaves.len(), self.size, self.prev);
        for record in records {
            let begin = self.tail.len();
            write_line(&mut self.tail, self.size, &self.prev, record);
            let line = self.tail.get(begin..self.tail.len() - 1).unwrap_or_default();
            self.prev = leaf_hash(line);
            self.leaves.push(self.prev);
            self.size += 1;
        }
        let later = matches!(self.options.sync, Sync::Interval(_)) && !is_behind;
        let written = self.append(before.0).and_then(|()| if later { Ok(()) } else { self.sync_tail() });
        let bytes = self.tail.len().saturating_sub(before.0);
        if let Err(error) = written {
            // Nobody is told of them, so they must not be there either.
            self.tail.truncate(before.0);
            self.leaves.truncate(before.1);
            (self.size, self.prev) = (before.2, before.3);
            return Err(error);
        }
        let leaves = self.leaves.get(before.1..).unwrap_or_default().to_vec();
        if !later {
            self.settle();
        }
        let metrics = &self.options.metrics;
        metrics.records.inc_by(records.len() as u64);
        metrics.commits.inc();
        metrics.bytes.inc_by(bytes as u64);
        self.status.kept(self.size);
        Ok(leaves)
    }

    /// Brings the lines from `begin` in the tail into a segment: all of the tail when the segment is a new one.
    fn append(&mut self, begin: usize) -> Result<(), AppendError> {
        if let Some(segment) = &self.given_up {
            segment.sync_cut().map_err(|error| AppendError::Sync { source: Arc::new(error) })?;
            self.given_up = None;
        }
        let begin = if self.segment.is_some() { begin } else { 0 };
        let lines = self.tail.get(begin..).unwrap_or_default();
        let segment = match &mut self.segment {
            Some(segment) => segment,
            segment => {
                let first = self.size - self.leaves.len() as u64;
                let created = Segment::create(&self.directory, first).map_err(write_error)?;
                #[cfg(test)]
                let created = created.with_faults(self.options.faults.clone());
                segment.insert(created)
            }
        };
        let length = segment.length();
        let Err(error) = segment.append(lines) else { return Ok(()) };
        if begin == 0 && length == 0 {
            // A new one: the next attempt begins it anew, with all of the tail.
            self.abandon();
        } else if let Err(error) = segment.truncate(length) {
            self.break_off(&format!("a part of a line could not be taken back: {error}"));
        }
        Err(write_error(error))
    }

    /// Brings all lines to the disk. The segment that fails at that is given up, and a new one takes the lines that it may
    /// not have.
    fn sync_tail(&mut self) -> Result<(), AppendError> {
        let Err(error) = self.sync_segment() else { return Ok(()) };
        tracing::error!(%error, "failed to bring the log in {} to the disk; its segment ends here", self.directory.display());
        self.options.metrics.failed("sync");
        self.abandon();
        if self.broken.is_none() {
            self.append(0)?;
            if self.sync_segment().is_ok() {
                return Ok(());
            }
            self.abandon();
        }
        Err(AppendError::Sync { source: Arc::new(error) })
    }

    fn sync_segment(&mut self) -> io::Result<()> {
        let Some(segment) = &mut self.segment else { return Ok(()) };
        let begin = Instant::now();
        segment.sync()?;
        self.options.metrics.fsync.observe(begin.elapsed().as_secs_f64());
        Ok(())
    }

    /// Gives the segment up, with what is in it for good.
    fn abandon(&mut self) {
        let Some(segment) = self.segment.take() else { return };
        match segment.abandon() {
            Ok(cut) => self.given_up = cut,
            Err(error) => {
                self.break_off(&format!("a segment could not be cut where the disk has it: {error}"));
            }
        }
    }

    /// What follows would not be where it is looked for.
    fn break_off(&mut self, reason: &str) {
        tracing::error!("the log in {} cannot be written to any more: {reason}", self.directory.display());
        self.broken = Some(reason.to_owned());
    }

    /// The disk has everything: it can be sealed.
    fn settle(&mut self) {
        if let Some(durable) = &self.durable {
            durable.extend(&self.leaves);
        }
        self.leaves.clear();
        self.tail.clear();
        self.synced = Instant::now();
    }

    /// Brings everything to the disk.
    pub(super) fn sync(&mut self) -> Result<(), AppendError> {
        if !self.leaves.is_empty() {
            // A segment that was given up may be missing.
            if self.segment.is_none() {
                self.append(0)?;
            }
            self.sync_tail()?;
            self.settle();
        }
        Ok(())
    }

    fn rotate_when_due(&mut self) -> Result<(), AppendError> {
        let full = self.segment.as_ref().is_some_and(|it| it.length() >= self.options.segment_bytes);
        if full {
            self.sync()?;
            self.segment = None;
        }
        Ok(())
    }

    /// How long the queue may be empty before something else is to be done.
    fn patience(&self) -> Option<std::time::Duration> {
        match self.options.sync {
            Sync::Interval(interval) if !self.leaves.is_empty() => {
                Some(interval.saturating_sub(self.synced.elapsed()))
            }
            _ => None,
        }
    }

    fn sync_when_due(&mut self) {
        if let Sync::Interval(interval) = self.options.sync
            && !self.leaves.is_empty()
            && self.synced.elapsed() >= interval
            && let Err(error) = self.sync()
        {
            self.failed(&error);
            // Not again at once.
            self.synced = Instant::now();
        }
    }

    fn failed(&self, error: &AppendError) {
        self.status.failed(error);
    }
}

/// One line of JSON, an object with something in it, and without the fields that the log puts first.
fn fits(record: &[u8]) -> bool {
    let object = record.len() > 2 && record.starts_with(b"{") && record.ends_with(b"}");
    object
        && record.len() <= LONGEST_RECORD
        && !record.contains(&b'\n')
        && serde_json::from_slice::<Taken>(record).is_ok_and(|taken| !taken.seq.0 && !taken.prev.0)
}

/// The fields that no record may have.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Taken {
    seq: Present,
    prev: Present,
}

#[derive(Default)]
struct Present(bool);

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(value).map(|_| Self(true))
    }
}

fn write_error(error: io::Error) -> AppendError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            AppendError::Full { source: Arc::new(error) }
        }
        _ => AppendError::Write { source: Arc::new(error) },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;
    use crate::layout;
    use crate::log::Log;

    fn lines(directory: &Path) -> Vec<String> {
        let mut paths: Vec<_> =
            fs::read_dir(directory.join(layout::SEGMENTS)).unwrap().map(|it| it.unwrap().path()).collect();
        paths.sort();
        let texts = paths.iter().map(|path| fs::read_to_string(path).unwrap());
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// A disk that fails to sync `faults` times after the first record.
    async fn with_faults(sync: Sync, faults: u32) -> (tempfile::TempDir, Options, Log) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().sync(sync);
        let log = Log::open(folder.path(), options.clone()).unwrap();
        log.append(br#"{"a":"before"}"#.to_vec()).await.unwrap();
        options.faults.syncs.store(faults, Ordering::SeqCst);
        (folder, options, log)
    }

    #[tokio::test]
    async fn a_segment_that_cannot_be_synced_ends_and_another_one_takes_over() {
        let (folder, _, log) = with_faults(Sync::Batch, 1).await;
        assert_eq!(log.append(br#"{"a":"while"}"#.to_vec()).await.unwrap().seq, 1);
        assert_eq!(log.append(br#"{"a":"after"}"#.to_vec()).await.unwrap().seq, 2);
        log.close();
        assert_eq!(lines(folder.path()).len(), 3);
        assert!(layout::segment(folder.path(), 1).exists());
        drop(log);
        Log::open(folder.path(), Options::new()).unwrap();
    }

    #[tokio::test]
    async fn what_no_segment_can_sync_is_not_kept_and_not_there() {
        let (folder, _, log) = with_faults(Sync::Batch, 2).await;
        let error = log.append(br#"{"a":"while"}"#.to_vec()).await.unwrap_err();
        assert!(matches!(error, AppendError::Sync { .. }), "{error}");
        assert_eq!(lines(folder.path()).len(), 1);
        assert_eq!(log.append(br#"{"a":"after"}"#.to_vec()).await.unwrap().seq, 1);
        log.close();
        let lines = lines(folder.path());
        assert!(lines.len() == 2 && lines[1].contains("after"), "{lines:?}");
    }

    #[tokio::test]
    async fn a_disk_that_stays_behind_is_promised_nothing_more() {
        let (folder, options, log) = with_faults(Sync::Interval(Duration::from_millis(1)), u32::MAX).await;
        let mut promised = 1;
        let error = loop {
            match log.append(br#"{"a":"while"}"#.to_vec()).await {
                Ok(anchor) => promised = anchor.seq + 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, AppendError::Sync { .. }), "{error}");
        log.append(br#"{"a":"while"}"#.to_vec()).await.unwrap_err();
        options.faults.syncs.store(0, Ordering::SeqCst);
        assert_eq!(log.append(br#"{"a":"after"}"#.to_vec()).await.unwrap().seq, promised);
        log.close();
        let lines = lines(folder.path());
        assert_eq!(lines.len() as u64, promised + 1);
        drop(log);
        Log::open(folder.path(), Options::new()).unwrap();
    }

    #[tokio::test]
    async fn what_was_promised_is_written_again_when_the_disk_did_not_have_it() {
        let (folder, options, log) = with_faults(Sync::Interval(Duration::from_secs(60)), 0).await;
        for number in 0..10 {
            log.append(format!("{{\"a\":{number}}}").into_bytes()).await.unwrap();
        }
        options.faults.syncs.store(1, Ordering::SeqCst);
        log.close();
        drop(log);
        assert_eq!(lines(folder.path()).len(), 11);
        Log::open(folder.path(), Options::new()).unwrap();
    }
}
