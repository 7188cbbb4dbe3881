use std::fs;
use std::path::{Path, PathBuf};

use lucid_testbed::Process;

use crate::{Error, free_port, program};

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
        let address = std::net::IpAddr::from([127, 0, 0, 1]);
        let port = free_port(address)?;
        let registry = folder.join("registry.yaml");
        let mut command = lucid_testbed::command(program("lucid-verifier")?);
        command.arg("serve").arg("--registry").arg(&registry);
        command.arg("--listen").arg(format!("{address}:{port}"));
        let mut verifier = Self { registry, url: format!("http://{address}:{port}"), process: None };
        verifier.notarize(digests)?;
        verifier.process =
            Some(Process::start("lucid-verifier", command, folder.join("lucid-verifier.log"))?);
        let health = format!("{}/healthz", verifier.url);
        crate::operator::wait_for_ok(&health, verifier.process.as_mut()).await?;
        Ok(verifier)
    }

    /// Where it is asked.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Makes `digests` the notarized ones.
    ///
    /// # Errors
    ///
    /// When the registry cannot be written.
    pub fn notarize(&self, digests: &[&str]) -> Result<(), Error> {
        let mut registry = "notarized:\n".to_owned();
        digests.iter().for_each(|digest| registry.push_str(&format!("  - {digest}\n")));
        if digests.is_empty() {
            registry = "notarized: []\n".to_owned();
        }
        let new = self.registry.with_extension("new");
        fs::write(&new, registry)?;
        fs::rename(new, &self.registry)?;
        Ok(())
    }

    /// Ends it; it can no longer be asked.
    pub fn stop(&mut self) {
        self.process = None;
    }
}
