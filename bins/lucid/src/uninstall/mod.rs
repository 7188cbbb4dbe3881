//! `lucid uninstall`: removes the objects that Lucid has registered and created.
//!
//! The order avoids requests that wait for a missing webhook:
//!
//! 1. Delete the backstop, which would deny pods that are no longer injected. Then delete the registrations while the
//!    programs still answer.
//! 2. Scale the Deployments and StatefulSets to 0. A running program restores its registration within a second, so
//!    registrations are deleted again until all pods have ended. After SIGTERM a program stops writing, and keeps
//!    serving for some seconds.
//! 3. When the registrations stay deleted, remove Secrets, events and reports. Options add the definition of `Auditor` and the
//!    volumes with decision logs.
//!
//! Missing permissions for the first two steps are reported before anything is changed. Each step is idempotent, so an
//! interrupted run can be repeated.

mod leftovers;
mod registrations;
mod workload;

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use kube::Client;
use lucid_shared::serving::rbac::{Need, Permission, Subject, missing};
use lucid_shared::serving::{OPERATOR, Program, VALIDATOR};

use crate::connection::ClusterArgs;
use crate::error::{Result, ResultExt, usage_error};
use crate::workload::Workload;
use registrations::{Found, Registration};
use workload::Workloads;

const PROGRAMS: [Program; 2] = [OPERATOR, VALIDATOR];

const INTERVAL: Duration = Duration::from_millis(100);
/// Number of readings, [`INTERVAL`] apart, in which the registrations must stay deleted after the last pod has ended.
const SETTLED: u32 = 50;
/// Timeout for the next pod to end: a pod takes up to 40 s, plus slack for a busy node.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Number of times a registration may return without a running pod, from requests in flight when the last pod ended.
const MAX_RETURNS: usize = 3;

/// Options of `lucid uninstall`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UninstallArgs {
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,

    /// Only print the actions, without performing them.
    #[arg(long)]
    dry_run: bool,

    /// Also delete the CustomResourceDefinition of Auditor, and thereby all Auditor objects.
    #[arg(long)]
    crds: bool,

    /// Also delete the PersistentVolumeClaims of lucid-operator and lucid-validator, and thereby their decision logs.
    #[arg(long)]
    decision_logs: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Removes the objects that Lucid has registered and created. Returns `true` if all are gone; otherwise `out` lists
/// those that remain, with the reasons.
pub(crate) async fn uninstall(args: &UninstallArgs, out: &mut impl Write) -> Result<bool> {
    let client = args.cluster.client().await?;
    let namespace = &args.cluster.namespace;
    if !(args.yes || args.dry_run || is_confirmed(namespace)?) {
        return Err(usage_error("nothing was removed: confirm with yes, or set --yes"));
    }
    if !args.dry_run {
        let mut permissions = registrations::permissions();
        permissions.extend(workload::permissions(namespace));
        permissions.extend(leftovers::permissions(args));
        check_permissions(&client, permissions).await?;
    }
    let workloads = Workloads::find(&client, namespace).await?;
    if !args.dry_run {
        check_permissions(&client, workloads.permissions()).await?;
    }
    if let Some(workload) = workloads.scaled().find(|it| it.discards_volumes && !args.decision_logs) {
        return Err(usage_error(format!(
            "nothing was removed: scaling {workload} to 0 deletes its decision logs; set whenScaled of its \
             persistentVolumeClaimRetentionPolicy to Retain, or set --decision-logs"
        )));
    }
    let mut run = Uninstallation { args, client, out, workloads, by: None, is_complete: true };
    run.run().await
}

fn is_confirmed(namespace: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("Remove the registration of the webhooks and stop Lucid in {namespace}? Type yes: ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).failed_to("read the answer")?;
    Ok(answer.trim() == "yes")
}

/// Checks permissions in advance: stopping halfway would leave webhooks registered without a server.
async fn check_permissions(client: &Client, permissions: impl IntoIterator<Item = Permission>) -> Result<()> {
    let needs = permissions.into_iter().map(|it| Need::vital(it, "the uninstallation would stop halfway"));
    let missing = missing(client, needs, &Subject::Own).await.failed_to("check permissions")?;
    let missing: Vec<_> = missing.iter().map(|need| need.permission.to_string()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(usage_error(format!("nothing was removed: missing permissions: {}", missing.join("; "))))
}

struct Uninstallation<'a, W> {
    args: &'a UninstallArgs,
    client: Client,
    out: &'a mut W,
    workloads: Workloads,
    /// Last known writer of a registration. A registration that is recreated but not filled in yet does not name one.
    by: Option<String>,
    /// `false` once a removal has failed.
    is_complete: bool,
}

impl<W: Write> Uninstallation<'_, W> {
    async fn run(&mut self) -> Result<bool> {
        for policy in registrations::backstop(&self.client) {
            if !self.remove(&policy).await? {
                self.print("kept Lucid: the backstop remains")?;
                return Ok(false);
            }
        }
        let mut registrations = Vec::from(registrations::all(&self.client));
        let mut programs = Vec::from(PROGRAMS);
        for registration in &registrations {
            if !self.remove(registration).await? {
                programs.retain(|program| program.name != registration.program.name);
            }
        }
        let is_removed = |program: &Program| programs.iter().any(|it| it.name == program.name);
        for Program { name, .. } in PROGRAMS.iter().filter(|program| !is_removed(program)) {
            self.print(&format!("kept {name}: its webhooks remain registered"))?;
        }
        if programs.is_empty() {
            return Ok(false);
        }
        registrations.retain(|registration| is_removed(&registration.program));
        self.stop(&programs).await?;
        if !self.args.dry_run && !self.wait_until_gone(&registrations, &programs).await? {
            return Ok(false);
        }
        self.is_complete = programs.len() == PROGRAMS.len();
        for program in &programs {
            self.remove_secrets(*program).await?;
            self.remove_events(program.name).await?;
        }
        if is_removed(&OPERATOR) {
            self.remove_generations().await?;
            self.remove_keeper().await?;
        }
        for program in PROGRAMS.into_iter().filter(&is_removed) {
            self.remove_claims(program).await?;
        }
        self.remove_check().await?;
        if self.args.crds && is_removed(&OPERATOR) {
            self.remove_definition().await?;
        }
        let namespace = &self.args.cluster.namespace;
        self.print(&format!(
            "kept the applied manifests; remove them with helm uninstall, kubectl delete -f, or lucid manifests \
             --namespace {namespace} | kubectl delete --ignore-not-found -f -"
        ))?;
        Ok(self.is_complete)
    }

    /// Deletes `registration`. Returns `true` unless an object that blocks the uninstallation remains.
    async fn remove(&mut self, registration: &Registration) -> Result<bool> {
        /// Maximum number of attempts on conflicts with concurrent writes.
        const ATTEMPTS: usize = 10;
        for _ in 0..ATTEMPTS {
            match registration.get(&self.args.cluster.namespace).await? {
                Found::Nothing => {
                    self.print(&format!("{registration} not found"))?;
                    return Ok(true);
                }
                Found::Kept { why, is_blocking } => {
                    self.print(&format!("kept {registration}: {why}"))?;
                    return Ok(!is_blocking);
                }
                Found::Ours(_) if self.args.dry_run => {
                    self.print(&format!("would delete {registration}"))?;
                    return Ok(true);
                }
                Found::Ours(object) => {
                    self.by = registrations::last_writer(&object).or(self.by.take());
                    if registration.remove(&object).await? {
                        self.print(&format!("deleted {registration}"))?;
                        return Ok(true);
                    }
                }
            }
        }
        self.print(&format!("failed to delete {registration}: another client keeps changing it"))?;
        Ok(false)
    }

    async fn stop(&mut self, programs: &[Program]) -> Result<()> {
        let is_removed = |workload: &Workload| programs.iter().any(|it| workload::is_of(workload, *it));
        let scaled: Vec<_> = self.workloads.scaled().filter(|it| is_removed(it)).cloned().collect();
        for workload in scaled {
            let wanted = workload.wanted;
            if self.args.dry_run {
                self.print(&format!("would scale {workload} from {wanted} to 0"))?;
            } else {
                self.workloads.scale_to_zero(&workload).await?;
                self.print(&format!("scaled {workload} from {wanted} to 0"))?;
            }
        }
        Ok(())
    }

    /// Deletes the registrations until they stay deleted.
    async fn wait_until_gone(
        &mut self,
        registrations: &[Registration],
        programs: &[Program],
    ) -> Result<bool> {
        let mut progress = Instant::now();
        let mut quiet = 0;
        let (mut returns, mut reported, mut ran) = (0, false, usize::MAX);
        loop {
            let running = self.workloads.running(programs).await?;
            if running.len() < ran {
                (ran, progress) = (running.len(), Instant::now());
            }
            let mut back = None;
            for registration in registrations {
                let Found::Ours(object) = registration.get(&self.args.cluster.namespace).await? else {
                    continue;
                };
                self.by = registrations::last_writer(&object).or(self.by.take());
                if running.is_empty() && returns >= MAX_RETURNS {
                    self.print(&format!(
                        "failed to delete {registration}: it is restored repeatedly (by {}), so {} runs outside of \
                         namespace {}; stop it and run uninstall again",
                        self.by.as_deref().unwrap_or("a writer that has not filled it in yet"),
                        registration.program.name,
                        self.args.cluster.namespace,
                    ))?;
                    return Ok(false);
                }
                registration.remove(&object).await?;
                back = Some(registration);
            }
            if let Some(registration) = back {
                if !reported {
                    self.print(&format!(
                        "deleted {registration} again: a running {} had restored it",
                        registration.program.name
                    ))?;
                    reported = true;
                }
                returns += usize::from(running.is_empty());
            }
            quiet = if back.is_some() || !running.is_empty() { 0 } else { quiet + 1 };
            if quiet > SETTLED {
                return Ok(true);
            }
            if progress.elapsed() > TIMEOUT {
                self.print(&format!(
                    "timed out waiting for pods that restore the registration: {}; delete them and run uninstall again",
                    running.join(", ")
                ))?;
                return Ok(false);
            }
            // All replicas write: check again soon after a registration has returned.
            tokio::time::sleep(if back.is_some() { INTERVAL / 10 } else { INTERVAL }).await;
        }
    }

    fn print(&mut self, line: &str) -> Result<()> {
        writeln!(self.out, "{line}").and_then(|()| self.out.flush()).failed_to_print()
    }
}
