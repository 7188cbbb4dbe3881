//! Sources of the serving certificate, and client authentication.

use std::sync::Arc;

use kube::Client;
use lucid_certs::source::{FileSource, SecretSource, watch_bundle};
use lucid_certs::target::Target;
use lucid_certs::{Certificates, ClientCertificates, ServerTls};
use lucid_webhook::Tls;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::Error;
use crate::serving::Program;
use crate::serving::args::ServingArgs;
use crate::serving::certificate_args::Source;

pub(crate) struct Serving {
    pub(crate) tls: Tls,
    pub(crate) certificates: Certificates,
}

impl Serving {
    /// Validates the options. Writes nothing yet.
    pub(crate) async fn new(
        program: Program,
        args: &ServingArgs,
        registry: &mut Registry,
    ) -> Result<Self, Error> {
        let options = &args.certificates;
        let timing = options.timing();
        timing.check(option).map_err(|error| Error::new(error.to_string()))?;
        options.check().map_err(Error::new)?;
        let names = |services: &[&str]| {
            let names = args.serving_names(services);
            names.map_err(Error::with_context("invalid name of the serving certificate"))
        };
        // Other issuers certify only the Service that the API server calls. Some certify only the one named after the
        // program, under which the webhooks are then registered.
        let called = match options.certificates {
            Source::SelfSigned => names(&[program.name, program.service])?,
            // OLM creates the Service and names it after the Deployment.
            Source::Olm => names(&[&format!("{}-service", program.name)])?,
            _ => names(&[program.service])?,
        };
        let certificates = Certificates::new(called).with_timing(timing).with_metrics(registry);
        let certificates = match (options.certificates, program.alternative_service) {
            (Source::CertManager | Source::Secret | Source::Files, Some(service))
                if args.webhook_url.is_none() =>
            {
                certificates.with_alternative_names(names(&[service])?)
            }
            _ => certificates,
        };
        let tls = ServerTls::new(certificates.resolver()).with_min_version(options.tls_min_version);
        let tls = match &options.client_ca {
            None => Tls::from(tls.build().map_err(Error::with_context(TLS))?),
            Some(path) => Tls::from(with_clients(tls, path, &options.client_names).await?),
        };
        Ok(Self { tls, certificates })
    }

    pub(crate) async fn run(
        self,
        program: Program,
        args: &ServingArgs,
        client: Client,
        targets: Vec<Target>,
        shutdown: impl Future<Output = ()>,
    ) {
        let certificates = self.certificates.with_targets(targets);
        let options = &args.certificates;
        let namespace = &args.namespace;
        let secret = &options.certificate_secret(program);
        let publishes = options.publishes_trust();
        let files = match (options.certificates, &options.tls_directory) {
            (Source::SelfSigned, _) => {
                let authority = &options.authority_secret(program);
                let source = match certificates.self_managed(client.clone(), namespace, authority) {
                    Ok(source) => source.with_reporter(program.reporter()),
                    // Unreachable: `new` has validated the timing.
                    Err(error) => return tracing::error!("{error}"),
                };
                let source = match options.certificate_per_replica {
                    true => source,
                    false => source.with_shared_leaf(client, namespace, secret),
                };
                return certificates.run(source, shutdown).await;
            }
            (Source::Olm, None) => Some(FileSource::olm_api_server()),
            (_, Some(directory)) => Some(FileSource::in_directory(directory)),
            (_, None) => None,
        };
        if let Some(files) = files {
            let files = if publishes { files.with_publishing() } else { files };
            return certificates.run(files, shutdown).await;
        }
        let source = SecretSource::new(client, namespace, secret);
        certificates.run(if publishes { source.with_publishing() } else { source }, shutdown).await;
    }
}

const TLS: &str = "failed to set up TLS";

/// Returns the TLS configuration with client authentication, updated when the CAs change.
async fn with_clients(
    tls: ServerTls,
    path: &std::path::Path,
    names: &[String],
) -> Result<watch::Receiver<Arc<rustls::ServerConfig>>, Error> {
    const CLIENT_CA: &str = "LUCID_CLIENT_CA";
    let mut bundles = watch_bundle(path).await.map_err(Error::with_context(CLIENT_CA))?;
    // Clients without a certificate are allowed on some paths; the router enforces the rest.
    let clients = ClientCertificates::optional(bundles.borrow().to_pem().as_bytes());
    let clients = clients.map_err(Error::with_context(CLIENT_CA))?.with_allowed_names(names);
    let configs = tls.with_clients(&clients).watch().map_err(Error::with_context(TLS))?;
    tokio::spawn(async move {
        while bundles.changed().await.is_ok() {
            let bundle = bundles.borrow_and_update().to_pem();
            match clients.replace(bundle.as_bytes()) {
                Ok(()) => tracing::info!("loaded new client CAs"),
                Err(error) => {
                    tracing::error!(%error, "failed to load client CAs; the previous ones stay in use")
                }
            }
        }
    });
    Ok(configs)
}

/// Returns the option, or the fixed value, of a field of `Timing`.
fn option(field: &str) -> Option<&'static str> {
    Some(match field {
        "leaf_lifetime" => "LUCID_CERTIFICATE_LIFETIME",
        "settle" => "--trust-settle",
        "check_interval" => "1m",
        _ => return None,
    })
}
