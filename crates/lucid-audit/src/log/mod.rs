//! The log on the disk, as the one process that writes it sees it.

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
use snafu::{OptionExt, ResultExt, ensure};
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
use error::{BeginSnafu, IoSnafu, LockedSnafu, NotADirectorySnafu};
use files::FileIdentity;
use queue::Queue;
use recover::End;
use sealer::{Durable, Sealer};
use segment::Segment;
use status::Status;
use writer::Writer;

/// A log that is open for writing.
///
/// Two threads do the work: one writes groups of records and brings them to the disk, the other one seals what is there. When
/// it is closed or dropped, what was appended is written and sealed first.
#[derive(Debug)]
pub struct Log {
    directory: PathBuf,
    queue: Arc<Queue>,
    status: Arc<Status>,
    seal: Option<Seal>,
    threads: Mutex<Option<Threads>>,
}

/// Keeps other processes from writing.
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

/// How a log is, for who watches it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStatus {
    /// How many records it has.
    pub size: u64,
    /// Who verifies its checkpoints; none when it is not sealed.
    pub vkey: Option<VerifierKey>,
    /// How many records the checkpoint covers.
    pub sealed_size: u64,
    /// How many records the latest checkpoint covers that a witness has cosigned.
    pub cosigned_size: u64,
    /// Why records cannot be kept, if so.
    pub failure: Option<String>,
    /// Why what is kept could not be sealed when that was tried last, if so.
    pub seal_failure: Option<String>,
}

impl Log {
    /// Opens the log in `directory`, or begins one there.
    ///
    /// What a crash or a power failure may leave is put in order: a line without an end is cut off, which is recorded, and
    /// what was written but not sealed is sealed. Whatever else is found is somebody's doing, or a broken disk, and an error.
    /// The last segment is read as a whole, and the one before; of older ones it is looked at whether each ends where the next
    /// begins. The tree is taken from its tiles when its right edge has the root of the checkpoint. What older segments, full tiles
    /// and bundles hold is for `verify` to be read.
    ///
    /// # Errors
    ///
    /// When it cannot be opened, or is not the log that was sealed last.
    pub fn open(directory: &Path, options: Options) -> Result<Self, OpenError> {
        ensure!(directory.is_dir() || !directory.exists(), NotADirectorySnafu { path: directory });
        let segments = directory.join(layout::SEGMENTS);
        files::create_folder(&segments).context(IoSnafu { what: "make", path: &segments })?;
        let lock = lock(directory)?;
        // Left by a process that was killed.
        let _ = std::fs::remove_file(directory.join(layout::RESERVE));
        let end = recover::end(directory)?;
        let sealed = match &options.key {
            Some(key) => Some(recover::seal(directory, key, options.adopt, &end)?),
            None => recover::unsealed(directory).map(|()| None)?,
        };
        let status = Arc::new(Status::new(end.size, options.metrics.clone()));
        let seal = options.key.as_ref().zip(sealed.as_ref()).map(|(key, sealed)| Seal {
            key: key.verifier().clone(),
            durable: Arc::new(Durable::new(end.size, if sealed.signed { sealed.tree.size() } else { 0 })),
            witnesses: Witnesses::new(directory, &options),
        });

        let writer = Self::writer(directory, &options, lock, &end, &status, seal.as_ref())?;
        let change = sealed.as_ref().and_then(|sealed| sealed.change.clone());
        let writer = Self::begin(directory, writer, &end, change, seal.as_ref())?;
        let sealer = match (options.key.clone(), sealed, &seal) {
            (Some(key), Some(sealed), Some(seal)) => {
                let mut sealer = Sealer {
                    directory: directory.to_owned(),
                    key,
                    tree: sealed.tree,
                    durable: Arc::clone(&seal.durable),
                    interval: options.seal_interval,
                    status: Arc::clone(&status),
                    metrics: options.metrics,
                    lines: None,
                    prev: None,
                };
                Self::publish(directory, &mut sealer, sealed.signed)?;
                Some(sealer)
            }
            _ => None,
        };

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

    fn writer(
        directory: &Path,
        options: &Options,
        lock: Lock,
        end: &End,
        status: &Arc<Status>,
        seal: Option<&Seal>,
    ) -> Result<Writer, OpenError> {
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
        let durable = seal.map(|seal| Arc::clone(&seal.durable));
        let status = Arc::clone(status);
        Ok(Writer::new(directory, options.clone(), lock, status, durable, segment, (end.size, end.prev)))
    }

    /// Records what was found.
    fn begin(
        directory: &Path,
        mut writer: Writer,
        end: &End,
        change: Option<Option<VerifierKey>>,
        seal: Option<&Seal>,
    ) -> Result<Writer, OpenError> {
        let time = Timestamp::now();
        let mut events = Vec::new();
        if end.torn > 0 {
            tracing::warn!("cut {} bytes of a torn line off the log in {}", end.torn, directory.display());
            events.push(Event::Recovered { time, bytes: end.torn });
        }
        if let (Some(from), Some(seal)) = (change, seal) {
            let to = seal.key.clone();
            tracing::warn!("the log in {} is sealed with another key from now on: {to}", directory.display());
            events.push(Event::KeyChanged { time, from, to });
        }
        let records: Vec<_> = events.iter().map(Event::to_record).collect();
        let records: Vec<_> = records.iter().map(Vec::as_slice).collect();
        writer.write(&records).and_then(|_| writer.sync()).context(BeginSnafu { directory })?;
        Ok(writer)
    }

    /// Tells who verifies the log. From the first moment there is a checkpoint, so that its absence means something.
    fn publish(directory: &Path, sealer: &mut Sealer, signed: bool) -> Result<(), OpenError> {
        let seal = |sealer: &mut Sealer| {
            // First what was sealed before, if anything: tiles without a checkpoint would mean that it is gone.
            let sealed = if signed { Ok(()) } else { sealer.sign().and_then(|()| sealer.seal_all()) };
            let error = sealed.map_err(sealer::SealError::into_io);
            error.context(IoSnafu { what: "seal the log in", path: directory })
        };
        // With another key's name beside it a checkpoint could not be told from one of somebody else.
        seal(sealer)?;
        let path = directory.join(layout::VKEY);
        let text = format!("{}\n", sealer.key.verifier());
        if files::read(&path).ok().flatten().as_ref() != Some(&text) {
            files::replace(&path, text.as_bytes()).context(IoSnafu { what: "write", path })?;
        }
        tracing::info!(vkey = %sealer.key.verifier(), "the log in {} is sealed", directory.display());
        Ok(())
    }

    /// Appends a record, a JSON object in one line, and waits until it is kept by the log's [`Sync`]. When the returned
    /// future is dropped, the record may be kept all the same.
    ///
    /// # Errors
    ///
    /// When it is not kept.
    pub async fn append(&self, record: Vec<u8>) -> Result<Anchor, AppendError> {
        self.put(record).await?.kept().await
    }

    /// Puts a record among those that are to be written, when there is room.
    pub(crate) async fn put(&self, record: Vec<u8>) -> Result<Pending, AppendError> {
        self.queue.put(record).await
    }

    /// Takes a record back that is not known to be kept: it is not written, or, when it is by now, the next record is this
    /// decision, which says so. Returns whether that may be.
    pub(crate) fn replace(&self, pending: Pending, decision: Box<Decision>) -> bool {
        self.queue.replace(pending, decision)
    }

    /// Keeps `ready` true while records are taken.
    pub(crate) fn report_to(&self, ready: Arc<watch::Sender<bool>>) {
        self.status.report_to(ready);
    }

    /// Reports that the disk took longer for a record than `patience`. The log fails until a record is kept or a probe succeeds.
    pub(crate) fn report_late(&self, patience: Duration) {
        let failure = format!("the disk took longer than {} ms", patience.as_millis());
        if self.status.failed(failure) {
            tracing::error!("the log in {} takes no records: the disk is late", self.directory.display());
        }
        self.queue.wake();
    }

    /// Number of bytes that a record of `length` bytes takes on the disk at most.
    pub(crate) const fn on_disk(&self, length: usize) -> u64 {
        layout::on_disk(length, self.seal.is_some())
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        let seal = self.seal.as_ref();
        LogStatus {
            size: self.status.size(),
            vkey: seal.map(|seal| seal.key.clone()),
            sealed_size: seal.map_or(0, |seal| seal.durable.sealed()),
            cosigned_size: seal.map_or(0, |seal| seal.witnesses.size()),
            failure: self.status.failure(),
            seal_failure: self.status.seal_failure(),
        }
    }

    /// Who verifies its checkpoints; none when it is not sealed.
    #[must_use]
    pub fn vkey(&self) -> Option<&VerifierKey> {
        self.seal.as_ref().map(|seal| &seal.key)
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Accepts cosignatures of a checkpoint of this log: the signed note that a witness was asked to cosign, with the lines
    /// of its answer. Signatures of others than the configured witnesses are left out. The latest checkpoint that is
    /// cosigned is kept in the file `checkpoint.cosigned`.
    ///
    /// # Errors
    ///
    /// When it is no checkpoint of this log, a witness' signature is wrong, or none is by a witness.
    pub fn cosign(&self, note: &str) -> Result<Cosigned, CosignError> {
        let seal = self.seal.as_ref().context(cosign::NotSealedSnafu)?;
        seal.witnesses.accept(note, &seal.key, seal.durable.sealed())
    }

    /// Writes and seals what was appended, and ends. Blocks for as long as the disk takes.
    pub fn close(&self) {
        self.queue.close();
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Threads { writer, sealer }) = threads else { return };
        // A thread that panicked has said so, and has let go of the lock.
        let lock = writer.join();
        if let Some(seal) = &self.seal {
            seal.durable.close();
        }
        if let Some(sealer) = sealer {
            let _ = sealer.join();
        }
        // Closing the file is not enough: a child process that was just forked has it too.
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
