//! `lucid evidence`: packs what is known of pods into a signed archive, and verifies one without a cluster.
//!
//! | file | content | covered by |
//! |---|---|---|
//! | `decisions/LOG-SEQ.tlog-proof` | sealed decision and its proof | key of the log |
//! | `verdicts/DIGEST.json` | verdict of the Verifier | key of the Verifier's log, with a proof |
//! | `signatures/sha256-HEX.json` | Sigstore bundle | keys and identities of its signers |
//! | `pods/NAME.json` | chain, images and state | key of the collector |
//! | `anchors.json` | anchors in the API server's audit log | key of the collector; compared with the decisions |
//! | `evidence.json` | its subject | key of the collector |
//! | `index.html` | all of it, for people | key of the collector |
//! | `manifest` | hashes of all others | key of the collector |

mod archive;
mod collect;
mod page;
#[cfg(test)]
mod tests;
mod verify;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use jiff::Timestamp;
use lucid_audit::correlate::SeenAnchor;
use lucid_audit::note::SigningKey;
use lucid_notary::Digest;
use lucid_shared::options::{InjectionArgs, VerifierArgs};
use serde::{Deserialize, Serialize};

use crate::connection::ConnectionArgs;
use crate::error::{Result, ResultExt, usage_error};

/// Claim of the evidence, for the page and the output.
const CLAIM: &str = "This proves the integrity of the evidence, not compliance with any rule.";

/// Options of `lucid evidence`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct EvidenceArgs {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    pack: PackArgs,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Verify an archive with public keys alone. Exit code 0: verified; 3: it was changed, or a proof is not valid.
    Verify(verify::VerifyArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct PackArgs {
    /// Pod of the evidence. By default all pods of the namespace.
    #[arg(value_name = "POD", required_unless_present = "namespace")]
    pod: Option<String>,

    /// Namespace of the pods. By default that of the context for a POD.
    #[arg(long, short, value_name = "NAME", value_parser = lucid_shared::parse_namespace)]
    namespace: Option<String>,

    /// Leave out earlier decisions, such as 2026-11-22T14:00:00Z. By default none.
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,

    /// Archive to write (tar.gz). An existing file is not overwritten.
    #[arg(long, value_name = "FILE", required = true)]
    out: Option<PathBuf>,

    /// File with the collector's signing key, from `lucid audit key`.
    #[arg(long, value_name = "FILE", required = true)]
    signing_key: Option<PathBuf>,

    /// Directory of a decision log; repeat for each replica.
    #[arg(long, value_name = "DIR")]
    log: Vec<PathBuf>,

    /// Audit log of the API server, for its anchors.
    #[arg(long, value_name = "FILE")]
    apiserver_audit: Option<PathBuf>,

    /// Verifier to ask about the digests of auditors.
    #[command(flatten)]
    verifier: VerifierArgs,

    /// Directory whose Sigstore bundles (sha256-HEX.json) about the auditors are packed. By default none.
    #[arg(long, value_name = "DIR")]
    signatures_directory: Option<PathBuf>,

    /// Namespace of the operator.
    #[arg(long, env = "LUCID_NAMESPACE", value_name = "NAME", default_value = "lucid-system")]
    #[arg(value_parser = lucid_shared::parse_namespace)]
    operator_namespace: String,

    #[command(flatten)]
    connection: ConnectionArgs,

    /// Operator options to assume if its Deployment does not set them.
    #[command(flatten)]
    injection: InjectionArgs,
}

const VERSION: u32 = 1;

/// Response of the Verifier, in `verdicts/DIGEST.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Verdict {
    digest: Digest,
    /// `None` if the verdict is unknown.
    notarized: Option<bool>,
    /// Reason of an unknown verdict.
    reason: Option<String>,
    /// Proof that the verdict is in the Verifier's log.
    proof: Option<String>,
}

/// Path of the file about a pod or a digest.
fn path(folder: &str, name: &str) -> String {
    format!("{folder}/{}.json", name.replace(':', "-"))
}

/// Note on `decisions` without the name of the subject's pod. Pods of one `generateName` have decisions of their own, but neither
/// decisions nor pods say which belong together.
fn ambiguous(decisions: usize) -> Option<String> {
    (decisions > 0).then(|| {
        format!(
            "{decisions} of the decisions precede the pod's name and have its generateName: they may be about other pods of \
             the same generateName"
        )
    })
}

/// Lines of sealed decisions by log and number.
type Records = HashMap<(String, u64), Vec<u8>>;

/// Returns the number of anchors without a record, or an error if a record is not that of its anchor.
fn unmatched(anchors: &[SeenAnchor], records: &Records) -> Result<usize, String> {
    let mut unmatched = 0;
    for SeenAnchor { log, anchor, .. } in anchors {
        let log = log.clone().unwrap_or_default();
        match records.get(&(log.clone(), anchor.seq)) {
            None => unmatched += 1,
            Some(line) if anchor.is_of(line) => {}
            Some(_) => {
                return Err(format!(
                    "record {} of {log} is not the one that the API server has seen",
                    anchor.seq
                ));
            }
        }
    }
    Ok(unmatched)
}

/// Runs the command. Returns `false` for an archive that is not verified.
pub(crate) async fn evidence(args: EvidenceArgs, output: &mut impl Write) -> Result<bool> {
    let EvidenceArgs { command, pack: args } = args;
    match command {
        Some(Command::Verify(args)) => verify::verify(&args, output),
        None => pack(&args, output).await.map(|()| true),
    }
}

async fn pack(args: &PackArgs, output: &mut impl Write) -> Result<()> {
    let Some((out, key)) = args.out.as_ref().zip(args.signing_key.as_ref()) else {
        return Err(usage_error("expected --out and --signing-key"));
    };
    let reading = format!("read {}", key.display());
    let key: SigningKey = crate::documents::read(key)?.parse().failed_to(reading).usage()?;
    let collected = collect::collect(args).await?;
    let (pods, decisions, unmatched) = (collected.pods.len(), collected.decisions.len(), collected.unmatched);
    let archive = archive::write(collected.into_files(), &key)?;
    let written = File::create_new(out).and_then(|mut file| {
        file.write_all(&archive).and_then(|()| file.sync_all()).inspect_err(|_| {
            // Else it would be in the way of the next attempt.
            let _ = fs::remove_file(out);
        })
    });
    written.failed_to(format_args!("write {}", out.display()))?;
    if unmatched > 0 {
        tracing::warn!(
            "{unmatched} anchors of the API server have no record in the given logs; set --log for each replica"
        );
    }
    writeln!(output, "{}: {pods} pods, {decisions} decisions", out.display()).failed_to_print()
}
