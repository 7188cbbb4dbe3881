//! Writable logs on disk.

mod cosign;
mod error;
mod files;
mod lines;
mod options;
mod queue;
mod recover;
mod sealer;
mod segment;
mod status;
mod tree;
mod writer;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jiff::Timestamp;
use snafu::{ResultExt, ensure};
use tokio::sync::watch;

use crate::anchor::Anchor;
use crate::decision::Decision;
use crate::event::Event;
use crate::layout;
use crate::note::VerifierKey;
use crate::read;

pub use cosign::{CosignError, Cosigned, cosign};
pub use error::{AppendError, OpenError};
pub use options::{Options, ParseSyncError, Sync};
pub(crate) use queue::Pending;
pub use recover::origin;

use cosign::Witnesses;
use error::{BeginSnafu, ConflictSnafu, IoSnafu, LockedSnafu};
use files::FileIdentity;
use queue::Queue;
use sealer::{Durable, Sealer};
use segment::Segment;
use status::Status;
use writer::Writer;

/// A log open for writing.
///
/// One thread writes groups of records and flushes them to disk, another one seals them. Closing or dropping the log writes
/// and seals all appended records first.
#[derive(Debug)]
pub struct Log {
    directory: PathBuf,
    queue: Arc<Queue>,
    status: Arc<Status>,
    seal: Option<Seal>,
    threads: Mutex<Option<Threads>>,
}

/// Lock against other writing processes.
#[derive(Debug)]
struct Lock {
    file: File,
    identity: FileIdentity,
}

#[derive(Debug)]
struct Seal {
    key: VerifierKey,
    durable: Arc<Durable>,
    witnesses: Witnesses,
}

#[derive(Debug)]
struct Threads {
    writer: JoinHandle<File>,
    sealer: Option<JoinHandle<()>>,
}

/// Status of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStatus {
    /// Number of records.
    pub size: u64,
    /// Key that verifies the checkpoints; `None` if the log is not sealed.
    pub vkey: Option<VerifierKey>,
    /// Number of records covered by the checkpoint.
    pub sealed_size: u64,
    /// Number of records covered by the latest checkpoint that a witness has cosigned.
    pub cosigned_size: u64,
    /// Reason why records cannot be written, if any.
    pub failure: Option<String>,
    /// Reason why the last attempt to seal failed, if any.
    pub seal_failure: Option<String>,
}

impl Log {
    /// Opens the log in `directory`, creating it if necessary.
    ///
    /// Traces of a crash or power failure are repaired: a torn last line is truncated, which is recorded as an event, and
    /// unsealed records are sealed. Any other inconsistency points to tampering or a failing disk and is an error. The last
    /// two segments are read completely. Of older ones, only the last line is checked against the name of the next segment.
    /// The tree is loaded from its tiles if its root matches the checkpoint, and rebuilt from the records otherwise. Use
    /// `verify` to check older segments, full tiles and bundles.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be opened, or does not match its checkpoint.
    pub fn open(directory: &Path, options: Options) -> Result<Self, OpenError> {
        let message = format!(
            "{} is no directory; accepted is the directory of a log, which is made when it is not there",
            directory.display()
        );
        ensure!(directory.is_dir() || !directory.exists(), ConflictSnafu { message });
        let segments = directory.join(layout::SEGMENTS);
        files::create_folder(&segments).context(IoSnafu { what: "make", path: &segments })?;
        let lock = lock(directory)?;
        // Left by a killed process.
        let _ = std::fs::remove_file(directory.join(layout::RESERVE));
        let end = recover::end(directory)?;
        let sealed = match &options.key {
            Some(key) => Some((Arc::clone(key), recover::seal(directory, key, options.adopt, &end)?)),
            None => recover::unsealed(directory).map(|()| None)?,
        };
        let status = Arc::new(Status::new(end.size, options.metrics.clone()));
        let seal = sealed.as_ref().map(|(key, sealed)| Seal {
            key: key.verifier().clone(),
            durable: Arc::new(Durable::new(end.size, if sealed.signed { sealed.tree.size() } else { 0 })),
            witnesses: Witnesses::new(directory, &options),
        });

        let segment = match end.segment {
            None => None,
            Some((first, length)) => {
                let path = layout::segment(directory, first);
                let segment = Segment::resume(directory, first, length);
                Some(segment.context(IoSnafu { what: "cut the torn end of", path })?)
            }
        };
        #[cfg(test)]
        let segment = segment.map(|segment| segment.with_faults(options.faults.clone()));
        let durable = seal.as_ref().map(|seal| Arc::clone(&seal.durable));
        let last = (end.size, end.prev);
        let (interval, metrics) = (options.seal_interval, options.metrics.clone());
        let mut writer = Writer::new(directory, options, lock, Arc::clone(&status), durable, segment, last);
        let change = sealed.as_ref().and_then(|(key, sealed)| Some((sealed.change.clone()?, key.verifier())));
        Self::begin(directory, &mut writer, end.torn, change)?;
        let sealer = sealed.zip(seal.as_ref()).map(|((key, sealed), seal)| {
            let mut sealer = Sealer {
                directory: directory.to_owned(),
                key,
                tree: sealed.tree,
                durable: Arc::clone(&seal.durable),
                interval,
                status: Arc::clone(&status),
                metrics,
                lines: None,
                prev: None,
            };
            Self::publish(directory, &mut sealer, sealed.signed).map(|()| sealer)
        });
        let sealer = sealer.transpose()?;

        let queue = Arc::new(Queue::new());
        let thread = |name: &str| thread::Builder::new().name(name.to_owned());
        let spawn = IoSnafu { what: "start a thread for", path: directory };
        let sealer = sealer.map(|sealer| thread("audit-seal").spawn(move || sealer.run())).transpose();
        let sealer = sealer.context(spawn)?;
        let incoming = Arc::clone(&queue);
        let writer = thread("audit-write").spawn(move || writer.run(&incoming)).context(spawn)?;
        let threads = Mutex::new(Some(Threads { writer, sealer }));
        Ok(Self { directory: directory.to_owned(), queue, status, seal, threads })
    }

    /// Records recovery and key change: the number of bytes cut off, and the previous and the new key.
    fn begin(
        directory: &Path,
        writer: &mut Writer,
        torn: u64,
        change: Option<(Option<VerifierKey>, &VerifierKey)>,
    ) -> Result<(), OpenError> {
        let time = Timestamp::now();
        let mut events = Vec::new();
        if torn > 0 {
            tracing::warn!("cut {torn} bytes of a torn line off the log in {}", directory.display());
            events.push(Event::Recovered { time, bytes: torn });
        }
        if let Some((from, to)) = change {
            tracing::warn!("the log in {} is sealed with another key from now on: {to}", directory.display());
            events.push(Event::KeyChanged { time, from, to: to.clone() });
        }
        let records: Vec<_> = events.iter().map(Event::to_record).collect();
        let records: Vec<_> = records.iter().map(Vec::as_slice).collect();
        writer.write(&records).and_then(|_| writer.sync()).context(BeginSnafu { directory })
    }

    /// Publishes the verifier key. A sealed log has a checkpoint from the start, so that a missing one is detected.
    fn publish(directory: &Path, sealer: &mut Sealer, signed: bool) -> Result<(), OpenError> {
        // Seal before writing `vkey`: next to the new key, the old checkpoint could no longer be verified. Sign the loaded tree
        // before writing tiles: tiles without a checkpoint indicate a lost checkpoint.
        let sealed = if signed { Ok(()) } else { sealer.sign().and_then(|()| sealer.seal_all()) };
        sealed.context(IoSnafu { what: "seal the log in", path: directory })?;
        let path = directory.join(layout::VKEY);
        let text = format!("{}\n", sealer.key.verifier());
        if read::text(&path).ok().flatten().as_ref() != Some(&text) {
            files::replace(&path, text.as_bytes()).context(IoSnafu { what: "write", path })?;
        }
        tracing::info!(vkey = %sealer.key.verifier(), "the log in {} is sealed", directory.display());
        Ok(())
    }

    /// Appends a record, a one-line JSON object, and waits until it is kept as defined by the log's [`Sync`]. A record whose
    /// future was dropped may still be kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is not kept.
    pub async fn append(&self, record: Vec<u8>) -> Result<Anchor, AppendError> {
        self.put(record).await?.kept().await
    }

    /// Enqueues a record, waiting for a free slot.
    pub(crate) async fn put(&self, record: Vec<u8>) -> Result<Pending, AppendError> {
        self.queue.put(record).await
    }

    /// Withdraws a record whose result is unknown. Removes it from the queue or, if it was already dequeued, enqueues
    /// `decision` to supersede it. Returns `true` in the latter case.
    pub(crate) fn replace(&self, pending: Pending, decision: Box<Decision>) -> bool {
        self.queue.replace(pending, decision)
    }

    /// Updates `ready` with whether the log accepts records.
    pub(crate) fn report_to(&self, ready: Arc<watch::Sender<bool>>) {
        self.status.set(|now| now.ready = Some(ready));
    }

    /// Reports that flushing a record took longer than `patience`. The log fails until a record is kept or a probe succeeds.
    pub(crate) fn report_late(&self, patience: Duration) {
        let failure = format!("the disk took longer than {} ms", patience.as_millis());
        if self.status.failed(failure) {
            tracing::error!("the log in {} takes no records: the disk is late", self.directory.display());
        }
        self.queue.wake();
    }

    /// Returns the maximum disk usage in bytes of a record of `length` bytes.
    pub(crate) const fn on_disk(&self, length: usize) -> u64 {
        layout::on_disk(length, self.seal.is_some())
    }

    /// Returns the current status.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        let seal = self.seal.as_ref();
        let now = self.status.now();
        LogStatus {
            size: now.size,
            vkey: seal.map(|seal| seal.key.clone()),
            sealed_size: seal.map_or(0, |seal| seal.durable.sealed()),
            cosigned_size: seal.map_or(0, |seal| seal.witnesses.size()),
            failure: now.failure.clone(),
            seal_failure: now.seal_failure.clone(),
        }
    }

    /// Returns the key that verifies the checkpoints; `None` if the log is not sealed.
    #[must_use]
    pub fn vkey(&self) -> Option<&VerifierKey> {
        self.seal.as_ref().map(|seal| &seal.key)
    }

    /// Returns the log's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Accepts cosignatures of a checkpoint of this log: the signed note sent to a witness, with the lines of the witness'
    /// response appended. Signatures by other keys are dropped. The file `checkpoint.cosigned` keeps the latest cosigned
    /// checkpoint.
    ///
    /// # Errors
    ///
    /// Returns an error if the note is not a checkpoint of this log, a witness' signature is invalid, or no witness has
    /// signed.
    pub fn cosign(&self, note: &str) -> Result<Cosigned, CosignError> {
        let Some(seal) = &self.seal else { return CosignError::not_sealed() };
        seal.witnesses.accept(note, &seal.key, seal.durable.sealed())
    }

    /// Writes and seals all appended records, then stops the threads. Blocks on disk I/O.
    pub fn close(&self) {
        self.queue.close();
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Threads { writer, sealer }) = threads else { return };
        // A panicked thread has reported the panic and dropped the lock.
        let lock = writer.join();
        if let Some(seal) = &self.seal {
            seal.durable.close();
        }
        if let Some(sealer) = sealer {
            let _ = sealer.join();
        }
        // Unlock explicitly: a concurrently forked child process may have inherited the file.
        if let Ok(lock) = lock
            && let Err(error) = lock.unlock()
        {
            tracing::warn!(%error, "failed to unlock the log");
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close();
    }
}

fn lock(directory: &Path) -> Result<Lock, OpenError> {
    let path = directory.join(layout::LOCK);
    if path.exists() {
        read::open(&path).context(IoSnafu { what: "open", path: &path })?;
    }
    let file = files::options().create(true).append(true).open(&path);
    let file = file.context(IoSnafu { what: "open", path: &path })?;
    match file.try_lock() {
        Ok(()) => {
            let identity = FileIdentity::of(&file, path.clone()).context(IoSnafu { what: "lock", path })?;
            Ok(Lock { file, identity })
        }
        Err(TryLockError::WouldBlock) => LockedSnafu { directory }.fail(),
        Err(TryLockError::Error(error)) => Err(error).context(IoSnafu { what: "lock", path }),
    }
}
