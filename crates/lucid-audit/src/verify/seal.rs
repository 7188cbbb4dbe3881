//! Verification of the checkpoint.

use std::path::Path;

use super::fault::{Fault, FaultClass};
use super::witness::Seen;
use super::{Expectations, Since};
use crate::checkpoint::{self, Checkpoint};
use crate::layout::{CHECKPOINT, COSIGNED, TILES, VKEY};
use crate::note::{Note, NoteError, VerifierKey};
use crate::read::{self, ReadError};

/// Checkpoint of a log, if any.
#[derive(Debug, Default)]
pub(super) struct Seal {
    pub(super) checkpoint: Option<Checkpoint>,
    /// Keys from the expectations or the log's directory, and `true` for the latter.
    pub(super) keys: Vec<VerifierKey>,
    pub(super) key_from_log: bool,
    /// Trusted checkpoint cosigned by witnesses.
    pub(super) seen: Option<Seen>,
    pub(super) faults: Vec<Fault>,
    note: Option<Note>,
}

impl Seal {
    pub(super) fn read(directory: &Path, expected: &Expectations) -> Result<Self, ReadError> {
        let mut seal = Self { keys: expected.keys.clone(), ..Self::default() };
        // Read before the checkpoint, which always covers at least as many records.
        let small = |name| read::small(&directory.join(name));
        let cosigned = small(COSIGNED)?;
        let vkey = small(VKEY)?;
        seal.take_vkey(vkey.as_deref(), expected);
        match small(CHECKPOINT)? {
            Some(bytes) => seal.take_checkpoint(&bytes, expected),
            None => {
                let tiles = directory.join(TILES).exists();
                let since = expected.since.iter().any(|it| matches!(it, Since::Checkpoint(_)));
                if tiles || vkey.is_some() || !expected.keys.is_empty() || expected.sealed || since {
                    let detail = "there is no checkpoint: nothing says which records were sealed";
                    seal.faults.push(Fault::of_file(FaultClass::Unsealed, CHECKPOINT, detail));
                }
            }
        }
        let (sealed, faults) = (seal.note.take(), &mut seal.faults);
        seal.seen = Seen::of(cosigned.as_deref(), sealed, &seal.keys, expected, faults);
        if let Some((seen, sealed)) = seal.seen.as_ref().zip(seal.checkpoint.as_ref())
            && seen.checkpoint.origin != sealed.origin
        {
            let detail = format!(
                "it is of the log {}, the checkpoint is of {}",
                seen.checkpoint.origin, sealed.origin
            );
            seal.faults.push(Fault::of_file(FaultClass::Origin, COSIGNED, detail));
            seal.seen = None;
        }
        Ok(seal)
    }

    fn take_vkey(&mut self, vkey: Option<&[u8]>, expected: &Expectations) {
        let Some(text) = vkey else { return };
        match str::from_utf8(text).unwrap_or_default().trim().parse::<VerifierKey>() {
            Err(error) => self.faults.push(Fault::of_file(FaultClass::KeyChange, VKEY, error.to_string())),
            Ok(key) if expected.keys.is_empty() => {
                self.key_from_log = true;
                self.keys.push(key);
            }
            Ok(key) if !expected.keys.contains(&key) => {
                let detail = format!("the log names the key {key}, which is none of those that are trusted");
                self.faults.push(Fault::of_file(FaultClass::KeyChange, VKEY, detail));
            }
            Ok(_) => {}
        }
    }

    fn take_checkpoint(&mut self, bytes: &[u8], expected: &Expectations) {
        let mut fault = |class, detail: String| self.faults.push(Fault::of_file(class, CHECKPOINT, detail));
        let Ok(text) = str::from_utf8(bytes) else {
            return fault(FaultClass::Checkpoint, "it is not UTF-8".to_owned());
        };
        let (note, checkpoint) = match checkpoint::parse(text) {
            Ok(parsed) => parsed,
            Err(error) => return fault(FaultClass::Checkpoint, error.to_string()),
        };
        let verdicts: Vec<_> = self.keys.iter().map(|key| note.verify(key)).collect();
        let wrong = verdicts
            .iter()
            .find_map(|it| it.as_ref().err().filter(|it| matches!(it, NoteError::Wrong { .. })));
        match (wrong, verdicts.iter().any(Result::is_ok), verdicts.first()) {
            (Some(wrong), ..) => fault(FaultClass::Signature, wrong.to_string()),
            (None, false, Some(Err(error))) => fault(FaultClass::KeyChange, error.to_string()),
            (None, false, _) => {
                let detail = "no key is known that could have signed it: there is no file vkey either";
                fault(FaultClass::Signature, detail.to_owned());
            }
            (None, true, _) => {}
        }
        let names = self.keys.iter().map(VerifierKey::name);
        let origins: Vec<&str> =
            expected.origin.as_deref().map_or_else(|| names.collect(), |origin| vec![origin]);
        if !origins.is_empty() && !origins.contains(&checkpoint.origin.as_str()) {
            let (found, origins) = (&checkpoint.origin, origins.join(" or "));
            fault(FaultClass::Origin, format!("it is of the log {found}, not of {origins}"));
        }
        for since in &expected.since {
            if let Since::Checkpoint(since) = since
                && since.origin != checkpoint.origin
            {
                let (found, earlier) = (&checkpoint.origin, &since.origin);
                fault(
                    FaultClass::Origin,
                    format!("it is of the log {found}, the earlier one is of {earlier}"),
                );
            }
        }
        self.checkpoint = Some(checkpoint);
        self.note = Some(note);
    }
}
