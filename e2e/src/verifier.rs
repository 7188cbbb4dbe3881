use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lucid_testbed::Process;

use crate::{Error, PATIENCE, program};

/// `lucid-verifier serve`. It ends when this is dropped.
#[derive(Debug)]
pub struct Verifier {
    registry: PathBuf,
    url: String,
    process: Option<Process>,
}

impl Verifier {
    /// Starts a Verifier that knows `digests`; its files are in `folder`.
    ///
    /// # Errors
    ///
    /// When it does not come up.
    pub async fn start(folder: &Path, digests: &[&str]) -> Result<Self, Error> {
        let registry = folder.join("registry.yaml");
        write(&registry, digests)?;
        let mut command = lucid_testbed::command(program("lucid-verifier")?);
        command.arg("serve").arg("--registry").arg(&registry).args(["--listen", "127.0.0.1:0"]);
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

    /// Where it is asked.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Process of the Verifier; `None` when it is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Makes `digests` the notarized ones.
    ///
    /// # Errors
    ///
    /// When the registry cannot be written.
    pub fn notarize(&self, digests: &[&str]) -> Result<(), Error> {
        write(&self.registry, digests)
    }

    /// Ends it; it can no longer be asked.
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
