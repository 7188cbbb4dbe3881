//! Reading of the logs that a correlator compares.

use std::fs;
use std::mem;
use std::path::PathBuf;

use snafu::ResultExt;

use super::Correlator;
use super::drift::DriftClass;
use super::log::LogState;
use crate::error::Error;
use crate::follow::{EventFollower, LogFollower};
use crate::note::VerifierKey;
use crate::read::reading;

impl Correlator {
    /// Adds the log in `directory`, the name of which drifts contain. Without `keys`, the first `vkey` of the log is trusted.
    pub fn add_log(&mut self, directory: impl Into<PathBuf>, keys: Vec<VerifierKey>) {
        let follower = LogFollower::new(directory);
        self.logs.push(LogState::new(follower.directory.display().to_string(), keys));
        self.followers.push(follower);
    }

    /// Adds the API server's audit log: the file of `--audit-log-path` and the files it was rotated to, oldest first
    /// (`audit.log` becomes `audit-2026-01-31T23-59-59.000.log`). Compressed files are skipped.
    pub fn add_events(&mut self, path: impl Into<PathBuf>) {
        self.events = Some(EventFollower::new(path));
    }

    /// Reads what was added to the API server's audit log, and then to the logs, so that the record of each event is there.
    ///
    /// # Errors
    ///
    /// Returns an error if a log does not exist or cannot be read.
    pub fn read(&mut self) -> Result<(), Error> {
        if let Some(mut events) = self.events.take() {
            let read = self.read_events(&mut events);
            self.tally.compressed = events.compressed.len() as u64;
            self.events = Some(events);
            read?;
        }
        self.each_log(Self::read_log)
    }

    fn read_events(&mut self, events: &mut EventFollower) -> Result<(), Error> {
        if self.tally.events == 0 {
            fs::metadata(&events.path).context(reading(&events.path))?;
        }
        events.poll(|line| self.event(line))
    }

    /// Reads the segments that were modified since the last time again. [`Self::read`] alone does not detect modifications.
    ///
    /// # Errors
    ///
    /// Returns an error if a log cannot be read.
    pub fn read_again(&mut self) -> Result<(), Error> {
        self.each_log(|this, log, follower| {
            follower.reread(|seq, line| this.logs.get_mut(log).is_none_or(|log| log.reread(seq, line)))?;
            this.read_minimum(log, follower)
        })
    }

    fn each_log(
        &mut self,
        mut each: impl FnMut(&mut Self, usize, &mut LogFollower) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut followers = mem::take(&mut self.followers);
        let read = followers.iter_mut().enumerate().try_for_each(|(log, follower)| each(self, log, follower));
        self.followers = followers;
        read
    }

    fn read_log(&mut self, log: usize, follower: &mut LogFollower) -> Result<(), Error> {
        let Some(state) = self.logs.get_mut(log) else { return Ok(()) };
        // Read before the records, so that all records that it covers can be read afterwards.
        let unsealed = match follower.checkpoint() {
            Ok((Some(note), vkey)) => {
                state.checkpoint(&note, vkey.as_deref());
                None
            }
            Ok((None, _)) => state.must_be_sealed().then(|| "the log has no checkpoint".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        self.read_minimum(log, follower)?;
        if !follower.directory.is_dir() {
            fs::read_dir(&follower.directory).context(reading(&follower.directory))?;
        }
        let segment = follower.segment;
        let is_complete = follower.poll(|line| self.record(log, line))?;
        // The log may have been pruned meanwhile, beyond what was read of it.
        self.read_minimum(log, follower)?;
        let Some(state) = self.logs.get_mut(log) else { return Ok(()) };
        if !is_complete && segment.is_none_or(|first| first >= state.minimum.first) {
            state.drift(DriftClass::Shrink, Some(state.size()), "a segment was truncated or removed");
        }
        // Reported after the records: a log has its checkpoint before its first record.
        if let Some(detail) = unsealed.filter(|_| state.size() > 0) {
            state.drift(DriftClass::KeyChange, None, detail);
        }
        Ok(())
    }

    /// Reads how far the log is pruned: the records below are not missing.
    fn read_minimum(&mut self, log: usize, follower: &LogFollower) -> Result<(), Error> {
        if let (Some(state), Some(minimum)) = (self.logs.get_mut(log), follower.minimum()?) {
            state.minimum(&minimum);
        }
        Ok(())
    }
}
