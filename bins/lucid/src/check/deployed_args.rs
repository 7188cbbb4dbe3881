//! Determines the options of the operator and the validator from their Deployments or StatefulSets.

use std::fmt::Debug;

use clap::Args;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::{Api, Client, Resource};
use lucid_shared::options::{InjectionArgs, OperatorArgs, ServeArgs};
use lucid_shared::serving::{NAME_LABEL, OPERATOR, Program, VALIDATOR};
use serde::de::DeserializeOwned;

use super::report::{Check, Status, Unread};
use crate::workload::{Kind, Workload, parse};

/// Options and state of a deployed program.
pub(super) struct Deployed<A> {
    pub(super) args: A,
    /// `true` if the options come from its Deployment or StatefulSet. Otherwise the settings of the registration are
    /// unknown.
    pub(super) is_known: bool,
    /// `true` if a Deployment or StatefulSet was found.
    pub(super) is_deployed: bool,
    /// ServiceAccount of its pods; `None` if its options are unknown.
    pub(super) account: Option<String>,
    pub(super) check: Check,
}

impl Deployed<OperatorArgs> {
    /// Reads the operator's options. Without a Deployment or StatefulSet, `own` applies.
    ///
    /// # Errors
    ///
    /// Returns an error if the defaults contradict each other.
    pub(super) async fn operator(
        client: &Client,
        namespace: &str,
        own: &InjectionArgs,
    ) -> Result<Self, String> {
        let mut args: OperatorArgs = parse(OPERATOR, &in_namespace(namespace))?;
        args.common.injection = own.clone();
        Ok(Self::find(client, OPERATOR, "operator", namespace, args).await)
    }
}

impl Deployed<ServeArgs> {
    /// Reads the options of a separate validator, likewise.
    ///
    /// # Errors
    ///
    /// Returns an error if the defaults contradict each other.
    pub(super) async fn validator(
        client: &Client,
        namespace: &str,
        own: &InjectionArgs,
    ) -> Result<Self, String> {
        let program = VALIDATOR;
        let defaults = parse(program, &in_namespace(namespace))?;
        let args = ServeArgs { injection: own.clone(), ..defaults };
        Ok(Self::find(client, program, "validator", namespace, args).await)
    }
}

fn in_namespace(namespace: &str) -> [String; 1] {
    [format!("--namespace={namespace}")]
}

impl<A: Args> Deployed<A> {
    async fn find(client: &Client, program: Program, check: &'static str, namespace: &str, args: A) -> Self {
        let name = program.name;
        let without = |is_deployed, check| Self { args, is_known: false, is_deployed, account: None, check };
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
            let check = Check::new(check, Status::Warning, found)
                .action(format!("set --namespace, or pass the options of `{name} run`"));
            return without(false, check);
        };
        match workload.deployed_args(program) {
            Ok((args, unknown)) => {
                let has_conflict = workloads.iter().filter(|it| it.wanted > 0).count() > 1;
                let check = state(program, check, workload, has_conflict, &unknown);
                let account = Some(workload.service_account().to_owned());
                Self { args, is_known: true, is_deployed: true, account, check }
            }
            Err(error) => {
                let found = format!("failed to read the options of {workload}: {error}");
                let check =
                    Check::new(check, Status::Failed, found).action("use lucid of the deployed version");
                without(true, check)
            }
        }
    }
}

/// Returns the Deployment and the StatefulSet of this name, if they exist.
async fn workloads(client: &Client, namespace: &str, name: &str) -> Result<Vec<Workload>, Unread> {
    let deployment = get::<Deployment>(client, Kind::Deployment, namespace, name).await?;
    match get::<StatefulSet>(client, Kind::StatefulSet, namespace, name).await {
        Ok(stateful_set) => Ok(deployment.into_iter().chain(stateful_set).collect()),
        Err(unread) => deployment.map(|it| vec![it]).ok_or(unread),
    }
}

async fn get<K>(client: &Client, kind: Kind, namespace: &str, name: &str) -> Result<Option<Workload>, Unread>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug,
    Workload: From<K>,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let permission = format!("get {} in namespace {namespace}", kind.resource());
    let found = api.get_opt(name).await.map_err(|error| Unread::of(&error, permission))?;
    Ok(found.map(Workload::from))
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
        Check::new(check, Status::Failed, found).action(action)
    } else if has_conflict {
        let found = format!(
            "{found}; a StatefulSet of that name exists as well, and both write the same registration"
        );
        Check::new(check, Status::Warning, found).action("scale one of them to 0")
    } else if !unknown.is_empty() {
        let found = format!("{found}; values that are not in the manifest: {}", unknown.join(", "));
        Check::new(check, Status::Warning, found)
            .action("results about chains may be wrong for these settings")
    } else if tag
        .as_deref()
        .is_some_and(|tag| tag.starts_with(|it: char| it.is_ascii_digit()) && tag != version)
    {
        let found = format!("{found}; this command is {version} and may plan different chains");
        Check::new(check, Status::Warning, found).action("use lucid of the deployed version")
    } else if ready < wanted {
        Check::new(check, Status::Warning, found)
    } else {
        Check::new(check, Status::Ok, found)
    }
}
