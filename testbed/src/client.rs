//! Clients of a cluster, which is on this machine: no proxy, whatever the environment says.

use kube::{
    Client, Config,
    config::{AuthInfo, Kubeconfig},
};
use snafu::ResultExt as _;

use crate::{
    Error,
    error::{ClientSnafu, KubeconfigSnafu},
    pki::Authority,
};

/// Not by [`Config::from_custom_kubeconfig`], which takes a proxy from `HTTPS_PROXY` for every server.
pub(crate) fn with_user(server: &str, authority: &Authority, user: AuthInfo) -> Result<Client, Error> {
    let uri = http::Uri::try_from(server).map_err(|error| kube::Error::HttpError(error.into()));
    let mut config = Config::new(uri.context(ClientSnafu { server })?);
    config.root_cert = Some(vec![authority.certificate_der()]);
    config.auth_info = user;
    // A test sees each answer of the API server, also a 429 or 503.
    config.default_retry = false;
    Client::try_from(config).context(ClientSnafu { server })
}

/// The user of a kubeconfig that has one.
pub(crate) fn user_of(kubeconfig: &str) -> Result<AuthInfo, Error> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).context(KubeconfigSnafu)?;
    Ok(kubeconfig.auth_infos.into_iter().find_map(|user| user.auth_info).unwrap_or_default())
}
