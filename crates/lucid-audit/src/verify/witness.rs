//! Checkpoints cosigned by witnesses.

use super::Expectations;
use super::fault::{Fault, FaultClass};
use crate::checkpoint::Checkpoint;
use crate::layout::COSIGNED;
use crate::note::{Note, NoteError, VerifierKey};

/// An earlier checkpoint of the log, vouched for independently.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) checkpoint: Checkpoint,
    /// Source of the checkpoint, the subject of `signs` in messages.
    pub(super) by: String,
}

impl Seen {
    /// Returns the checkpoint cosigned by the most witnesses. Too few cosignatures are a fault. Without expected witnesses,
    /// returns the expected cosigned checkpoint or that in `file`, if signed by the log.
    pub(super) fn of(
        file: Option<&[u8]>,
        sealed: Option<Note>,
        keys: &[VerifierKey],
        expected: &Expectations,
        faults: &mut Vec<Fault>,
    ) -> Option<Self> {
        let mut fault = |detail| faults.push(Fault::of_file(FaultClass::Witness, COSIGNED, detail));
        let kept = file.map(|bytes| str::from_utf8(bytes).unwrap_or_default().parse::<Note>());
        let kept = match kept.transpose() {
            Ok(kept) => kept,
            Err(error) => {
                fault(error.to_string());
                None
            }
        };
        if expected.witnesses.is_empty() {
            let note = expected.cosigned.as_ref().or(kept.as_ref())?;
            let signed = keys.iter().find_map(|key| Checkpoint::verify(note, key).ok())?;
            return Some(Self { checkpoint: signed, by: "the checkpoint that was cosigned".to_owned() });
        }
        let notes: Vec<Note> = match &expected.cosigned {
            Some(note) => vec![note.clone()],
            None => sealed.into_iter().chain(kept).collect(),
        };
        let best = notes.iter().filter_map(|note| Witnessed::of(note, &expected.witnesses));
        let best = best.max_by_key(|it| (it.names.len(), it.checkpoint.size));
        let quorum = expected.quorum.unwrap_or(expected.witnesses.len());
        let count = best.as_ref().map_or(0, |best| best.names.len());
        if count < quorum {
            let missing = best.as_ref().map_or_else(
                || expected.witnesses.iter().map(|key| format!("not signed by {}", key.name())).collect(),
                |best| best.missing.clone(),
            );
            let which =
                best.as_ref().map_or_else(String::new, |it| format!(" of {} records", it.checkpoint.size));
            fault(format!(
                "the checkpoint{which} is cosigned by {count} of the {quorum} witnesses that have to: {}",
                missing.join("; ")
            ));
        }
        let best = best.filter(|_| count > 0)?;
        let by = format!("the checkpoint that {} cosigned", best.names.join(" and "));
        Some(Self { checkpoint: best.checkpoint, by })
    }
}

/// Cosignatures of one checkpoint.
struct Witnessed {
    checkpoint: Checkpoint,
    names: Vec<String>,
    /// Reasons why the other witnesses do not count.
    missing: Vec<String>,
}

impl Witnessed {
    fn of(note: &Note, witnesses: &[VerifierKey]) -> Option<Self> {
        let checkpoint = note.text().parse().ok()?;
        let (mut names, mut missing) = (Vec::new(), Vec::new());
        for witness in witnesses {
            match note.verify(witness) {
                Ok(_) => names.push(witness.name().to_owned()),
                Err(NoteError::Unsigned { .. }) => missing.push(format!("not signed by {}", witness.name())),
                Err(wrong) => missing.push(wrong.to_string()),
            }
        }
        Some(Self { checkpoint, names, missing })
    }
}
