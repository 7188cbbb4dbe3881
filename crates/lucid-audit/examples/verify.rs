//! Benchmarks the verification of a sealed log of decisions: `verify [RECORDS]`.

use std::sync::Arc;
use std::time::Instant;

use lucid_audit::log::{Options, Sync};
use lucid_audit::note::SigningKey;
use lucid_audit::verify::{Expectations, verify};
use lucid_audit::{Decision, Log};

/// Number of concurrent writers.
const WRITERS: u64 = 512;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let records: u64 = std::env::args().nth(1).map_or(Ok(500_000), |count| count.parse())?;
    let directory = tempfile::tempdir()?;
    let key = SigningKey::generate("lucid.computing/example/replica-0")?;
    let mut expected = Expectations::default();
    expected.keys.push(key.verifier().clone());
    let options = Options::new().with_key(key).with_sync("interval".parse::<Sync>()?);
    let log = Arc::new(Log::open(directory.path(), options)?);
    let write = |first: u64| {
        let log = Arc::clone(&log);
        async move {
            for number in (first..records).step_by(WRITERS as usize) {
                log.append(serde_json::to_vec(&decision(number))?).await?;
            }
            Ok::<_, Box<dyn std::error::Error + Send + std::marker::Sync>>(())
        }
    };
    let writers: Vec<_> = (0..WRITERS).map(|first| tokio::spawn(write(first))).collect();
    for writer in writers {
        writer.await?.map_err(|error| error.to_string())?;
    }
    log.close();

    for _ in 0..3 {
        let begin = Instant::now();
        let report = verify(directory.path(), &expected)?;
        let seconds = begin.elapsed().as_secs_f64();
        assert!(report.is_intact() && report.sealed == Some(records), "{report:?}");
        println!("{records} records verified in {seconds:.2} s: {:.0} records/s", records as f64 / seconds);
    }
    Ok(())
}

/// Returns a typical decision on a pod with two auditors.
fn decision(number: u64) -> Decision {
    let mut decision = Decision::new("mutate", format!("705ab4f5-6393-11e8-b7cc-{number:012x}"));
    decision.operation = "CREATE".to_owned();
    decision.kind = "Pod".to_owned();
    decision.namespace = "shop".to_owned();
    decision.name = format!("web-7d9c5b8f6d-{number}");
    decision.user = "system:serviceaccount:kube-system:replicaset-controller".to_owned();
    decision.mode = "enforce".to_owned();
    decision.patched = true;
    decision.chain = vec!["lucid-injection-auditor".to_owned(), "lucid-toxicity-auditor".to_owned()];
    decision
}
