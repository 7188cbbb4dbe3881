//! Determines the options of the operator and the validator from their Deployments or StatefulSets.

use clap::Args;
use kube::Client;
use lucid_shared::options::{InjectionArgs, OperatorArgs, ServeArgs};
use lucid_shared::serving::{NAME_LABEL, OPERATOR, Program, VALIDATOR};

use super::report::{Check, Unread};
use crate::workload::{Kind, Workload, parse};

pub(super) struct Deployed<A> {
    pub(super) args: A,
    pub(super) is_deployed: bool,
    /// ServiceAccount of its pods. `None` if `args` are assumed, because no Deployment or StatefulSet has them.
    pub(super) account: Option<String>,
    pub(super) check: Check,
}

/// Reads the options of the operator and of a separate validator. Without a Deployment or StatefulSet, `own` applies.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    own: &InjectionArgs,
) -> Result<(Deployed<OperatorArgs>, Deployed<ServeArgs>), String> {
    let in_namespace = [format!("--namespace={namespace}")];
    let mut args: OperatorArgs = parse(OPERATOR, &in_namespace)?;
    args.common.injection = own.clone();
    let operator = Deployed::find(client, OPERATOR, "operator", namespace, args).await;
    let args = ServeArgs { injection: own.clone(), ..parse(VALIDATOR, &in_namespace)? };
    Ok((operator, Deployed::find(client, VALIDATOR, "validator", namespace, args).await))
}

impl<A: Args> Deployed<A> {
    /// Returns `true` if `args` are those of the Deployment or StatefulSet.
    pub(super) fn is_known(&self) -> bool {
        self.account.is_some()
    }

    async fn find(client: &Client, program: Program, check: &'static str, namespace: &str, args: A) -> Self {
        let name = program.name;
        let without = |is_deployed, check| Self { args, is_deployed, account: None, check };
        let workloads = match workloads(client, namespace, name).await {
            Err(unread) => return without(false, Check::unread(check, &unread)),
            Ok(workloads) => workloads,
        };
        // A workload with replicas takes precedence over one that is scaled to 0.
        let Some(workload) = workloads.iter().find(|it| it.wanted > 0).or(workloads.first()) else {
            let found = format!(
                "no Deployment or StatefulSet {namespace}/{name} found: assuming the options and the environment of \
                 this command"
            );
            let check = Check::warning(check, found)
                .action(format!("set --namespace, or pass the options of `{name} run`"));
            return without(false, check);
        };
        match workload.deployed_args(program) {
            Ok((args, unknown)) => {
                let has_conflict = workloads.iter().filter(|it| it.wanted > 0).count() > 1;
                let check = state(program, check, workload, has_conflict, &unknown);
                let account = Some(workload.service_account().to_owned());
                Self { args, is_deployed: true, account, check }
            }
            Err(error) => {
                let found = format!("failed to read the options of {workload}: {error}");
                let check = Check::failed(check, found).action("use lucid of the deployed version");
                without(true, check)
            }
        }
    }
}

async fn workloads(client: &Client, namespace: &str, name: &str) -> Result<Vec<Workload>, Unread> {
    let mut workloads = Vec::new();
    for kind in Kind::ALL {
        match kind.api(client, namespace).get_opt(name).await {
            Ok(found) => workloads.extend(found.map(|it| Workload::new(kind, it))),
            // The Deployment suffices.
            Err(_) if !workloads.is_empty() => {}
            Err(error) => {
                let permission = format!("get {} in namespace {namespace}", kind.resource());
                return Err(Unread::of(&error, permission));
            }
        }
    }
    Ok(workloads)
}

fn state(
    program: Program,
    check: &'static str,
    workload: &Workload,
    has_conflict: bool,
    unknown: &[String],
) -> Check {
    let Workload { wanted, ready, .. } = *workload;
    let container = workload.container(program);
    let image = container.and_then(|container| container.image.as_deref()).unwrap_or("no image");
    let found = format!("{workload} has {ready} of {wanted} replicas ready, image {image}");
    let version = env!("CARGO_PKG_VERSION");
    let tag = image.parse::<lucid_notary::ImageReference>().ok().and_then(|it| it.tag().map(str::to_owned));
    if ready == 0 {
        let (namespace, name) = (&workload.namespace, program.name);
        let action = format!("kubectl -n {namespace} describe pods -l {}={name}", NAME_LABEL);
        Check::failed(check, found).action(action)
    } else if has_conflict {
        let found = format!(
            "{found}; a StatefulSet of that name exists as well, and both write the same registration"
        );
        Check::warning(check, found).action("scale one of them to 0")
    } else if !unknown.is_empty() {
        let found = format!("{found}; values that are not in the manifest: {}", unknown.join(", "));
        Check::warning(check, found).action("results about chains may be wrong for these settings")
    } else if tag
        .as_deref()
        .is_some_and(|tag| tag.starts_with(|it: char| it.is_ascii_digit()) && tag != version)
    {
        let found = format!("{found}; this command is {version} and may plan different chains");
        Check::warning(check, found).action("use lucid of the deployed version")
    } else if ready < wanted {
        Check::warning(check, found)
    } else {
        Check::ok(check, found)
    }
}
