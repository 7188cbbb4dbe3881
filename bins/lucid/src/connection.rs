//! Cluster selection with kubectl's options.

use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::error::{Result, ResultExt, usage_error};

/// Cluster selection with kubectl's options. By default KUBECONFIG or ~/.kube/config, or in a cluster the pod's service
/// account.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ConnectionArgs {
    /// Path of the kubeconfig, instead of the files in KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig, instead of the current one.
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
}

/// Options of commands on a cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// Namespace of the operator.
    #[arg(
        long,
        short,
        env = "LUCID_NAMESPACE",
        value_name = "NAME",
        default_value = "lucid-system",
        global = true
    )]
    #[arg(value_parser = lucid_shared::parse_namespace)]
    pub(crate) namespace: String,
}

impl ClusterArgs {
    pub(crate) async fn client(&self) -> Result<Client> {
        self.connection.reach().await
    }
}

impl ConnectionArgs {
    /// Returns a client, after a request to the API server.
    pub(crate) async fn reach(&self) -> Result<Client> {
        let connect = async {
            let client = self.client().await?;
            match client.apiserver_version().await {
                // Any response will do: clusters may restrict the discovery of the version.
                Ok(_) | Err(kube::Error::Api(_)) => Ok(client),
                Err(error) => Err(error),
            }
        };
        connect.await.failed_to("reach the API server (in the cluster, or by KUBECONFIG)").usage()
    }

    async fn client(&self) -> Result<Client, kube::Error> {
        let Self { kubeconfig, context } = self;
        if kubeconfig.is_none() && context.is_none() {
            return Client::try_default().await;
        }
        let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
        let config = match kubeconfig {
            Some(path) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?,
            None => Config::from_kubeconfig(&options).await?,
        };
        Client::try_from(config)
    }

    /// Returns the namespace of the context. `None` if the context has none, or if neither `--kubeconfig` nor
    /// `--context` is given and no kubeconfig can be read.
    pub(crate) fn namespace(&self) -> Result<Option<String>> {
        let path = self.kubeconfig.as_ref();
        let config = match path.map_or_else(Kubeconfig::read, Kubeconfig::read_from) {
            // Offline commands work without a kubeconfig.
            Err(_) if path.is_none() && self.context.is_none() => return Ok(None),
            read => {
                let what = path.map_or("the kubeconfig".to_owned(), |path| path.display().to_string());
                read.failed_to(format_args!("read {what}")).usage()?
            }
        };
        let Some(name) = self.context.as_ref().or(config.current_context.as_ref()) else { return Ok(None) };
        match config.contexts.iter().find(|it| it.name == *name) {
            Some(found) => Ok(found.context.as_ref().and_then(|it| it.namespace.clone())),
            None if self.context.is_none() => Ok(None),
            None => {
                let present: Vec<_> = config.contexts.iter().map(|it| it.name.as_str()).collect();
                let present = present.join(", ");
                Err(usage_error(format!(
                    "failed to find context {name:?} in the kubeconfig; it has {present}"
                )))
            }
        }
    }
}
