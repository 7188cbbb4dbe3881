//! Clients of a cluster on this machine. They never use a proxy of the environment.

use kube::{
    Client, Config,
    config::{AuthInfo, Kubeconfig},
};
use snafu::ResultExt as _;

use crate::{Error, pki::Authority};

/// Creates a client. Does not use [`Config::from_custom_kubeconfig`], which applies `HTTPS_PROXY` to every server.
pub(crate) fn with_user(server: &str, authority: &Authority, user: AuthInfo) -> Result<Client, Error> {
    let failed = || format!("failed to make a client of {server}");
    let uri = http::Uri::try_from(server);
    let mut config = Config::new(uri.with_whatever_context(|_| failed())?);
    config.root_cert = Some(vec![authority.certificate_der()]);
    config.auth_info = user;
    // Tests see each response of the API server, including 429 and 503.
    config.default_retry = false;
    Client::try_from(config).with_whatever_context(|_| failed())
}

pub(crate) fn user_of(kubeconfig: &str) -> Result<AuthInfo, Error> {
    let kubeconfig =
        Kubeconfig::from_yaml(kubeconfig).whatever_context("failed to read the kubeconfig of the cluster")?;
    Ok(kubeconfig.auth_infos.into_iter().find_map(|user| user.auth_info).unwrap_or_default())
}
