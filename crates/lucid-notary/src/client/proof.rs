//! Proofs that a verdict is in the Verifier's log.

use lucid_audit::note::VerifierKey;
use lucid_audit::proof::{Proof, Proven};
use serde::Deserialize;
use snafu::{OptionExt, ResultExt, Snafu};

use super::answer::Answer;
use crate::digest::Digest;

/// A proof does not prove the verdict.
#[derive(Debug, Snafu)]
pub struct ProofError(Fault);

#[derive(Debug, Snafu)]
enum Fault {
    #[snafu(display("expected a proof that the digest is notarized in the Verifier's log, found none"))]
    Missing,
    #[snafu(display("the proof from the Verifier's log is not valid: {source}"))]
    Invalid { source: lucid_audit::Error },
    #[snafu(display("record {seq} of {origin} does not say that {digest} {expected}"))]
    OtherRecord { seq: u64, origin: String, digest: Digest, expected: &'static str },
}

/// Checks a proof of the verdict on `digest`, a C2SP tlog-proof, against the trusted `keys`. A digest that is not notarized
/// needs none.
///
/// A proof shows that the record is in the log, not that it is the latest one about the digest.
///
/// # Errors
///
/// Returns an error if the proof is missing or not valid, or its record is about another verdict or digest.
pub fn check_proof(
    keys: &[VerifierKey],
    digest: &Digest,
    answer: Answer,
    proof: Option<&str>,
) -> Result<Option<Proven>, ProofError> {
    #[derive(Deserialize)]
    struct Record {
        event: String,
        digest: String,
    }

    if proof.is_none() && answer == Answer::NotNotarized {
        return Ok(None);
    }
    let proof: Proof = proof.context(MissingSnafu)?.parse().context(InvalidSnafu)?;
    let proven = proof.check(keys, None).context(InvalidSnafu)?;
    let (event, expected) = match answer {
        Answer::Notarized => ("notarize", "is notarized"),
        Answer::NotNotarized | Answer::NotSigned { .. } => ("revoke", "is revoked"),
    };
    let record = serde_json::from_str::<Record>(&proven.record).ok();
    let is_of = record.is_some_and(|record| record.event == event && record.digest == digest.as_str());
    let (seq, origin) = (proven.seq, &proven.origin);
    if !is_of {
        return Err(OtherRecordSnafu { seq, origin, digest: digest.clone(), expected }.build().into());
    }
    Ok(Some(proven))
}
