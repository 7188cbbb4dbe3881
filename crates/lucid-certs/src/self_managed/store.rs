//! Secrets shared by several replicas.

use std::fmt;

use aws_lc_rs::digest;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::{Api, Client, Resource, ResourceExt, api::ObjectMeta};
use lucid_text::with_causes;

use crate::{
    redacted,
    source::{Reason, SourceError},
};

/// A Secret of type `kubernetes.io/tls`, written by compare-and-swap.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    api: Api<Secret>,
    namespace: String,
    name: String,
}

impl Store {
    pub(crate) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the current Secret by a quorum read.
    pub(crate) async fn get(&self) -> Result<Option<Secret>, SourceError> {
        redacted::get_opt(&self.api, &self.name).await.map_err(|error| self.failed_to("get", &error))
    }

    /// Applies `fill` to `before`, or to a new Secret, and writes the result. Returns `None` if the Secret
    /// was changed, created or deleted since `before` was read.
    pub(crate) async fn put(
        &self,
        before: Option<&Secret>,
        fill: impl FnOnce(&mut Secret),
    ) -> Result<Option<Secret>, SourceError> {
        let mut secret = before.cloned().unwrap_or_else(|| Secret {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            type_: Some("kubernetes.io/tls".to_owned()),
            ..Secret::default()
        });
        fill(&mut secret);
        let (action, written) = match before {
            // Conditional on the resourceVersion in `secret`.
            Some(_) => ("replace", redacted::replace(&self.api, &self.name, &secret).await),
            None => {
                let manager = manager_of(&secret);
                ("create", redacted::apply(&self.api, &self.name, &manager, &secret).await)
            }
        };
        match written {
            Ok(secret) => Ok(Some(secret)),
            Err(kube::Error::Api(status))
                if status.is_conflict()
                    || status.is_already_exists()
                    || status.is_not_found() && before.is_some() =>
            {
                Ok(None)
            }
            Err(error) => Err(self.failed_to(action, &error)),
        }
    }

    pub(crate) fn reference(&self, secret: Option<&Secret>) -> ObjectReference {
        let mut reference = secret.map(|secret| secret.object_ref(&())).unwrap_or_default();
        reference.api_version = Some(Secret::api_version(&()).into_owned());
        reference.kind = Some(Secret::kind(&()).into_owned());
        reference.namespace = Some(self.namespace.clone());
        reference.name = Some(self.name.clone());
        reference.uid = secret.and_then(ResourceExt::uid);
        reference
    }

    fn failed_to(&self, action: &str, error: &kube::Error) -> SourceError {
        SourceError::new(Reason::Unreadable, format!("failed to {action} {self}: {}", with_causes(error)))
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret {}/{}", self.namespace, self.name)
    }
}

/// Field manager that creates `secret`.
///
/// A Secret is created by server-side apply because RBAC can bind `create` to a name only when the request has the name in
/// its path, which a POST lacks. Each content has its own manager: of two replicas that create different Secrets at the
/// same time, the second one gets a conflict.
fn manager_of(secret: &Secret) -> String {
    let certificate = secret.data.as_ref().and_then(|data| data.get("tls.crt"));
    let digest = digest::digest(&digest::SHA256, certificate.map_or(&[], |bytes| &bytes.0));
    let start: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("lucid-certs-{start}")
}
