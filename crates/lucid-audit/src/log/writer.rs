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
use super::options::Options;
use super::prune::segment_age;
use super::queue::{Queue, Waiting};
use super::recover;
use super::segment::Segment;
use super::shared::Shared;

/// Maximum number of records per write and flush. Records are not delayed to fill a group.
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
    /// Number of records, all durable.
    size: u64,
    prev: Hash,
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
            abandoned: None,
            owed: Vec::new(),
            refusal: None,
            next_probe: None,
            pause: FIRST_PAUSE,
        }
    }

    /// Writes records until the queue is closed. Returns the lock, to be held until all records are sealed.
    pub(super) fn run(mut self, queue: &Queue) -> File {
        while let Some(group) = queue.take(GROUP, self.until_next_step()) {
            if !group.is_empty() {
                self.write_group(group);
            }
            self.probe_when_due();
            self.end_segment_when_due();
        }
        self.refusal = None;
        if !self.owed.is_empty() {
            self.write_group(Vec::new());
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

    /// Writes records and flushes them to disk. Returns their leaf hashes.
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
        let (limit, is_old) =
            (self.options.segment_limit(), self.until_segment_end() == Some(Duration::ZERO));
        self.segment.take_if(|it| it.length() >= limit || is_old);
        let (mut lines, mut leaves, mut prev) = (Vec::new(), Vec::new(), self.prev);
        for (seq, record) in (self.size..).zip(records) {
            let begin = lines.len();
            write_line(&mut lines, seq, &prev, record);
            prev = leaf_hash(lines.get(begin..lines.len() - 1).unwrap_or_default());
            leaves.push(prev);
        }
        self.append_durably(&lines)?;
        (self.size, self.prev) = (self.size + leaves.len() as u64, prev);
        let metrics = &self.options.metrics;
        metrics.records.inc_by(records.len() as u64);
        metrics.commits.inc();
        metrics.bytes.inc_by(lines.len() as u64);
        self.shared.extend(&leaves);
        Ok(leaves)
    }

    /// Writes lines and flushes them to disk. If flushing fails, abandons the segment and writes them to a new one. Lines that
    /// are not flushed do not stay in the log.
    fn append_durably(&mut self, lines: &[u8]) -> Result<(), AppendError> {
        self.append(lines)?;
        let Err(error) = self.sync_segment() else { return Ok(()) };
        tracing::error!(%error, "failed to flush the log in {}; a new segment begins", self.directory.display());
        self.options.metrics.failed("sync");
        self.abandon();
        self.append(lines)?;
        if self.sync_segment().is_ok() {
            return Ok(());
        }
        self.abandon();
        Err(AppendError::Sync { source: Arc::new(error) })
    }

    fn append(&mut self, lines: &[u8]) -> Result<(), AppendError> {
        if self.abandoned.is_some() {
            self.heal()?;
        }
        let segment = match self.segment.take() {
            Some(segment) => segment,
            None => self.create_segment().map_err(write_error)?,
        };
        let segment = self.segment.insert(segment);
        let length = segment.length();
        let named =
            if length == 0 { files::sync_folder(&self.directory.join(layout::SEGMENTS)) } else { Ok(()) };
        let Err(error) = named.and_then(|()| segment.append(lines)) else { return Ok(()) };
        // A new segment is recreated by the next attempt.
        if length == 0 || segment.truncate(length).is_err() {
            self.abandon();
        }
        Err(write_error(error))
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

    /// Restores the preconditions of a new segment: the lock is held, the directory contains the records, and nothing follows
    /// them.
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

    /// Checks that the directory contains the records. Further records are accepted only if the lock was held all the
    /// time: otherwise another process may have written them, and this one must not truncate them.
    fn verify(&self, locked: bool) -> Result<(), AppendError> {
        let size = self.size;
        let key = self.options.key.as_ref().map(|key| key.verifier());
        let end = recover::minimum(&self.directory, key, false)
            .and_then(|minimum| recover::end(&self.directory, &minimum))
            .map_err(|error| self.lost(error.to_string()))?;
        if end.hash(size) == Some(self.prev) && (locked || end.size == size) {
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

    fn create_segment(&self) -> io::Result<Segment> {
        let created = Segment::create(&self.directory, self.size)?;
        #[cfg(test)]
        let created = created.with_faults(self.options.faults.clone());
        Ok(created)
    }

    fn until_segment_end(&self) -> Option<Duration> {
        self.segment.as_ref()?.time_until(segment_age(self.options.keep_age?))
    }

    /// Begins an empty segment once the last one is old enough, so that it is pruned even if no record follows.
    fn end_segment_when_due(&mut self) {
        if self.until_segment_end() != Some(Duration::ZERO) {
            return;
        }
        self.segment = None;
        // A lost log is left to the next record.
        if self.lock.identity.check().is_err() {
            return;
        }
        match self.create_segment() {
            Ok(created) => self.segment = Some(created),
            Err(error) => self.failed(&write_error(error)),
        }
    }

    fn until_next_step(&self) -> Option<Duration> {
        self.until_probe().into_iter().chain(self.until_segment_end()).min()
    }

    fn until_probe(&self) -> Option<Duration> {
        self.next_probe.map(|at| at.saturating_duration_since(Instant::now()))
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

    use lucid_e2e::eventually;

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
    async fn with_faults(faults: u32) -> (tempfile::TempDir, Options, Log) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new();
        let log = Log::open(folder.path(), options.clone()).unwrap();
        log.append(br#"{"a":"before"}"#.to_vec()).await.unwrap();
        options.faults.syncs.store(faults, Ordering::SeqCst);
        (folder, options, log)
    }

    #[tokio::test]
    async fn an_unsyncable_segment_is_replaced() {
        let (folder, _, log) = with_faults(1).await;
        assert_eq!(log.append(br#"{"a":"while"}"#.to_vec()).await.unwrap().seq, 1);
        assert_eq!(log.append(br#"{"a":"after"}"#.to_vec()).await.unwrap().seq, 2);
        log.close();
        assert_eq!(lines(folder.path()).len(), 3);
        assert!(layout::segment(folder.path(), 1).exists());
        drop(log);
        Log::open(folder.path(), Options::new()).unwrap();
    }

    #[tokio::test]
    async fn unsyncable_records_are_refused_and_absent() {
        let (folder, _, log) = with_faults(2).await;
        let error = log.append(br#"{"a":"while"}"#.to_vec()).await.unwrap_err();
        assert!(matches!(error, AppendError::Sync { .. }), "{error}");
        assert_eq!(lines(folder.path()).len(), 1);
        assert_eq!(log.append(br#"{"a":"after"}"#.to_vec()).await.unwrap().seq, 1);
        log.close();
        let lines = lines(folder.path());
        assert!(lines.len() == 2 && lines[1].contains("after"), "{lines:?}");
    }

    async fn recovers(log: &Log) {
        eventually("no failure", async || log.status().failure.map_or(Ok(()), Err)).await;
    }

    #[tokio::test]
    async fn segments_that_cannot_be_truncated_are_truncated_later() {
        let (folder, options, log) = with_faults(1).await;
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
    async fn partial_lines_that_cannot_be_truncated_are_truncated_later() {
        let (folder, options, log) = with_faults(0).await;
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
        let (folder, options, log) = with_faults(u32::MAX).await;
        for _ in 0..3 {
            log.append(br#"{"a":"while"}"#.to_vec()).await.unwrap_err();
        }
        options.faults.syncs.store(0, Ordering::SeqCst);
        recovers(&log).await;
        assert_eq!(lines(folder.path()).len(), 1, "the record before is there");
    }
}
