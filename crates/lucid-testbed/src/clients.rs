//! kubectl and helm, as used by administrators.

use std::{
    io::{self, Write as _},
    process::{Command, Output, Stdio},
};

use snafu::ResultExt as _;

use crate::{Binaries, Cluster, Component, Error, process};

impl Cluster {
    /// Runs `kubectl` as the cluster's administrator, with `input` as its standard input.
    ///
    /// # Errors
    ///
    /// Returns an error if kubectl cannot be built or run. Its exit status is part of the output.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Result<Output, Error> {
        // The default cache may hold the API of another cluster on the same port.
        let cache = self.folder().join("kubectl-cache");
        self.run_client(
            Component::Kubectl,
            |kubectl| kubectl.arg("--cache-dir").arg(cache).args(arguments),
            input,
        )
    }

    /// Runs `helm` as the cluster's administrator, with `input` as its standard input, such as values for `-f -`.
    ///
    /// # Errors
    ///
    /// See [`Cluster::kubectl`].
    pub fn helm(&self, arguments: &[&str], input: &str) -> Result<Output, Error> {
        let home = self.folder().join("helm");
        let of_helm = ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"];
        let homes = of_helm.map(|variable| (variable, &home));
        self.run_client(Component::Helm, |helm| helm.args(arguments).envs(homes), input)
    }

    fn run_client(
        &self,
        component: Component,
        configure: impl FnOnce(&mut Command) -> &mut Command,
        input: &str,
    ) -> Result<Output, Error> {
        let binaries = Binaries::from_env()?;
        binaries.ensure(&[component])?;
        let run = || -> io::Result<Output> {
            let mut command = process::command(binaries.path(component));
            let mut child = configure(&mut command)
                .env("KUBECONFIG", self.kubeconfig_path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
            let output = child.wait_with_output()?;
            match written {
                // The client ended before it read all input; its output says why.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
                _ => Ok(output),
            }
        };
        run().with_whatever_context(|_| format!("failed to run {}", component.name()))
    }
}
