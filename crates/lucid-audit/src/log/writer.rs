//! Thread that writes records.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};

use serde::de::IgnoredAny;

use crate::anchor::Anchor;
use crate::layout::{self, LONGEST_RECORD, write_line};
use crate::merkle::{Hash, leaf_hash};

use super::Lock;
use super::error::AppendError;
use super::files;
use super::options::{Options, Sync};
use super::queue::{Queue, Waiting};
use super::recover;
use super::segment::Segment;
use super::shared::Shared;

/// Maximum number of records per write.
const GROUP: usize = 64;
/// Number of bytes that a failing log must write before it accepts records again: some 1,000 decisions with their entries.
/// Without this reserve, a little freed space would be used up within seconds. Volumes must be larger.
const RESERVE: usize = 1 << 20;
/// Pause before the first probe of a failing log. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Writes groups of records to the end of the log. A group is kept completely or not at all.
#[derive(Debug)]
pub(super) struct Writer {
    directory: PathBuf,
    options: Options,
    lock: Lock,
    shared: Arc<Shared>,
    /// Last segment; `None` if the next record begins a new one.
    segment: Option<Segment>,
    /// Number of records.
    size: u64,
    /// Leaf hash of the last record.
    prev: Hash,
    /// Leaf hash of the last durable record.
    settled: Hash,
    /// Lines that may not be durable yet, and their hashes. Kept for writing them again.
    tail: Vec<u8>,
    leaves: Vec<Hash>,
    /// Time at which all lines were last durable.
    synced: Instant,
    /// Abandoned segment, to be truncated before another one begins.
    abandoned: Option<Segment>,
    /// Superseding records that could not be written yet. They precede all other records.
    owed: Vec<Waiting>,
    /// Reason for rejecting records until [`Self::probe`] succeeds.
    refusal: Option<AppendError>,
    /// Time of the next probe of a failing log, and the pause before the one after it.
    next_probe: Option<Instant>,
    pause: Duration,
}

impl Writer {
    pub(super) fn new(
        directory: &Path,
        options: Options,
        lock: Lock,
        shared: Arc<Shared>,
        segment: Option<Segment>,
        (size, prev): (u64, Hash),
    ) -> Self {
        Self {
            directory: directory.to_owned(),
            options,
            lock,
            shared,
            segment,
            size,
            prev,
            settled: prev,
            tail: Vec::new(),
            leaves: Vec::new(),
            synced: Instant::now(),
            abandoned: None,
            owed: Vec::new(),
            refusal: None,
            next_probe: None,
            pause: FIRST_PAUSE,
        }
    }

    /// Writes records until the queue is closed. Returns the lock, to be held until all records are sealed.
    pub(super) fn run(mut self, queue: &Queue) -> File {
        let most = if self.options.sync == Sync::Always { 1 } else { GROUP };
        while let Some(group) = queue.take(most, self.patience()) {
            if !group.is_empty() {
                self.write_group(group);
            }
            self.sync_when_due();
            self.probe_when_due();
        }
        self.refusal = None;
        if !self.owed.is_empty() {
            self.write_group(Vec::new());
        }
        if let Err(error) = self.sync() {
            self.failed(&error);
        }
        self.lock.file
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

    /// Writes records. Returns their leaf hashes once they are kept.
    pub(super) fn write(&mut self, records: &[&[u8]]) -> Result<Vec<Hash>, AppendError> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if self.lock.identity.check().is_err() {
            self.heal()?;
        }
        self.rotate_when_due()?;
        // Acknowledged lines may not be durable and their segment was abandoned: flush before acknowledging more.
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
            // These records are rejected, so they must not stay in the log.
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
        self.shared.set(|now| {
            now.status.size = self.size;
            now.status.failure = None;
        });
        Ok(leaves)
    }

    /// Writes the tail from `begin` to the segment, or the whole tail to a new segment.
    fn append(&mut self, begin: usize) -> Result<(), AppendError> {
        if self.abandoned.is_some() {
            self.heal()?;
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
        let named =
            if length == 0 { files::sync_folder(&self.directory.join(layout::SEGMENTS)) } else { Ok(()) };
        let Err(error) = named.and_then(|()| segment.append(lines)) else { return Ok(()) };
        // A new segment is recreated by the next attempt, with the whole tail.
        if length == 0 || segment.truncate(length).is_err() {
            self.abandon();
        }
        Err(write_error(error))
    }

    /// Flushes all lines to disk. If that fails, abandons the segment and writes the lines that may not be durable to a new
    /// one.
    fn sync_tail(&mut self) -> Result<(), AppendError> {
        let Err(error) = self.sync_segment() else { return Ok(()) };
        tracing::error!(%error, "failed to flush the log in {}; a new segment begins", self.directory.display());
        self.options.metrics.failed("sync");
        self.abandon();
        self.append(0)?;
        if self.sync_segment().is_ok() {
            return Ok(());
        }
        self.abandon();
        Err(AppendError::Sync { source: Arc::new(error) })
    }

    fn sync_segment(&mut self) -> io::Result<()> {
        let Some(segment) = &mut self.segment else { return Ok(()) };
        let begin = Instant::now();
        segment.sync()?;
        self.options.metrics.fsync.observe(begin.elapsed().as_secs_f64());
        Ok(())
    }

    /// Abandons the segment, keeping its durable content.
    fn abandon(&mut self) {
        let Some(mut segment) = self.segment.take() else { return };
        if let Err(error) = segment.abandon() {
            tracing::error!(%error, "failed to truncate a segment of the log in {}; retrying", self.directory.display());
        }
        self.abandoned = Some(segment);
    }

    /// Restores the preconditions of a new segment: the lock is held, the directory contains the durable records, and nothing
    /// follows them.
    fn heal(&mut self) -> Result<(), AppendError> {
        if self.segment.as_ref().is_some_and(|segment| segment.check_path().is_err()) {
            self.abandon();
        }
        let locked = self.lock.identity.check().is_ok();
        let in_place = self.abandoned.as_ref().is_none_or(|segment| segment.check_path().is_ok());
        if !locked || !in_place {
            // Verify before locking as well: locking creates a file in the directory.
            self.verify(locked)?;
        }
        if !locked {
            self.lock = super::lock(&self.directory).map_err(|error| self.lost(error.to_string()))?;
            self.verify(false)?;
        }
        if let Some(segment) = &self.abandoned {
            segment.cut().map_err(|error| AppendError::Sync { source: Arc::new(error) })?;
            self.abandoned = None;
        }
        Ok(())
    }

    /// Checks that the directory contains the durable records. Further records are accepted only if the lock was held all the
    /// time: otherwise another process may have written them, and this one must not truncate them.
    fn verify(&self, locked: bool) -> Result<(), AppendError> {
        let size = self.size - self.leaves.len() as u64;
        let end = recover::end(&self.directory).map_err(|error| self.lost(error.to_string()))?;
        if end.hash(size) == Some(self.settled) && (locked || end.size == size) {
            return Ok(());
        }
        let others = if end.size == size { "others" } else { "records" };
        Err(self.lost(format!("{size} records were written, {} {others} are there", end.size)))
    }

    fn lost(&self, reason: String) -> AppendError {
        AppendError::Lost { directory: self.directory.clone(), reason }
    }

    /// Tries to make a failing log accept records again, and writes owed records.
    fn probe(&mut self) -> Result<(), AppendError> {
        self.heal()?;
        self.sync()?;
        self.reserve().map_err(write_error)?;
        self.refusal = None;
        if !self.owed.is_empty() {
            self.write_group(Vec::new());
        }
        Ok(())
    }

    /// Writes and removes the reserve, to check for free space.
    fn reserve(&self) -> io::Result<()> {
        #[cfg(test)]
        self.options.faults.room()?;
        // Random bytes: the file system may store zeros without using space.
        let mut bytes = vec![0; RESERVE];
        SystemRandom::new().fill(&mut bytes).map_err(io::Error::other)?;
        files::check_space(&self.directory.join(layout::RESERVE), &bytes)
    }

    fn probe_when_due(&mut self) {
        if self.shared.lock().status.failure.is_none() {
            self.refusal = None;
            self.next_probe = None;
            self.pause = FIRST_PAUSE;
            return;
        }
        let pause = self.pause;
        if *self.next_probe.get_or_insert_with(|| Instant::now() + pause) > Instant::now() {
            return;
        }
        match self.probe() {
            // Writing the owed records has failed and reported its error.
            Ok(()) if !self.owed.is_empty() => {}
            Ok(()) => {
                self.shared.set(|now| now.status.failure = None);
                tracing::info!("the log in {} accepts records again", self.directory.display());
            }
            Err(error) => self.failed(&error),
        }
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        self.next_probe = Some(Instant::now() + self.pause);
    }

    /// Marks all lines as durable, so that they can be sealed.
    fn settle(&mut self) {
        self.shared.extend(&self.leaves);
        self.leaves.clear();
        self.tail.clear();
        self.settled = self.prev;
        self.synced = Instant::now();
    }

    /// Flushes all lines to disk.
    pub(super) fn sync(&mut self) -> Result<(), AppendError> {
        if !self.leaves.is_empty() {
            // The previous segment may have been abandoned.
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

    /// Returns how long to wait for records before a probe or flush is due.
    fn patience(&self) -> Option<Duration> {
        let probe = self.next_probe.map(|at| at.saturating_duration_since(Instant::now()));
        probe.into_iter().chain(self.until_sync()).min()
    }

    /// Returns the time until the next flush is due. Without a segment, [`Self::probe`] flushes instead.
    fn until_sync(&self) -> Option<Duration> {
        match self.options.sync {
            Sync::Interval(interval) if !self.leaves.is_empty() && self.segment.is_some() => {
                Some(interval.saturating_sub(self.synced.elapsed()))
            }
            _ => None,
        }
    }

    fn sync_when_due(&mut self) {
        if self.until_sync() == Some(Duration::ZERO)
            && let Err(error) = self.sync()
        {
            self.failed(&error);
        }
    }

    fn failed(&mut self, error: &AppendError) {
        if matches!(error, AppendError::Full { .. } | AppendError::Lost { .. }) {
            self.refusal = Some(error.clone());
        }
        if self.shared.failed(error.to_string()) {
            tracing::error!("the log in {} rejects records: {error}", self.directory.display());
        }
    }
}

/// Returns `true` for a one-line, nonempty JSON object without the fields that the log adds.
fn fits(record: &[u8]) -> bool {
    let object = record.len() > 2 && record.starts_with(b"{") && record.ends_with(b"}");
    object
        && record.len() <= LONGEST_RECORD
        && !record.contains(&b'\n')
        && serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(record)
            .is_ok_and(|fields| !fields.contains_key("seq") && !fields.contains_key("prev"))
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

    /// Opens a log whose disk fails to sync `faults` times after the first record.
    async fn with_faults(sync: Sync, faults: u32) -> (tempfile::TempDir, Options, Log) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().with_sync(sync);
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

    async fn recovers(log: &Log) {
        let begin = Instant::now();
        while let Some(failure) = log.status().failure {
            assert!(begin.elapsed() < Duration::from_secs(60), "{failure}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_segment_that_cannot_be_cut_is_cut_later() {
        let (folder, options, log) = with_faults(Sync::Batch, 1).await;
        options.faults.cuts.store(u32::MAX, Ordering::SeqCst);
        for _ in 0..3 {
            let error = log.append(br#"{"a":"while"}"#.to_vec()).await.unwrap_err();
            assert!(matches!(error, AppendError::Sync { .. }), "{error}");
        }
        assert_eq!(lines(folder.path()).len(), 2, "what could not be cut is there");
        options.faults.cuts.store(0, Ordering::SeqCst);
        assert_eq!(log.append(br#"{"a":"after"}"#.to_vec()).await.unwrap().seq, 1);
        assert_eq!(log.status().failure, None);
        log.close();
        let lines = lines(folder.path());
        assert!(lines.len() == 2 && lines[1].contains("after"), "{lines:?}");
        drop(log);
        Log::open(folder.path(), Options::new()).unwrap();
    }

    #[tokio::test]
    async fn a_part_of_a_line_that_cannot_be_taken_back_is_cut_later() {
        let (folder, options, log) = with_faults(Sync::Batch, 0).await;
        options.faults.cuts.store(u32::MAX, Ordering::SeqCst);
        options.faults.full.store(true, Ordering::SeqCst);
        let error = log.append(br#"{"a":"while"}"#.to_vec()).await.unwrap_err();
        assert!(matches!(error, AppendError::Full { .. }), "{error}");
        assert!(!fs::read(layout::segment(folder.path(), 0)).unwrap().ends_with(b"\n"));
        options.faults.cuts.store(0, Ordering::SeqCst);
        options.faults.full.store(false, Ordering::SeqCst);
        recovers(&log).await;
        assert!(fs::read(layout::segment(folder.path(), 0)).unwrap().ends_with(b"\n"), "without a record");
        assert_eq!(log.append(br#"{"a":"after"}"#.to_vec()).await.unwrap().seq, 1);
        drop(log);
        Log::open(folder.path(), Options::new()).unwrap();
    }

    #[tokio::test]
    async fn a_first_segment_that_cannot_be_removed_is_removed_later() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new();
        let log = Log::open(folder.path(), options.clone()).unwrap();
        options.faults.syncs.store(1, Ordering::SeqCst);
        options.faults.cuts.store(u32::MAX, Ordering::SeqCst);
        log.append(br#"{"a":"while"}"#.to_vec()).await.unwrap_err();
        log.append(br#"{"a":"while"}"#.to_vec()).await.unwrap_err();
        options.faults.cuts.store(0, Ordering::SeqCst);
        assert_eq!(log.append(br#"{"a":"after"}"#.to_vec()).await.unwrap().seq, 0);
        drop(log);
        let lines = lines(folder.path());
        assert!(lines.len() == 1 && lines[0].contains("after"), "{lines:?}");
    }

    #[tokio::test]
    async fn a_disk_that_works_again_is_noticed_without_a_record() {
        let (folder, options, log) = with_faults(Sync::Interval(Duration::from_millis(1)), 0).await;
        let promised = log.append(br#"{"a":"promised"}"#.to_vec()).await.unwrap();
        options.faults.syncs.store(u32::MAX, Ordering::SeqCst);
        let mut kept = promised.seq + 1;
        while log.append(br#"{"a":"while"}"#.to_vec()).await.is_ok() {
            kept += 1;
        }
        options.faults.syncs.store(0, Ordering::SeqCst);
        recovers(&log).await;
        assert_eq!(lines(folder.path()).len() as u64, kept, "what was promised is there");
    }
}
