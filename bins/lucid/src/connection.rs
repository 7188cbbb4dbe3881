//! Cluster selection with kubectl's options.

use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use snafu::{OptionExt, ResultExt, Snafu};

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

/// Errors of selecting or reaching the cluster.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub(crate) enum ConnectionError {
    /// No API server is configured, or it does not respond.
    #[snafu(display("failed to reach the API server (in the cluster, or by KUBECONFIG): {source}"))]
    Unreachable {
        /// Cause.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// The kubeconfig cannot be read.
    #[snafu(display("failed to read {}: {source}", path.as_ref().map_or("the kubeconfig".to_owned(), |it| it.display().to_string())))]
    Read {
        /// Path, if one was given.
        path: Option<PathBuf>,
        /// Cause.
        #[snafu(source(from(KubeconfigError, Box::new)))]
        source: Box<KubeconfigError>,
    },
    /// The context does not exist.
    #[snafu(display("failed to find context {context:?} in the kubeconfig; it has {}", present.join(", ")))]
    NoContext {
        /// Name of the context.
        context: String,
        /// Contexts in the kubeconfig.
        present: Vec<String>,
    },
}

impl ClusterArgs {
    /// Creates a client of the selected cluster.
    ///
    /// # Errors
    ///
    /// Returns an error if the kubeconfig cannot be used, no cluster is configured, or the API server does not respond.
    pub(crate) async fn client(&self) -> Result<Client, ConnectionError> {
        let client = self.connection.client().await.context(UnreachableSnafu)?;
        match client.apiserver_version().await {
            // Any answer will do: clusters may restrict the discovery of the version.
            Ok(_) | Err(kube::Error::Api(_)) => Ok(client),
            Err(error) => Err(error).context(UnreachableSnafu),
        }
    }
}

impl ConnectionArgs {
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
    pub(crate) fn namespace(&self) -> Result<Option<String>, ConnectionError> {
        let path = &self.kubeconfig;
        let read = path.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        let config = match read {
            // Offline commands work without a kubeconfig.
            Err(_) if path.is_none() && self.context.is_none() => return Ok(None),
            read => read.context(ReadSnafu { path: path.clone() })?,
        };
        let Some(name) = self.context.as_ref().or(config.current_context.as_ref()) else { return Ok(None) };
        let found = config.contexts.iter().find(|it| it.name == *name);
        let found = found.with_context(|| NoContextSnafu {
            context: name.clone(),
            present: config.contexts.iter().map(|it| it.name.clone()).collect::<Vec<_>>(),
        });
        match found {
            Err(_) if self.context.is_none() => Ok(None),
            found => Ok(found?.context.as_ref().and_then(|it| it.namespace.clone())),
        }
    }
}
