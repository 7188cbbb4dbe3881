//! cert-manager's controller and cainjector beside the control plane.

use std::{fs, path::Path};

use kube::Client;
use snafu::ResultExt as _;

use crate::{
    Cluster, Error,
    binaries::{Binaries, Component},
    error::failed_to,
    layout::ADMIN_KUBECONFIG,
    readiness,
};

/// One of cert-manager's programs: our word for it, and the name that it runs and logs under.
pub(crate) type Part = (&'static str, &'static str);

pub(crate) const CONTROLLER: Part = ("controller", "cert-manager-controller");
pub(crate) const CAINJECTOR: Part = ("cainjector", "cert-manager-cainjector");

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Path that succeeds once the definitions are served.
const KINDS: &str = "/apis/cert-manager.io/v1/certificates?limit=1";
/// Log text of a part that has synced its caches.
const READY: &str = "ready";

/// Installs the definitions, and returns when each of these parts is ready.
pub(crate) async fn start(cluster: &mut Cluster, binaries: &Binaries, parts: &[Part]) -> Result<(), Error> {
    let path = binaries.path(Component::CertManagerKinds);
    let kinds = fs::read_to_string(&path)
        .with_whatever_context(|_| failed_to("read the definitions of cert-manager's kinds,", &path))?;
    for definition in kinds.trim_start_matches("---\n").split("\n---\n") {
        create(&cluster.client(), definition).await?;
    }
    let client = cluster.client();
    readiness::answers(cluster, Component::ApiServer, &client, KINDS).await?;

    let kubeconfig = cluster.folder.path().join(ADMIN_KUBECONFIG).display().to_string();
    for (word, name) in parts {
        let args = [(*word).to_owned(), kubeconfig.clone()];
        cluster.run_as(name, Component::CertManager, binaries, &args)?;
    }
    for (_, name) in parts {
        let log = cluster.folder.log(name);
        readiness::until(cluster, name, || is_ready(&log)).await?;
    }
    Ok(())
}

async fn create(client: &Client, definition: &str) -> Result<(), Error> {
    let request = http::Request::post(DEFINITIONS).header(http::header::CONTENT_TYPE, "application/yaml");
    let request = request.body(definition.as_bytes().to_vec()).map_err(kube::Error::HttpError);
    let created = match request {
        Ok(request) => client.request_text(request).await,
        Err(error) => Err(error),
    };
    created.whatever_context("failed to make the definitions of cert-manager's kinds")?;
    Ok(())
}

fn is_ready(log: &Path) -> impl Future<Output = Result<(), String>> + use<> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let ready = text.lines().any(|line| line == READY);
    std::future::ready(if ready { Ok(()) } else { Err(format!("its log has no line {READY:?}")) })
}
