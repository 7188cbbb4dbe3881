//! Comparison of the pods that the API server admitted with the records in the replicas' logs.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use lucid_e2e::Error;
use serde_json::Value;

use super::load::{Call, Outcome};

const WEBHOOKS: [&str; 2] = ["mutate", "validate"];

/// Decisions in all logs that allowed a pod.
#[derive(Default)]
pub(super) struct Records {
    /// Counts by webhook, namespace and name of the pod.
    allowed: HashMap<[String; 3], usize>,
}

impl Records {
    /// Adds a log from its directory, if it exists.
    pub(super) fn add(&mut self, log: &Path) -> Result<(), Error> {
        let segments = log.join("segments");
        let mut text = Vec::new();
        if segments.exists() {
            for entry in fs::read_dir(segments)? {
                text.extend(fs::read(entry?.path())?);
            }
        }
        self.add_lines(&text);
        Ok(())
    }

    /// Adds the records of one log. Ignores incomplete lines.
    pub(super) fn add_lines(&mut self, text: &[u8]) {
        let lines = text.split(|byte| *byte == b'\n');
        let records: Vec<Value> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        let overruled: HashSet<_> =
            records.iter().filter_map(|record| record.get("overrules")?.as_u64()).collect();
        for record in records {
            let is_overruled = record["seq"].as_u64().is_some_and(|seq| overruled.contains(&seq));
            if record["allowed"] == true && !is_overruled {
                let key = ["webhook", "namespace", "name"]
                    .map(|field| record[field].as_str().unwrap_or_default().to_owned());
                *self.allowed.entry(key).or_default() += 1;
            }
        }
    }

    /// Expects one record of each webhook for each admitted pod. Returns the number of lost and of repeated ones.
    pub(super) fn compare(&self, calls: &[Call]) -> (usize, usize) {
        let (mut lost, mut repeated) = (0, 0);
        for call in calls.iter().filter(|call| !matches!(call.outcome, Outcome::Failed(_))) {
            for webhook in WEBHOOKS {
                let key = [webhook, call.namespace, &call.name].map(str::to_owned);
                let count = self.allowed.get(&key).copied().unwrap_or_default();
                match count {
                    1 => continue,
                    0 => lost += 1,
                    _ => repeated += 1,
                }
                eprintln!("soak: {}/{} has {count} records of {webhook}", call.namespace, call.name);
            }
        }
        (lost, repeated)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn call(name: &str, outcome: Outcome) -> Call {
        let now = Instant::now();
        Call { began: now, ended: now, namespace: "soak-1", name: name.to_owned(), outcome }
    }

    #[test]
    fn an_admitted_pod_has_one_record_of_each_webhook() {
        let mut records = Records::default();
        let line = |seq: u32, webhook: &str, name: &str| {
            format!(
                r#"{{"seq":{seq},"webhook":"{webhook}","namespace":"soak-1","name":"{name}","allowed":true}}"#
            )
        };
        let overruling = r#"{"seq":4,"webhook":"validate","allowed":false,"overrules":3}"#;
        let one = [&line(0, "mutate", "a"), &line(1, "validate", "a"), &line(2, "mutate", "b")];
        let one = one.map(String::as_str).join("\n") + "\n" + &line(3, "validate", "b") + "\n" + overruling;
        records.add_lines(one.as_bytes());
        records.add_lines((line(0, "mutate", "c") + "\n" + &line(1, "mutate", "c") + "\n{\"torn").as_bytes());

        let failed = || Outcome::Failed("refused".to_owned());
        assert_eq!(records.compare(&[call("a", Outcome::Complete), call("x", failed())]), (0, 0));
        assert_eq!(records.compare(&[call("b", Outcome::Complete)]), (1, 0), "overruled");
        assert_eq!(records.compare(&[call("c", Outcome::Outdated)]), (1, 1));
    }
}
