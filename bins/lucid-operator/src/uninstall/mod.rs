//! `lucid-operator uninstall`: takes back what the operator has registered and made.
//!
//! In this order, so that nobody waits for a webhook that is not there:
//!
//! 1. The backstop goes, which would refuse pods that nobody injects any more, and then the registrations, while the
//!    operator still answers.
//! 2. An operator that runs puts them back within a second, so its Deployment is scaled to 0, and they are taken back again
//!    for as long as a pod of it runs. Who has got SIGTERM writes nothing any more and serves for some seconds longer.
//! 3. When they stay away, what is left is removed: Secrets, events, and on demand the definition of `Auditor`.
//!
//! Whoever lacks a right for the first two steps is told before anything is touched.

mod registrations;
mod workload;

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use snafu::{ResultExt, Snafu, ensure};

use registrations::{Found, Registration};
use workload::Workload;

/// Between two looks at the registrations.
const PACE: Duration = Duration::from_millis(100);
/// How long they have to stay away when nobody runs any more.
const QUIET: Duration = Duration::from_secs(5);
/// How long pods may take to end: their own 40 seconds, and time for a node that is busy.
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
    #[snafu(display("nothing was removed, for these rights are missing: {}", missing.join(", ")))]
    Rights {
        /// As `verb resource name`.
        missing: Vec<String>,
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
        matches!(self, Self::NotConfirmed | Self::Client { .. })
    }
}

/// Removes what the operator has registered and made. Returns whether it is gone; if not, `out` says what stays and why.
///
/// # Errors
///
/// When nobody agrees, a right is missing or the API server does not do it.
pub async fn uninstall(args: &UninstallArgs, out: &mut impl Write) -> Result<bool, UninstallError> {
    let client = Client::try_default().await.context(ClientSnafu)?;
    client.apiserver_version().await.context(ClientSnafu)?;
    ensure!(args.yes || args.dry_run || is_confirmed(&args.namespace)?, NotConfirmedSnafu);
    let backstop = registrations::backstop(&client);
    let registrations = registrations::all(&client);
    let workload = Workload::find(&client, &args.namespace).await?;
    if !args.dry_run {
        check_rights(&client, &args.namespace, workload.is_scaled()).await?;
    }
    let mut run = Uninstallation { args, client, out, by: None };
    run.run(&backstop, &registrations, &workload).await
}

fn is_confirmed(namespace: &str) -> Result<bool, UninstallError> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("Remove the registration of the webhooks and stop the operator in {namespace}? Type yes: ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context(WriteSnafu)?;
    Ok(answer.trim() == "yes")
}

/// Stopping half-way would leave webhooks registered that nobody answers.
async fn check_rights(client: &Client, namespace: &str, scales: bool) -> Result<(), UninstallError> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = Vec::new();
    let wanted = registrations::RIGHTS
        .iter()
        .map(|(verb, group, resource, name)| (None, *verb, *group, *resource, *name));
    let scaling = workload::RIGHTS.iter().filter(|(verb, ..)| scales || *verb != "patch");
    let scaling = scaling.map(|(verb, group, resource)| (Some(namespace), *verb, *group, *resource, ""));
    for (namespace, verb, group, resource, name) in wanted.chain(scaling) {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let attributes = ResourceAttributes {
            namespace: namespace.map(str::to_owned),
            verb: Some(verb.to_owned()),
            group: given(group),
            resource: Some(resource.to_owned()),
            subresource: given(subresource),
            name: given(name),
            ..ResourceAttributes::default()
        };
        let spec =
            SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.context(ApiSnafu { action: "ask for rights" })?;
        if !answer.status.is_some_and(|status| status.allowed) {
            let place = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
            missing.push([verb, resource, subresource, name].join(" ").trim().replace("  ", " ") + &place);
        }
    }
    ensure!(missing.is_empty(), RightsSnafu { missing });
    Ok(())
}

struct Uninstallation<'a, W> {
    args: &'a UninstallArgs,
    client: Client,
    out: &'a mut W,
    /// Who has written what was found: not to be seen while it is made anew, before it is filled.
    by: Option<String>,
}

impl<W: Write> Uninstallation<'_, W> {
    async fn run(
        &mut self,
        backstop: &[Registration],
        registrations: &[Registration],
        workload: &Workload,
    ) -> Result<bool, UninstallError> {
        for policy in backstop {
            if !self.take_back(policy).await? {
                self.say("the operator is left as it is, for the backstop stays")?;
                return Ok(false);
            }
        }
        let mut gone = true;
        for registration in registrations {
            gone &= self.take_back(registration).await?;
        }
        if !gone {
            self.say("the operator is left as it is, for its webhooks stay registered")?;
            return Ok(false);
        }
        for (name, replicas) in workload.scaled() {
            let namespace = &self.args.namespace;
            if self.args.dry_run {
                self.say(&format!("would scale Deployment {namespace}/{name} from {replicas} to 0"))?;
            } else {
                workload.scale_to_zero(name).await?;
                self.say(&format!("scaled Deployment {namespace}/{name} from {replicas} to 0"))?;
            }
        }
        if !self.args.dry_run && !self.keep_away(registrations, workload).await? {
            return Ok(false);
        }
        let mut complete = self.remove_secrets(workload).await?;
        complete &= self.remove_events().await?;
        if self.args.crds {
            complete &= self.remove_definition().await?;
        }
        let namespace = &self.args.namespace;
        self.say(&format!(
            "what was applied is left, to be removed by: lucid-operator manifests --namespace {namespace} | kubectl delete \
             --ignore-not-found -f -"
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
                        "left {registration}: it is that of the operator in namespace {namespace}; use --namespace {namespace}"
                    ))?;
                    return Ok(false);
                }
                Found::Ours(_) if self.args.dry_run => {
                    self.say(&format!("would {} {registration}", registration.action()))?;
                    return Ok(true);
                }
                Found::Ours(object) => {
                    self.by = registrations::whose(&object).or(self.by.take());
                    if registration.remove(&object).await? {
                        self.say(&format!("{} {registration}", registration.done()))?;
                        return Ok(true);
                    }
                }
            }
        }
        self.say(&format!("left {registration}: somebody else keeps changing it"))?;
        Ok(false)
    }

    /// Takes the registrations back for as long as somebody puts them there.
    async fn keep_away(
        &mut self,
        registrations: &[Registration],
        workload: &Workload,
    ) -> Result<bool, UninstallError> {
        let begin = Instant::now();
        let mut quiet_since = Instant::now();
        let (mut returns, mut told) = (0, false);
        loop {
            let running = workload.running().await?;
            let mut back = None;
            for registration in registrations {
                let Found::Ours(object) = registration.look(&self.args.namespace).await? else { continue };
                self.by = registrations::whose(&object).or(self.by.take());
                if running.is_empty() && returns >= RETURNS {
                    self.say(&format!(
                        "left {registration}: it is put back again and again (by {}), so an operator runs that is no pod of \
                         namespace {}; stop it and uninstall again",
                        self.by.as_deref().unwrap_or("who has not filled it yet"),
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
                        "{} {registration} again: an operator that runs has put it back",
                        registration.done()
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
            if begin.elapsed() > PATIENCE {
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

    /// Only what is labelled as made by us; keys are not read.
    async fn remove_secrets(&mut self, workload: &Workload) -> Result<bool, UninstallError> {
        const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "lucid-certs");
        let namespace = &self.args.namespace;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let mut complete = true;
        for name in workload.secrets() {
            let subject = format!("Secret {namespace}/{name}");
            let found = match secrets.get_metadata_opt(name).await {
                Ok(Some(found)) => found,
                Ok(None) => {
                    self.say(&format!("{subject} is not there"))?;
                    continue;
                }
                Err(error) => {
                    self.stays(&subject, &error)?;
                    complete = false;
                    continue;
                }
            };
            if found.labels().get(LABEL.0).is_none_or(|value| value != LABEL.1) {
                self.say(&format!(
                    "left {subject}: it has no label {}={}, so somebody else made it",
                    LABEL.0, LABEL.1
                ))?;
            } else if self.args.dry_run {
                self.say(&format!("would delete {subject}"))?;
            } else {
                complete &=
                    self.deleted(&subject, secrets.delete(name, &DeleteParams::default()).await.map(drop))?;
            }
        }
        Ok(complete)
    }

    /// The operator's, in whatever namespace.
    async fn remove_events(&mut self) -> Result<bool, UninstallError> {
        let events: Api<Event> = Api::all(self.client.clone());
        let by_us = ListParams::default().fields("reportingComponent=lucid-operator").limit(500);
        let mut removed = 0;
        let failed = loop {
            let found = match events.list_metadata(&by_us).await {
                Ok(found) => found.items,
                Err(error) => break Some(error),
            };
            if self.args.dry_run || found.is_empty() {
                removed += if self.args.dry_run { found.len() } else { 0 };
                break None;
            }
            let mut failed = None;
            for event in &found {
                let of_namespace: Api<Event> =
                    Api::namespaced(self.client.clone(), &event.namespace().unwrap_or_default());
                match of_namespace.delete(&event.name_any(), &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    Err(error) => failed = Some(error),
                    Ok(_) => removed += 1,
                }
            }
            if failed.is_some() {
                break failed;
            }
        };
        if removed > 0 {
            let done = if self.args.dry_run { "would delete" } else { "deleted" };
            self.say(&format!(
                "{done} {removed} event{} of lucid-operator",
                if removed == 1 { "" } else { "s" }
            ))?;
        }
        match failed {
            None => Ok(true),
            Some(error) => {
                self.stays("events of lucid-operator", &error)?;
                Ok(false)
            }
        }
    }

    async fn remove_definition(&mut self) -> Result<bool, UninstallError> {
        let subject = format!("CustomResourceDefinition {}", registrations::DEFINITION);
        let definitions = registrations::definitions(&self.client);
        match definitions.get_opt(registrations::DEFINITION).await {
            Ok(None) => self.say(&format!("{subject} is not there")).map(|()| true),
            Ok(Some(_)) if self.args.dry_run => {
                self.say(&format!("would delete {subject} and all Auditors")).map(|()| true)
            }
            Ok(Some(_)) => {
                let deleted = definitions.delete(registrations::DEFINITION, &DeleteParams::default()).await;
                self.deleted(&format!("{subject} and all Auditors"), deleted.map(drop))
            }
            Err(error) => self.stays(&subject, &error).map(|()| false),
        }
    }

    fn deleted(&mut self, subject: &str, result: kube::Result<()>) -> Result<bool, UninstallError> {
        match result {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.say(&format!("{subject} is not there")).map(|()| true)
            }
            Err(error) => self.stays(subject, &error).map(|()| false),
            Ok(()) => self.say(&format!("deleted {subject}")).map(|()| true),
        }
    }

    fn stays(&mut self, subject: &str, error: &kube::Error) -> Result<(), UninstallError> {
        self.say(&format!("left {subject}: {}", lucid_process::with_causes(error)))
    }

    fn say(&mut self, line: &str) -> Result<(), UninstallError> {
        writeln!(self.out, "{line}").and_then(|()| self.out.flush()).context(WriteSnafu)
    }
}
