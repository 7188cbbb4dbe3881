//! Verification of the checkpoint and its cosignatures.

use std::path::Path;

use super::fault::{Fault, FaultClass};
use super::{Earlier, Expectations, Since};
use crate::checkpoint::{self, Checkpoint};
use crate::layout::{CHECKPOINT, COSIGNED, MINIMUM, TILES, VKEY};
use crate::minimum::Minimum;
use crate::note::{Note, NoteError, NoteErrorKind, VerifierKey};
use crate::read::{self, FileError};

#[derive(Debug, Default)]
pub(super) struct Seal {
    pub(super) checkpoint: Option<Checkpoint>,
    /// `true` if the key was read from the log's directory.
    pub(super) key_from_log: bool,
    /// Trusted checkpoint cosigned by witnesses, and its source, the subject of `signs` in messages.
    pub(super) seen: Option<(Checkpoint, String)>,
    pub(super) faults: Vec<Fault>,
    /// Keys from the expectations or the log's directory.
    keys: Vec<VerifierKey>,
}

impl Seal {
    pub(super) fn read(directory: &Path, expected: &Expectations) -> Result<Self, FileError> {
        let mut seal = Self { keys: expected.keys.clone(), ..Self::default() };
        // Read before the checkpoint, which always covers at least as many records.
        let small = |name| read::small(&directory.join(name));
        let cosigned = small(COSIGNED)?;
        let vkey = small(VKEY)?;
        seal.take_vkey(vkey.as_deref(), expected);
        let mut note = None;
        match small(CHECKPOINT)? {
            Some(bytes) => note = seal.take_checkpoint(&bytes, expected),
            None => {
                let tiles = directory.join(TILES).exists();
                let since = expected.since.iter().any(|it| matches!(it, Since(Earlier::Checkpoint(_))));
                if tiles || vkey.is_some() || !expected.keys.is_empty() || expected.sealed || since {
                    let detail = "there is no checkpoint: the sealed records are unknown";
                    seal.fault(FaultClass::Unsealed, CHECKPOINT, detail);
                }
            }
        }
        let seen = seal.seen(cosigned.as_deref(), note, expected);
        let differs = seen.as_ref().zip(seal.checkpoint.as_ref());
        if let Some(((seen, _), sealed)) = differs.filter(|((seen, _), sealed)| seen.origin != sealed.origin)
        {
            let detail = format!("it is of the log {}, the checkpoint is of {}", seen.origin, sealed.origin);
            seal.fault(FaultClass::Origin, COSIGNED, detail);
        } else {
            seal.seen = seen;
        }
        Ok(seal)
    }

    fn fault(&mut self, class: FaultClass, file: &str, detail: impl Into<String>) {
        self.faults.push(Fault::of_file(class, file, detail));
    }

    fn take_vkey(&mut self, vkey: Option<&[u8]>, expected: &Expectations) {
        let Some(text) = vkey else { return };
        match str::from_utf8(text).unwrap_or_default().trim().parse::<VerifierKey>() {
            Err(error) => self.fault(FaultClass::KeyChange, VKEY, error.to_string()),
            Ok(key) if expected.keys.is_empty() => {
                self.key_from_log = true;
                self.keys.push(key);
            }
            Ok(key) if !expected.keys.contains(&key) => {
                let detail = format!("the log has the key {key}, which is not trusted");
                self.fault(FaultClass::KeyChange, VKEY, detail);
            }
            Ok(_) => {}
        }
    }

    /// Verifies the minimum index. Without a valid one, missing segments are faults.
    pub(super) fn take_minimum(&mut self, bytes: Option<&[u8]>) -> Minimum {
        let Some(bytes) = bytes else { return Minimum::default() };
        let error = match Minimum::verify(str::from_utf8(bytes).unwrap_or_default(), &self.keys) {
            Ok(minimum) => return minimum,
            Err(error) => error,
        };
        let class = match error.kind {
            NoteErrorKind::Malformed => FaultClass::Checkpoint,
            NoteErrorKind::Unsigned => FaultClass::KeyChange,
            NoteErrorKind::Wrong => FaultClass::Signature,
        };
        self.fault(class, MINIMUM, error.to_string());
        Minimum::default()
    }

    fn take_checkpoint(&mut self, bytes: &[u8], expected: &Expectations) -> Option<Note> {
        let mut fault = |class, detail: String| self.faults.push(Fault::of_file(class, CHECKPOINT, detail));
        let parsed = str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned());
        let (note, checkpoint) = parsed
            .and_then(|text| checkpoint::parse(text).map_err(|error| error.to_string()))
            .map_err(|detail| fault(FaultClass::Checkpoint, detail))
            .ok()?;
        let verdicts: Vec<_> = self.keys.iter().map(|key| note.verify(key)).collect();
        let is_wrong = |error: &&NoteError| error.kind == NoteErrorKind::Wrong;
        let wrong = verdicts.iter().filter_map(|verdict| verdict.as_ref().err()).find(is_wrong);
        match (wrong, verdicts.iter().any(Result::is_ok), verdicts.first()) {
            (Some(wrong), ..) => fault(FaultClass::Signature, wrong.to_string()),
            (None, false, Some(Err(error))) => fault(FaultClass::KeyChange, error.to_string()),
            (None, false, _) => {
                let detail = "no key is trusted, and there is no file vkey";
                fault(FaultClass::Signature, detail.to_owned());
            }
            (None, true, _) => {}
        }
        let found = &checkpoint.origin;
        let origins: Vec<&str> = match &expected.origin {
            Some(origin) => vec![origin],
            None => self.keys.iter().map(VerifierKey::name).collect(),
        };
        if !origins.is_empty() && !origins.contains(&found.as_str()) {
            let origins = origins.join(" or ");
            fault(FaultClass::Origin, format!("it is of the log {found}, not of {origins}"));
        }
        for since in &expected.since {
            if let Since(Earlier::Checkpoint(Checkpoint { origin: earlier, .. })) = since
                && earlier != found
            {
                let detail = format!("it is of the log {found}, the earlier one is of {earlier}");
                fault(FaultClass::Origin, detail);
            }
        }
        self.checkpoint = Some(checkpoint);
        Some(note)
    }

    /// Returns the checkpoint cosigned by the most witnesses, and its source. Too few cosignatures are a fault. Without expected
    /// witnesses, returns the expected cosigned checkpoint or that in `file`, if signed by the log.
    fn seen(
        &mut self,
        file: Option<&[u8]>,
        sealed: Option<Note>,
        expected: &Expectations,
    ) -> Option<(Checkpoint, String)> {
        let kept = file.map(|bytes| str::from_utf8(bytes).unwrap_or_default().parse::<Note>());
        let kept = kept.transpose().unwrap_or_else(|error| {
            self.fault(FaultClass::Witness, COSIGNED, error.to_string());
            None
        });
        let Expectations { witnesses, cosigned, .. } = expected;
        if witnesses.is_empty() {
            let note = cosigned.as_ref().or(kept.as_ref())?;
            let signed = self.keys.iter().find_map(|key| Checkpoint::verify(note, key).ok())?;
            return Some((signed, "the checkpoint that was cosigned".to_owned()));
        }
        let notes: Vec<Note> = match cosigned {
            Some(note) => vec![note.clone()],
            None => sealed.into_iter().chain(kept).collect(),
        };
        let counted = notes.iter().filter_map(|note| {
            let checkpoint: Checkpoint = note.text().parse().ok()?;
            let (names, missing) = cosignatures(note, witnesses);
            Some((checkpoint, names, missing))
        });
        let best = counted.max_by_key(|(checkpoint, names, _)| (names.len(), checkpoint.size));
        let quorum = expected.quorum.unwrap_or(witnesses.len());
        let count = best.as_ref().map_or(0, |(_, names, _)| names.len());
        if count < quorum {
            let (which, missing) = match &best {
                Some((checkpoint, _, missing)) => {
                    (format!(" of {} records", checkpoint.size), missing.join("; "))
                }
                None => {
                    let unsigned = witnesses.iter().map(|key| format!("not signed by {}", key.name()));
                    (String::new(), Vec::from_iter(unsigned).join("; "))
                }
            };
            let detail = format!(
                "the checkpoint{which} is cosigned by {count} of the {quorum} witnesses that have to: {missing}"
            );
            self.fault(FaultClass::Witness, COSIGNED, detail);
        }
        let (checkpoint, names, _) = best.filter(|_| count > 0)?;
        Some((checkpoint, format!("the checkpoint that {} cosigned", names.join(" and "))))
    }
}

/// Returns the names of the witnesses that have signed `note`, and the reasons why the others do not count.
fn cosignatures(note: &Note, witnesses: &[VerifierKey]) -> (Vec<String>, Vec<String>) {
    let (mut names, mut missing) = (Vec::new(), Vec::new());
    for witness in witnesses {
        match note.verify(witness) {
            Ok(_) => names.push(witness.name().to_owned()),
            Err(error) if error.kind == NoteErrorKind::Unsigned => {
                missing.push(format!("not signed by {}", witness.name()))
            }
            Err(wrong) => missing.push(wrong.to_string()),
        }
    }
    (names, missing)
}
