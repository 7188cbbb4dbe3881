//! Sources of injected CAs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    time::SystemTime,
};

use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, PartialObjectMeta},
};
use lucid_text::with_causes;

use super::{
    annotation::{CaReference, ObjectName},
    problem::Problem,
    watch::{CERTIFICATE_CRD, Dependency, certificate_resource},
};
use crate::{bundle::TrustBundle, pem, redacted};

const ALLOW_DIRECT_INJECTION: &str = "cert-manager.io/allow-direct-injection";
const CERTIFICATE_NAME: &str = "cert-manager.io/certificate-name";
const CA_KEY: &str = "ca.crt";

#[derive(Debug)]
pub(super) enum ApiServerCa {
    /// PEM certificates, as in a kubeconfig.
    Pem(Vec<u8>),
    /// File that is read on each use, such as the service account's `ca.crt`.
    File(PathBuf),
}

impl ApiServerCa {
    pub(super) fn of(config: &kube::Config) -> Option<Self> {
        if let Some(path) = &config.root_cert_file {
            return Some(Self::File(path.clone()));
        }
        let certificates = config.root_cert.as_ref()?;
        let pem: String =
            certificates.iter().map(|der| pem::encode_certificate(&der.as_slice().into())).collect();
        Some(Self::Pem(pem.into_bytes()))
    }

    fn read(&self) -> Result<TrustBundle, Problem> {
        match self {
            Self::Pem(pem) => TrustBundle::from_pem(pem),
            Self::File(path) => TrustBundle::from_pem(&fs::read(path).map_err(|error| {
                let path = path.display();
                Problem::unreadable(format!("failed to read the CA of the API server from {path}: {error}"))
            })?),
        }
        .map_err(|error| {
            Problem::unusable(format!(
                "the CA of the API server is not a trust bundle: {}",
                with_causes(&error)
            ))
        })
    }
}

pub(super) struct Authorities {
    pub(super) client: Client,
    /// `None` allows all namespaces.
    pub(super) namespaces: Option<BTreeSet<String>>,
    pub(super) api_server: Option<ApiServerCa>,
    /// Secret and key.
    pub(super) openshift: Option<(ObjectName, String)>,
}

impl Authorities {
    /// Returns the requested bundle without expired certificates. Adds its dependencies to `dependencies`, also on
    /// error.
    pub(super) async fn find(
        &self,
        reference: &CaReference,
        now: SystemTime,
        dependencies: &mut BTreeSet<Dependency>,
    ) -> Result<TrustBundle, Problem> {
        let (bundle, origin) = match reference {
            CaReference::ApiServer => {
                let ca = self.api_server.as_ref().ok_or_else(|| {
                    Problem::not_found(
                        "no CA of the API server is configured, and its client configuration has none",
                    )
                })?;
                (ca.read()?, "the CA of the API server".to_owned())
            }
            CaReference::OpenShift => {
                let (name, key) = self.openshift.as_ref().ok_or_else(|| {
                    Problem::not_found(
                        "no Secret is configured for the annotations of OpenShift's service CA",
                    )
                })?;
                let secret = self.secret(name, dependencies).await?;
                let missing = || Problem::not_found(format!("Secret {name} does not exist"));
                read(&secret.ok_or_else(missing)?, name, key)?
            }
            CaReference::Secret(name) => {
                self.check(&name.namespace)?;
                let secret = self.secret(name, dependencies).await?;
                let is_allowed = |it: &Secret| annotation(it.annotations(), ALLOW_DIRECT_INJECTION) == "true";
                // The message does not disclose whether the Secret exists, because annotating an object requires no
                // permission to read it.
                let secret = secret.filter(is_allowed).ok_or_else(|| {
                    Problem::not_allowed(format!(
                        "Secret {name} does not exist, or lacks the annotation {ALLOW_DIRECT_INJECTION}: \"true\""
                    ))
                })?;
                read(&secret, name, CA_KEY)?
            }
            CaReference::Certificate(certificate) => {
                self.check(&certificate.namespace)?;
                let name = self.secret_of(certificate, dependencies).await?;
                let secret = self.secret(&name, dependencies).await?;
                let is_owned =
                    |it: &Secret| annotation(it.annotations(), CERTIFICATE_NAME) == certificate.name;
                // As above, the message does not disclose whether the Secret exists.
                let secret = secret.filter(is_owned).ok_or_else(|| {
                    Problem::not_allowed(format!(
                        "Secret {name} of Certificate {certificate} does not exist, or lacks the annotation \
                         {CERTIFICATE_NAME}: {}",
                        certificate.name
                    ))
                })?;
                read(&secret, &name, CA_KEY)?
            }
        };
        let expired = || Problem::unusable(format!("{origin} holds only expired certificates"));
        bundle.without_expired(now).ok_or_else(expired)
    }

    fn check(&self, namespace: &str) -> Result<(), Problem> {
        match &self.namespaces {
            Some(allowed) if !allowed.contains(namespace) => {
                let allowed = allowed.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                let problem =
                    format!("CAs of namespace {namespace} are not allowed, expected one of: {allowed}");
                Err(Problem::not_allowed(problem))
            }
            _ => Ok(()),
        }
    }

    async fn secret(
        &self,
        name: &ObjectName,
        dependencies: &mut BTreeSet<Dependency>,
    ) -> Result<Option<Secret>, Problem> {
        dependencies.insert(Dependency::Secret(name.clone()));
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &name.namespace);
        let secret = redacted::get_opt(&api, &name.name).await;
        secret.map_err(|error| Problem::api("get", format_args!("Secret {name}"), &error))
    }

    /// Returns the Secret of a Certificate. Without the Certificate CRD, finds it by the annotation that
    /// cert-manager sets on Secrets.
    async fn secret_of(
        &self,
        certificate: &ObjectName,
        dependencies: &mut BTreeSet<Dependency>,
    ) -> Result<ObjectName, Problem> {
        dependencies.insert(Dependency::CertificateKind);
        if !self.has_certificates().await? {
            return self.secret_without_certificate(certificate, dependencies).await;
        }
        dependencies.insert(Dependency::Certificate(certificate.clone()));
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &certificate.namespace, &certificate_resource());
        let found = api.get_opt(&certificate.name).await;
        let found =
            found.map_err(|error| Problem::api("get", format_args!("Certificate {certificate}"), &error))?;
        let missing = || Problem::not_found(format!("Certificate {certificate} does not exist"));
        let found = found.ok_or_else(missing)?;
        let name = found.data["spec"]["secretName"].as_str().filter(|name| !name.is_empty());
        let unnamed =
            || Problem::not_found(format!("Certificate {certificate} names no Secret in spec.secretName"));
        let name = name.ok_or_else(unnamed)?;
        Ok(ObjectName::new(&certificate.namespace, name))
    }

    async fn has_certificates(&self) -> Result<bool, Problem> {
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(self.client.clone());
        let found = api.get_opt(CERTIFICATE_CRD).await.map_err(|error| {
            Problem::api("get", format_args!("CustomResourceDefinition {CERTIFICATE_CRD}"), &error)
        });
        Ok(found?.is_some())
    }

    async fn secret_without_certificate(
        &self,
        certificate: &ObjectName,
        dependencies: &mut BTreeSet<Dependency>,
    ) -> Result<ObjectName, Problem> {
        let namespace = &certificate.namespace;
        dependencies.insert(Dependency::SecretsOf(namespace.clone()));
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(self.client.clone(), namespace);
        let secrets = api.list(&ListParams::default()).await;
        let secrets = secrets.map_err(|error| {
            Problem::api("list", format_args!("Secrets of namespace {namespace}"), &error)
        })?;
        let is_its = |secret: &PartialObjectMeta<Secret>| {
            annotation(secret.annotations(), CERTIFICATE_NAME) == certificate.name
        };
        let names: Vec<_> =
            secrets.iter().filter(|secret| is_its(secret)).map(ResourceExt::name_any).collect();
        let [name] = &*names else {
            let found = if names.is_empty() { "no Secret" } else { "several Secrets" };
            return Err(Problem::not_found(format!(
                "this cluster has no kind Certificate, and {found} in namespace {namespace} with the annotation \
                 {CERTIFICATE_NAME}: {}; exactly one is expected",
                certificate.name
            )));
        };
        Ok(ObjectName::new(namespace, name))
    }
}

fn annotation<'a>(annotations: &'a BTreeMap<String, String>, key: &str) -> &'a str {
    annotations.get(key).map_or("", String::as_str)
}

/// Returns the bundle under a key, and its description for messages.
fn read(secret: &Secret, name: &ObjectName, key: &str) -> Result<(TrustBundle, String), Problem> {
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    let pem = data.ok_or_else(|| Problem::unusable(format!("Secret {name} has no key {key}")))?;
    let origin = format!("key {key} of Secret {name}");
    let bundle = TrustBundle::from_pem(&pem.0).map_err(|error| {
        Problem::unusable(format!("{origin} is not a trust bundle: {}", with_causes(&error)))
    })?;
    Ok((bundle, origin))
}
