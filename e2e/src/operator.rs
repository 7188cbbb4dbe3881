use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Instant;

use lucid_testbed::Cluster;

use crate::{ClusterExt as _, Error, PATIENCE, Process, free_port};

/// Common name of the API server's client certificate.
pub const API_SERVER: &str = "kube-apiserver";

/// Configuration of an operator or a validator beside a cluster.
#[derive(Clone, Debug)]
#[must_use]
pub struct OperatorBuilder {
    program: &'static str,
    name: &'static str,
    folder: PathBuf,
    kubeconfig: PathBuf,
    authority: PathBuf,
    address: IpAddr,
    by_service: bool,
    environment: Vec<(String, String)>,
    flags: BTreeMap<String, String>,
    command: Vec<OsString>,
}

impl OperatorBuilder {
    /// Runs this command line, with `run` appended, instead of the program built from the checkout.
    pub fn command<W: Into<OsString>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets an environment variable, such as `LUCID_STRICT_NOTARIZATION`.
    pub fn env(mut self, variable: &str, value: impl Into<String>) -> Self {
        self.environment.push((variable.to_owned(), value.into()));
        self
    }

    /// Sets a flag without a variable, such as `--trust-settle`.
    pub fn flag(mut self, flag: &str, value: impl Into<String>) -> Self {
        self.flags.insert(flag.to_owned(), value.into());
        self
    }

    /// Accepts only an API server with a client certificate: that of a cluster with [`webhook_client`].
    ///
    /// [`webhook_client`]: lucid_testbed::Builder::webhook_client
    pub fn authenticated(self) -> Self {
        let authority = self.authority.display().to_string();
        self.env("LUCID_CLIENT_CA", authority).flag("--client-names", API_SERVER)
    }

    /// Names the operator, so that several have separate logs.
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Uses the permissions of this kubeconfig instead of the cluster's administrator.
    pub fn kubeconfig(mut self, path: PathBuf) -> Self {
        self.kubeconfig = path;
        self
    }

    /// Registers the webhooks by Service, as in production. The cluster must have `webhooks_by_service`.
    pub fn by_service(mut self) -> Self {
        self.by_service = true;
        self
    }

    /// Starts the process and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ends, or is not ready in time.
    pub async fn start(self) -> Result<Operator, Error> {
        let mut attempts = 3;
        loop {
            attempts -= 1;
            let mut operator = self.clone().spawn()?;
            match operator.ready().await {
                // Another process took the port before the operator did.
                Err(error) if attempts > 0 && error.to_string().contains("failed to listen") => {}
                outcome => return outcome.map(|()| operator),
            }
        }
    }

    /// Starts the process without waiting.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started.
    pub fn spawn(self) -> Result<Operator, Error> {
        let (port, admin_port) = (free_port(self.address)?, free_port(self.address)?);
        let mut operator = Operator { builder: self, port, admin_port, process: None };
        operator.spawn()?;
        Ok(operator)
    }
}

/// A running `lucid-operator run` or `lucid-validator run`, ended on drop.
#[derive(Debug)]
pub struct Operator {
    builder: OperatorBuilder,
    port: u16,
    admin_port: u16,
    process: Option<Process>,
}

impl Operator {
    /// Configures an operator for `cluster`, with default settings except for addresses and a short lame duck period.
    pub fn builder(cluster: &Cluster) -> OperatorBuilder {
        Self::builder_of("lucid-operator", cluster)
    }

    /// Configures a validator for `cluster` in the same way.
    pub fn validator(cluster: &Cluster) -> OperatorBuilder {
        Self::builder_of("lucid-validator", cluster)
    }

    fn builder_of(program: &'static str, cluster: &Cluster) -> OperatorBuilder {
        OperatorBuilder {
            program,
            name: program,
            folder: cluster.folder().to_owned(),
            kubeconfig: cluster.kubeconfig_path(),
            authority: cluster.authority_path(),
            address: cluster.host_address(),
            by_service: false,
            environment: Vec::new(),
            flags: [("--lame-duck-seconds".to_owned(), "0".to_owned())].into(),
            command: Vec::new(),
        }
    }

    fn spawn(&mut self) -> Result<(), Error> {
        let OperatorBuilder { program, name, address, by_service, environment, flags, .. } = &self.builder;
        let mut command = match self.builder.command.split_first() {
            Some((first, words)) => {
                let mut command = crate::command(first);
                command.args(words);
                command
            }
            None => crate::command(crate::program(program)?),
        };
        command.arg("run").args(flags.iter().map(|(flag, value)| format!("{flag}={value}")));
        command.env("KUBECONFIG", &self.builder.kubeconfig);
        command.env("LUCID_LISTEN", SocketAddr::new(*address, self.port).to_string());
        command.env("LUCID_ADMIN_LISTEN", SocketAddr::new(*address, self.admin_port).to_string());
        if !by_service {
            command.env("LUCID_WEBHOOK_URL", self.url());
        }
        command.envs(environment.iter().map(|(variable, value)| (variable, value)));
        self.process = Some(Process::start(name, command, self.log())?);
        Ok(())
    }

    /// Waits until `/readyz` succeeds.
    ///
    /// # Errors
    ///
    /// Returns an error that quotes the log if the process ends, or is not ready in time.
    pub async fn ready(&mut self) -> Result<(), Error> {
        wait_for_ok(&self.admin_url("/readyz"), self.process.as_mut()).await
    }

    /// Base URL of the webhooks.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", SocketAddr::new(self.builder.address, self.port))
    }

    /// Port of the webhooks.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Process id, or `None` after the process was ended.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// URL of a path on the admin port, which serves `/healthz`, `/readyz` and `/metrics`.
    #[must_use]
    pub fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", SocketAddr::new(self.builder.address, self.admin_port))
    }

    /// Path of the log file.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.builder.folder.join("logs").join(format!("{}.log", self.builder.name))
    }

    /// Kills the process, like a crash.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Sends SIGTERM and returns the exit status, or `None` on timeout.
    pub fn terminate(&mut self) -> Option<ExitStatus> {
        self.process.take()?.terminate(PATIENCE)
    }

    /// Starts the process again with the same settings and ports, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// See [`OperatorBuilder::start`].
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.respawn()?;
        self.ready().await
    }

    /// Like [`Operator::restart`], without waiting.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started.
    pub fn respawn(&mut self) -> Result<(), Error> {
        self.kill();
        self.spawn()
    }

    /// Returns `true` if the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(|process| process.ended().is_some())
    }
}

/// Polls `url` until a request succeeds. Fails early if the process behind it ends.
pub(crate) async fn wait_for_ok(url: &str, mut process: Option<&mut Process>) -> Result<(), Error> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let begin = Instant::now();
    loop {
        let answer = match client.get(url).send().await {
            Ok(response) if response.status().is_success() => return Ok(()),
            Ok(response) => response.text().await.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        let ended = process.as_mut().and_then(|process| process.ended());
        if ended.is_some() || begin.elapsed() > PATIENCE {
            let what =
                ended.map_or_else(|| format!("not ready: {}", answer.trim()), |status| status.to_string());
            let (name, log) = process.map(|process| (process.name(), process.log_tail())).unwrap_or_default();
            return Err(format!("{name}: {what}; the end of its log:\n{log}").into());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
