//! `lucid-operator uninstall`: takes back what Lucid has registered and made.
//!
//! In this order, so that nobody waits for a webhook that is not there:
//!
//! 1. The backstop goes, which would refuse pods that nobody injects any more, and then the registrations, while the
//!    programs still answer.
//! 2. A program that runs puts them back within a second, so its Deployment or StatefulSet is scaled to 0, and they are taken
//!    back again for as long as a pod of it runs. Who has got SIGTERM writes nothing any more and serves for some seconds
//!    longer.
//! 3. When they stay away, what is left is removed: Secrets, events, and on demand the definition of `Auditor` and the volumes
//!    with the logs of decisions.
//!
//! Whoever lacks a right for the first two steps is told before anything is touched. Each step finds done what it would do,
//! so that a run that was ended can be made again.

mod leftovers;
mod registrations;
mod workload;

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use kube::Client;
use lucid_serving::Program;
use lucid_serving::rights::{Right, Whose, missing};
use snafu::{ResultExt, Snafu, ensure};

use crate::run::PROGRAM;
use crate::workload::Workload;
use registrations::{Found, Registration};
use workload::Workloads;

/// Whose registrations, pods and Secrets are looked for.
const PROGRAMS: [Program; 2] = [PROGRAM, lucid_validator::PROGRAM];

/// Between two looks at the registrations.
const PACE: Duration = Duration::from_millis(100);
/// How long they have to stay away when nobody runs any more.
const QUIET: Duration = Duration::from_secs(5);
/// How long it may take until another pod has ended: its own 40 seconds, and time for a node that is busy.
const PATIENCE: Duration = Duration::from_mins(2);
/// How often they may come back when no pod runs: what was on its way when the last one ended.
const RETURNS: usize = 3;

/// The options of `lucid-operator uninstall`.
#[derive(Clone, Debug, clap::Args)]
pub struct UninstallArgs {
    /// The namespace of the operator.
    #[arg(long, short, env = "LUCID_NAMESPACE", value_name = "NAME", default_value = "lucid-system")]
    #[arg(value_parser = lucid_process::parse_namespace)]
    namespace: String,

    /// Do not ask.
    #[arg(long, short)]
    yes: bool,

    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,

    /// Also remove the definition of the custom resource Auditor, and with it all Auditors.
    #[arg(long)]
    crds: bool,

    /// Also remove the PersistentVolumeClaims of lucid-validator, and with them its logs of decisions.
    #[arg(long)]
    decision_logs: bool,
}

/// Why nothing, or not everything, was removed.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum UninstallError {
    /// Nobody agreed.
    #[snafu(display("nothing was removed: say yes, or give --yes"))]
    NotConfirmed,
    /// No API server.
    #[snafu(display("failed to reach the API server (in the cluster, or by KUBECONFIG): {source}"))]
    Client {
        /// What was tried.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// Rights are missing.
    #[snafu(display("nothing was removed, for these rights are missing: {}", missing.join("; ")))]
    Rights {
        /// Each with verbs, resource and name.
        missing: Vec<String>,
    },
    /// To stop it would remove logs.
    #[snafu(display(
        "nothing was removed, for {workload} loses its logs of decisions when it is scaled to 0: set whenScaled of its \
         persistentVolumeClaimRetentionPolicy to Retain, or give --decision-logs"
    ))]
    LosesLogs {
        /// Which.
        workload: String,
    },
    /// The API server refuses.
    #[snafu(display("failed to {action}: {source}"))]
    Api {
        /// What was to be done.
        action: String,
        /// What the API server said.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// Nobody to tell.
    #[snafu(display("failed to write: {source}"))]
    Write {
        /// What the system said.
        source: io::Error,
    },
}

impl UninstallError {
    /// Whether nothing was tried at all: exit status 2.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NotConfirmed | Self::Client { .. } | Self::Rights { .. } | Self::LosesLogs { .. }
        )
    }
}

/// Removes what Lucid has registered and made. Returns whether it is gone; if not, `out` says what stays and why.
///
/// # Errors
///
/// When nobody agrees, a right is missing or the API server does not do it.
pub async fn uninstall(args: &UninstallArgs, out: &mut impl Write) -> Result<bool, UninstallError> {
    let client = Client::try_default().await.context(ClientSnafu)?;
    client.apiserver_version().await.context(ClientSnafu)?;
    ensure!(args.yes || args.dry_run || is_confirmed(&args.namespace)?, NotConfirmedSnafu);
    if !args.dry_run {
        let mut rights = registrations::rights();
        rights.extend(workload::rights(&args.namespace));
        rights.extend(leftovers::rights(args));
        check_rights(&client, rights).await?;
    }
    let workloads = Workloads::find(&client, &args.namespace).await?;
    if !args.dry_run {
        check_rights(&client, workloads.rights()).await?;
    }
    if let Some(workload) = workloads.scaled().find(|it| it.discards_volumes && !args.decision_logs) {
        return LosesLogsSnafu { workload: workload.to_string() }.fail();
    }
    let mut run = Uninstallation { args, client, out, workloads, by: None };
    run.run().await
}

fn is_confirmed(namespace: &str) -> Result<bool, UninstallError> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("Remove the registration of the webhooks and stop Lucid in {namespace}? Type yes: ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context(WriteSnafu)?;
    Ok(answer.trim() == "yes")
}

/// Stopping half-way would leave webhooks registered that nobody answers.
async fn check_rights(
    client: &Client,
    rights: impl IntoIterator<Item = Right>,
) -> Result<(), UninstallError> {
    let missing = missing(client, rights, &Whose::Own).await;
    let missing = missing.context(ApiSnafu { action: "ask for rights" })?;
    let missing: Vec<_> = missing.iter().map(Right::to_string).collect();
    ensure!(missing.is_empty(), RightsSnafu { missing });
    Ok(())
}

struct Uninstallation<'a, W> {
    args: &'a UninstallArgs,
    client: Client,
    out: &'a mut W,
    workloads: Workloads,
    /// Who has written what was found: not to be seen while it is made anew, before it is filled.
    by: Option<String>,
}

impl<W: Write> Uninstallation<'_, W> {
    async fn run(&mut self) -> Result<bool, UninstallError> {
        for policy in registrations::backstop(&self.client) {
            if !self.take_back(&policy).await? {
                self.say("Lucid is left as it is, for the backstop stays")?;
                return Ok(false);
            }
        }
        let mut registrations = Vec::from(registrations::all(&self.client));
        let mut programs = Vec::from(PROGRAMS);
        for registration in &registrations {
            if !self.take_back(registration).await? {
                programs.retain(|program| program.name != registration.program.name);
            }
        }
        let goes = |program: &Program| programs.iter().any(|it| it.name == program.name);
        for Program { name, .. } in PROGRAMS.iter().filter(|program| !goes(program)) {
            self.say(&format!("{name} is left as it is, for webhooks of it stay registered"))?;
        }
        if programs.is_empty() {
            return Ok(false);
        }
        registrations.retain(|registration| goes(&registration.program));
        self.stop(&programs).await?;
        if !self.args.dry_run && !self.keep_away(&registrations, &programs).await? {
            return Ok(false);
        }
        let mut complete = programs.len() == PROGRAMS.len();
        for program in &programs {
            complete &= self.remove_secrets(*program).await?;
            complete &= self.remove_events(*program).await?;
        }
        if goes(&lucid_validator::PROGRAM) {
            complete &= self.remove_claims().await?;
        }
        complete &= self.remove_check().await?;
        if self.args.crds && goes(&PROGRAM) {
            complete &= self.remove_definition().await?;
        }
        let namespace = &self.args.namespace;
        self.say(&format!(
            "what was applied is left, to be removed as it was applied: helm uninstall, kubectl delete -f, or lucid-operator \
             manifests --namespace {namespace} | kubectl delete --ignore-not-found -f -"
        ))?;
        Ok(complete)
    }

    /// Whether it is not registered any more, or is none of ours.
    async fn take_back(&mut self, registration: &Registration) -> Result<bool, UninstallError> {
        /// Somebody may write at the same time.
        const ATTEMPTS: usize = 10;
        for _ in 0..ATTEMPTS {
            match registration.look(&self.args.namespace).await? {
                Found::Nothing => {
                    self.say(&format!("{registration} is not there"))?;
                    return Ok(true);
                }
                Found::Foreign { why } => {
                    self.say(&format!("left {registration}: {why}"))?;
                    return Ok(true);
                }
                Found::OfAnother { namespace } => {
                    self.say(&format!(
                        "left {registration}: it is that of {} in namespace {namespace}; use --namespace {namespace}",
                        registration.program.name
                    ))?;
                    return Ok(false);
                }
                Found::Ours(_) if self.args.dry_run => {
                    self.say(&format!("would delete {registration}"))?;
                    return Ok(true);
                }
                Found::Ours(object) => {
                    self.by = registrations::whose(&object).or(self.by.take());
                    if registration.remove(&object).await? {
                        self.say(&format!("deleted {registration}"))?;
                        return Ok(true);
                    }
                }
            }
        }
        self.say(&format!("left {registration}: somebody else keeps changing it"))?;
        Ok(false)
    }

    async fn stop(&mut self, programs: &[Program]) -> Result<(), UninstallError> {
        let goes = |workload: &Workload| programs.iter().any(|it| workload::is_of(workload, *it));
        let scaled: Vec<_> = self.workloads.scaled().filter(|it| goes(it)).cloned().collect();
        for workload in scaled {
            let wanted = workload.wanted;
            if self.args.dry_run {
                self.say(&format!("would scale {workload} from {wanted} to 0"))?;
            } else {
                self.workloads.scale_to_zero(&workload).await?;
                self.say(&format!("scaled {workload} from {wanted} to 0"))?;
            }
        }
        Ok(())
    }

    /// Takes the registrations back for as long as somebody puts them there.
    async fn keep_away(
        &mut self,
        registrations: &[Registration],
        programs: &[Program],
    ) -> Result<bool, UninstallError> {
        let mut progress = Instant::now();
        let mut quiet_since = Instant::now();
        let (mut returns, mut told, mut ran) = (0, false, usize::MAX);
        loop {
            let running = self.workloads.running(programs).await?;
            if running.len() < ran {
                (ran, progress) = (running.len(), Instant::now());
            }
            let mut back = None;
            for registration in registrations {
                let Found::Ours(object) = registration.look(&self.args.namespace).await? else { continue };
                self.by = registrations::whose(&object).or(self.by.take());
                if running.is_empty() && returns >= RETURNS {
                    self.say(&format!(
                        "left {registration}: it is put back again and again (by {}), so {} runs that is no pod of \
                         namespace {}; stop it and uninstall again",
                        self.by.as_deref().unwrap_or("who has not filled it yet"),
                        registration.program.name,
                        self.args.namespace,
                    ))?;
                    return Ok(false);
                }
                registration.remove(&object).await?;
                back = Some(registration);
            }
            if let Some(registration) = back {
                if !told {
                    self.say(&format!(
                        "deleted {registration} again: {}, which runs, has put it back",
                        registration.program.name
                    ))?;
                    told = true;
                }
                returns += usize::from(running.is_empty());
            }
            if back.is_some() || !running.is_empty() {
                quiet_since = Instant::now();
            } else if quiet_since.elapsed() > QUIET {
                return Ok(true);
            }
            if progress.elapsed() > PATIENCE {
                self.say(&format!(
                    "these pods do not end, and put the registration back: {}; end them and uninstall again",
                    running.join(", ")
                ))?;
                return Ok(false);
            }
            // Back at once where it has just come back: all replicas write.
            tokio::time::sleep(if back.is_some() { PACE / 10 } else { PACE }).await;
        }
    }

    fn say(&mut self, line: &str) -> Result<(), UninstallError> {
        writeln!(self.out, "{line}").and_then(|()| self.out.flush()).context(WriteSnafu)
    }
}
