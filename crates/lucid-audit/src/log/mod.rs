//! Writable logs on disk.

mod cosign;
mod error;
mod files;
mod lines;
mod options;
mod prune;
mod queue;
mod recover;
mod sealer;
mod segment;
mod shared;
mod tree;
mod writer;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jiff::Timestamp;
use snafu::{IntoError, OptionExt, ResultExt, ensure};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::anchor::Anchor;
use crate::decision::Decision;
use crate::error::{Error, Problem};
use crate::event::Event;
use crate::layout;
use crate::note::{SigningKey, VerifierKey};
use crate::read::{self, FileSnafu};

pub use cosign::{Cosigned, cosign};
pub use error::{AppendError, OpenError, OpenErrorKind};
pub use options::Options;
pub(crate) use queue::Pending;
pub use recover::origin;
pub use shared::LogStatus;

use cosign::UNSEALED;
use error::{BeginSnafu, ConflictSnafu, LockedSnafu, OpenProblem};
use files::FileIdentity;
use prune::Retention;
use queue::Queue;
use sealer::Sealer;
use segment::Segment;
use shared::Shared;
use writer::Writer;

/// A log open for writing.
///
/// One thread writes groups of records and flushes them to disk, another one seals them. Closing or dropping the log writes
/// and seals all appended records first.
#[derive(Debug)]
pub struct Log {
    directory: PathBuf,
    key: Option<Arc<SigningKey>>,
    witnesses: Vec<VerifierKey>,
    /// Held while the cosigned checkpoint is read and replaced.
    cosigning: Mutex<()>,
    queue: Arc<Queue>,
    shared: Arc<Shared>,
    threads: Mutex<Option<Threads>>,
}

/// Lock against other writing processes.
#[derive(Debug)]
struct Lock {
    file: File,
    identity: FileIdentity,
}

#[derive(Debug)]
struct Threads {
    writer: JoinHandle<File>,
    sealer: Option<JoinHandle<()>>,
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
        Ok(Self::recover(directory, options)?)
    }

    fn recover(directory: &Path, mut options: Options) -> Result<Self, OpenProblem> {
        let message = format!(
            "{} is not a directory: expected the directory of a log, which is created if missing",
            directory.display()
        );
        ensure!(directory.is_dir() || !directory.exists(), ConflictSnafu { message });
        let segments = directory.join(layout::SEGMENTS);
        files::create_folder(&segments).context(FileSnafu { what: "make", path: &segments })?;
        let lock = lock(directory)?;
        // Left by a killed process.
        let _ = std::fs::remove_file(directory.join(layout::RESERVE));
        if let Some(origin) = options.generate.as_ref().filter(|_| options.key.is_none()) {
            // Before the first checkpoint, the records are those of a log that was not sealed.
            options.adopt |= recover::unsealed(directory).is_ok();
            options.key = Some(Arc::new(generated_key(directory, origin)?));
        }
        let key = options.key.clone();
        let minimum = recover::minimum(directory, key.as_ref().map(|key| key.verifier()), options.adopt)?;
        let end = recover::end(directory, &minimum)?;
        let seal = match &key {
            Some(key) => Some(recover::seal(directory, key, options.adopt, (&minimum, &end))?),
            None => recover::unsealed(directory).map(|()| None)?,
        };
        let cosigned = seal.as_ref().and_then(|_| cosign::stored(directory));
        let status = LogStatus {
            size: end.size,
            first: minimum.first,
            vkey: key.as_ref().map(|key| key.verifier().clone()),
            sealed_size: seal.as_ref().filter(|seal| seal.signed).map_or(0, |seal| seal.tree.size()),
            cosigned_size: cosigned.map_or(0, |(_, checkpoint)| checkpoint.size),
            ..LogStatus::default()
        };
        let shared = Arc::new(Shared::new(status, options.metrics.clone()));

        let segment = match end.segment {
            None => None,
            Some((first, length)) => {
                let path = layout::segment(directory, first);
                let segment = Segment::resume(directory, first, length);
                Some(segment.context(FileSnafu { what: "cut the torn end of", path })?)
            }
        };
        #[cfg(test)]
        let segment = segment.map(|segment| segment.with_faults(options.faults.clone()));
        let (interval, witnesses) = (options.seal_interval, options.witnesses.clone());
        let retention = Retention::new(&options);
        let last = (end.size, end.prev);
        let mut writer = Writer::new(directory, options, lock, Arc::clone(&shared), segment, last);
        let recovered = (end.torn > 0).then(|| Event::Recovered { time: Timestamp::now(), bytes: end.torn });
        let changed = seal.as_ref().and_then(|seal| seal.change.clone());
        Self::begin(directory, &mut writer, recovered.into_iter().chain(changed))?;
        let mut sealer = None;
        if let Some((key, seal)) = key.clone().zip(seal) {
            let new = Sealer::new(directory, key, seal.tree, interval, Arc::clone(&shared));
            let new = sealer.insert(new.with_retention(retention, minimum));
            Self::publish(directory, new, seal.signed, minimum.first)?;
        }

        let queue = Arc::new(Queue::new());
        let thread = |name: &str| thread::Builder::new().name(name.to_owned());
        let spawn = FileSnafu { what: "start a thread for", path: directory };
        let sealer = sealer.map(|sealer| thread("audit-seal").spawn(move || sealer.run())).transpose();
        let sealer = sealer.context(spawn)?;
        let incoming = Arc::clone(&queue);
        let writer = thread("audit-write").spawn(move || writer.run(&incoming)).context(spawn)?;
        let threads = Mutex::new(Some(Threads { writer, sealer }));
        let (directory, cosigning) = (directory.to_owned(), Mutex::default());
        Ok(Self { directory, key, witnesses, cosigning, queue, shared, threads })
    }

    fn begin(
        directory: &Path,
        writer: &mut Writer,
        events: impl Iterator<Item = Event>,
    ) -> Result<(), OpenProblem> {
        let events: Vec<_> = events.collect();
        for event in &events {
            let directory = directory.display();
            match event {
                Event::Recovered { bytes, .. } => {
                    tracing::warn!("truncated a torn line of {bytes} bytes in the log in {directory}");
                }
                Event::KeyChanged { to, .. } => {
                    tracing::warn!(
                        "the log in {directory} is sealed with another key from this record on: {to}"
                    );
                }
            }
        }
        let records: Vec<_> = events.iter().map(Event::to_record).collect();
        let records: Vec<_> = records.iter().map(Vec::as_slice).collect();
        writer.write(&records).map(drop).context(BeginSnafu { directory })
    }

    /// Publishes the verifier key. A sealed log has a checkpoint from the start, so that a missing one is detected.
    fn publish(directory: &Path, sealer: &mut Sealer, signed: bool, first: u64) -> Result<(), OpenProblem> {
        // Seal before writing `vkey`: next to the new key, the old checkpoint could no longer be verified. Sign the loaded tree
        // before writing tiles: tiles without a checkpoint indicate a lost checkpoint.
        let mut sealed = if signed { Ok(()) } else { sealer.sign().and_then(|()| sealer.seal_all()) };
        if first > 0 {
            let signed_minimum = |sealer: &Sealer| if signed { Ok(()) } else { sealer.sign_minimum() };
            // The previous process may have been killed while it pruned.
            sealed = sealed.and_then(|()| signed_minimum(sealer)).and_then(|()| sealer.remove_pruned());
        }
        sealed.context(FileSnafu { what: "seal the log in", path: directory })?;
        let path = directory.join(layout::VKEY);
        let text = format!("{}\n", sealer.key.verifier());
        if read::text(&path).ok().flatten().as_ref() != Some(&text) {
            files::replace(&path, text.as_bytes()).context(FileSnafu { what: "write", path })?;
        }
        tracing::info!(vkey = %sealer.key.verifier(), "the log in {} is sealed", directory.display());
        Ok(())
    }

    /// Appends a record, a one-line JSON object, and waits until it is flushed to disk. A record whose future was
    /// dropped may still be kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is not kept.
    pub async fn append(&self, record: Vec<u8>) -> Result<Anchor, AppendError> {
        self.put(record).await?.kept().await
    }

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
        self.shared.set(|now| now.ready = Some(ready));
    }

    /// Reports that flushing a record took longer than `patience`. The log fails until a record is kept or a probe succeeds.
    pub(crate) fn report_late(&self, patience: Duration) {
        let failure = format!("the disk took longer than {} ms", patience.as_millis());
        if self.shared.failed(failure) {
            tracing::error!("the log in {} rejects records: the disk is too slow", self.directory.display());
        }
        self.queue.wake();
    }

    pub(crate) const fn on_disk(&self, length: usize) -> u64 {
        layout::on_disk(length, self.key.is_some())
    }

    /// Returns the current status.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        self.shared.lock().status.clone()
    }

    /// Returns the key that verifies the checkpoints; `None` if the log is not sealed.
    #[must_use]
    pub fn vkey(&self) -> Option<&VerifierKey> {
        self.key.as_ref().map(|key| key.verifier())
    }

    /// Accepts cosignatures of a checkpoint of this log: the signed note sent to a witness, with the lines of the witness'
    /// response appended. Signatures by other keys are dropped. The file `checkpoint.cosigned` keeps the latest cosigned
    /// checkpoint.
    ///
    /// # Errors
    ///
    /// Returns an error if the note is not a checkpoint of this log, a witness' signature is invalid, or no witness has
    /// signed.
    pub fn cosign(&self, note: &str) -> Result<Cosigned, Error> {
        let key = self.vkey().whatever_context::<_, Problem>(UNSEALED)?;
        let _cosigning = self.cosigning.lock().unwrap_or_else(PoisonError::into_inner);
        let sealed = self.shared.lock().status.sealed_size;
        let cosigned = cosign::accept(&self.directory, key, &self.witnesses, sealed, note)?;
        self.shared.set(|now| now.status.cosigned_size = now.status.cosigned_size.max(cosigned.size));
        Ok(cosigned)
    }

    /// Writes and seals all appended records, then stops the threads. Blocks on disk I/O.
    pub fn close(&self) {
        self.queue.close();
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Threads { writer, sealer }) = threads else { return };
        // A panicked thread has reported the panic and dropped the lock.
        let lock = writer.join();
        self.shared.close();
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

/// Reads the key in the log's directory, or generates one for a log that was never sealed.
fn generated_key(directory: &Path, origin: &str) -> Result<SigningKey, OpenProblem> {
    let path = directory.join(layout::KEY);
    let damaged = |error| OpenProblem::Damaged { message: format!("{}: {error}", path.display()) };
    let secret = read::text(&path)?.map(Zeroizing::new);
    if let Some(secret) = secret {
        return secret.parse::<SigningKey>().and_then(|key| key.named(origin)).map_err(damaged);
    }
    recover::unsealed(directory)?;
    let key = SigningKey::generate(origin).map_err(damaged)?;
    files::replace_secret(&path, key.to_secret().as_bytes())
        .context(FileSnafu { what: "write", path: &path })?;
    tracing::info!("generated a key for the log in {}", directory.display());
    Ok(key)
}

fn lock(directory: &Path) -> Result<Lock, OpenProblem> {
    let path = directory.join(layout::LOCK);
    if path.exists() {
        read::open(&path).context(FileSnafu { what: "open", path: &path })?;
    }
    let file = files::options().create(true).append(true).open(&path);
    let file = file.context(FileSnafu { what: "open", path: &path })?;
    match file.try_lock() {
        Ok(()) => {
            let identity = FileIdentity::of(&file, path.clone()).context(FileSnafu { what: "lock", path })?;
            Ok(Lock { file, identity })
        }
        Err(TryLockError::WouldBlock) => LockedSnafu { directory }.fail(),
        Err(TryLockError::Error(error)) => Err(FileSnafu { what: "lock", path }.into_error(error))?,
    }
}
