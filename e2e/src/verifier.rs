use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{Error, PATIENCE, Process, program};

/// A running `lucid-verifier serve`, ended on drop.
#[derive(Debug)]
pub struct Verifier {
    registry: PathBuf,
    url: String,
    process: Option<Process>,
}

impl Verifier {
    /// Starts a Verifier with these notarized `digests` and its files in `folder`, such as its log in `verifier-log`.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not become ready.
    pub async fn start(folder: &Path, digests: &[&str]) -> Result<Self, Error> {
        let registry = folder.join("registry.yaml");
        write(&registry, digests)?;
        let mut command = crate::command(program("lucid-verifier")?);
        command.arg("serve").arg("--registry").arg(&registry).args(["--listen", "127.0.0.1:0"]);
        command.arg("--log").arg(folder.join("verifier-log"));
        let log = folder.join("lucid-verifier.log");
        let mut process = Process::start("lucid-verifier", command, log.clone())?;
        let begin = Instant::now();
        let url = loop {
            let output = fs::read_to_string(&log)?;
            if let Some(address) = output.lines().find_map(|line| line.strip_prefix("listening on ")) {
                break address.to_owned();
            }
            if process.ended().is_some() || begin.elapsed() > PATIENCE {
                return Err(format!("lucid-verifier does not listen; its log:\n{output}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        Ok(Self { registry, url, process: Some(process) })
    }

    /// Base URL of the Verifier.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Process id of the Verifier; `None` after it was stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Replaces the notarized digests.
    ///
    /// # Errors
    ///
    /// Returns an error if the registry cannot be written.
    pub fn notarize(&self, digests: &[&str]) -> Result<(), Error> {
        write(&self.registry, digests)
    }

    /// Stops the Verifier, which no longer responds.
    pub fn stop(&mut self) {
        self.process = None;
    }
}

fn write(registry: &Path, digests: &[&str]) -> Result<(), Error> {
    let new = registry.with_extension("new");
    fs::write(&new, serde_json::json!({ "notarized": digests }).to_string())?;
    fs::rename(new, registry)?;
    Ok(())
}
