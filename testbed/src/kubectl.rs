//! kubectl, as users have it.

use std::{
    io::{self, Write as _},
    process::{Command, Output, Stdio},
};

use snafu::ResultExt as _;

use crate::{
    Binaries, Cluster, Component, Error,
    error::{BinariesSnafu, KubectlSnafu},
};

impl Cluster {
    /// Runs `kubectl` as the cluster's administrator, with `input` at its standard input.
    ///
    /// # Errors
    /// It cannot be built or run. What it ended with is in the output.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Result<Output, Error> {
        let binaries = Binaries::from_env().context(BinariesSnafu)?;
        binaries.ensure(&[Component::Kubectl]).context(BinariesSnafu)?;
        let run = || -> io::Result<Output> {
            let mut child = Command::new(binaries.path(Component::Kubectl))
                .args(arguments)
                .env("KUBECONFIG", self.kubeconfig_path())
                // What it has heard of the API of another cluster on the same port.
                .arg("--cache-dir")
                .arg(self.folder().join("kubectl-cache"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(input.as_bytes())?;
            }
            child.wait_with_output()
        };
        run().context(KubectlSnafu)
    }
}
