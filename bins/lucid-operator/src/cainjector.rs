//! `lucid-operator cainjector`: injects CAs by annotation in clusters without cert-manager.

use std::net::SocketAddr;
use std::str::FromStr;

use kube::{Client, Config};
use lucid_certs::injector::CaInjector;
use lucid_shared::serving::rbac::{Need, Permission, watch};
use lucid_shared::{Error, parse_namespace, parse_object_name};
use lucid_webhook::{AdminServer, Readiness};
use prometheus_client::registry::Registry;

/// Key of the CA in the Secret that replaces OpenShift's service CA.
const CA_KEY: &str = "ca.crt";
/// Opts in to Secrets of all namespaces.
const ALL_NAMESPACES: &str = "*";
/// Default Secret of `lucid-operator run`.
const CA_SECRET: &str = "lucid-operator-ca";

/// Options of `lucid-operator cainjector`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CainjectorArgs {
    /// Namespace that Lucid runs in.
    #[arg(long, env = "LUCID_NAMESPACE", value_name = "NAME", default_value = "lucid-system")]
    #[arg(value_parser = parse_namespace)]
    namespace: String,

    /// Address on which /healthz, /readyz and /metrics are served over plain HTTP.
    #[arg(long, env = "LUCID_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    #[arg(value_parser = lucid_shared::parse_address)]
    admin_listen: SocketAddr,

    /// Namespaces whose Secrets may be used as CA sources, such as `web,shop`; `*` allows all. By default the namespace
    /// that Lucid runs in.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    #[arg(value_parser = parse_secret_namespace)]
    secret_namespaces: Option<Vec<String>>,

    /// Secret, as NAMESPACE/NAME, whose `ca.crt` is injected for OpenShift's annotation inject-cabundle; `none` ignores
    /// the annotation. By default Lucid's own certificate authority.
    #[arg(long, value_name = "SECRET")]
    openshift_ca: Option<OpenshiftCa>,

    /// Namespaces searched for cert-manager's cainjector: those of its Deployment and of its leader election Lease.
    #[arg(long, value_name = "NAMESPACES")]
    #[arg(value_delimiter = ',', default_value = "kube-system,cert-manager", value_parser = parse_namespace)]
    cert_manager_namespaces: Vec<String>,

    /// Run even if cert-manager's cainjector, which writes the same fields, is running.
    #[arg(long, value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    beside_cert_manager: bool,
}

impl CainjectorArgs {
    /// RBAC permissions that these options need. Secrets are left out: annotations decide which ones are read, and
    /// access may be granted by name.
    fn needs(&self) -> Vec<Need> {
        const INJECT: [&str; 4] = ["get", "list", "watch", "patch"];
        const EFFECT: &str = "no CAs are injected into them, and the program does not become ready";
        let mut needs: Vec<_> = [
            ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
            ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
            ("apiextensions.k8s.io", "customresourcedefinitions"),
            ("apiregistration.k8s.io", "apiservices"),
        ]
        .map(|(group, resource)| Need::vital(Permission::new(&INJECT, group, resource), EFFECT))
        .into();
        if self.openshift_ca != Some(OpenshiftCa::None) {
            needs.push(Need::vital(Permission::new(&INJECT, "", "configmaps"), EFFECT));
        }
        if !self.beside_cert_manager {
            for namespace in &self.cert_manager_namespaces {
                let permission = Permission::new(&["list"], "apps", "deployments").within(namespace);
                needs.push(Need::vital(
                    permission,
                    "a running cainjector of cert-manager cannot be detected, and the program does not become ready",
                ));
            }
        }
        let events = Permission::new(&["create", "patch"], "events.k8s.io", "events");
        needs.push(Need::useful(events, "events about annotations are not recorded"));
        needs
    }
}

fn parse_secret_namespace(text: &str) -> Result<String, String> {
    if text == ALL_NAMESPACES {
        return Ok(text.to_owned());
    }
    parse_namespace(text).map_err(|error| format!("{error}; `{ALL_NAMESPACES}` is all namespaces"))
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OpenshiftCa {
    None,
    Secret { namespace: String, name: String },
}

impl FromStr for OpenshiftCa {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self::None);
        }
        text.split_once('/')
            .and_then(|(namespace, name)| {
                let (namespace, name) = (parse_namespace(namespace).ok()?, parse_object_name(name).ok()?);
                Some(Self::Secret { namespace, name })
            })
            .ok_or("expected NAMESPACE/NAME of a Secret, or none")
    }
}

/// Runs the injector until SIGTERM or SIGINT.
///
/// # Errors
///
/// Returns an error if the injector cannot start, for example because a cainjector of cert-manager is running. An
/// unreachable API server is not an error: requests are retried until it answers.
pub(crate) async fn cainjector(args: CainjectorArgs) -> Result<(), Error> {
    let shutdown = lucid_shared::shutdown_signal();
    let shutdown = shutdown.map_err(Error::with_context("failed to listen for signals"))?;
    let unknown = Error::with_context("failed to find the API server (in the cluster, or by KUBECONFIG)");
    let config = Config::infer().await.map_err(unknown)?;
    let unusable = Error::with_context("failed to create a client of the API server");
    let client = Client::try_from(config.clone()).map_err(unusable)?;
    let admin = AdminServer::bind(args.admin_listen).await;
    let admin = admin.map_err(Error::with_context("LUCID_ADMIN_LISTEN"))?;
    tracing::info!(admin = %admin.local_addr(), "listening");

    let readiness = Readiness::default();
    let injecting = readiness.condition("all objects listed and no conflicting injector");
    let mut registry = Registry::with_prefix("lucid");
    tokio::spawn(watch(client.clone(), args.needs(), &mut registry));
    let mut injector = CaInjector::new(client)
        .with_api_server_ca(&config)
        .with_metrics(&mut registry)
        .with_cert_manager_namespaces(match args.beside_cert_manager {
            true => Vec::new(),
            false => args.cert_manager_namespaces,
        });
    let namespaces = args.secret_namespaces.unwrap_or_else(|| vec![args.namespace.clone()]);
    if !namespaces.iter().any(|it| it == ALL_NAMESPACES) {
        injector = injector.with_secret_namespaces(namespaces);
    }
    match args.openshift_ca {
        Some(OpenshiftCa::None) => {}
        Some(OpenshiftCa::Secret { namespace, name }) => {
            injector = injector.with_openshift_ca(&namespace, &name, CA_KEY);
        }
        None => injector = injector.with_openshift_ca(&args.namespace, CA_SECRET, CA_KEY),
    }
    tokio::spawn(admin.serve(readiness, registry));
    tokio::spawn(injecting.follow(injector.ready()));
    injector.run(shutdown).await.map_err(Error::with_context(
        "another cainjector already manages these fields: remove one of them; `--beside-cert-manager` allows both with \
         cert-manager, and `--openshift-ca none` leaves OpenShift's annotation to OpenShift",
    ))?;
    tracing::info!("stopped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ca_in_place_of_openshifts_is_a_secret_or_none() {
        let secret = OpenshiftCa::Secret { namespace: "web".to_owned(), name: "ca".to_owned() };
        assert_eq!("web/ca".parse(), Ok(secret));
        assert_eq!("none".parse(), Ok(OpenshiftCa::None));
        for text in ["", "ca", "web/", "/ca", "web/ca/x", "Web/ca"] {
            let refused = text.parse::<OpenshiftCa>();
            assert_eq!(refused, Err("expected NAMESPACE/NAME of a Secret, or none"), "{text}");
        }
    }
}
