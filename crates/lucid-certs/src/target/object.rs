//! Trust bundles in objects of the API server.

use std::{collections::BTreeSet, fmt};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures::{future::BoxFuture, stream::BoxStream};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta, Patch, PatchParams},
    core::DynamicResourceScope,
    runtime::events::{EventType, Recorder},
};
use serde_json::{Value, json};

use crate::{
    bundle::TrustBundle,
    events,
    target::{Reading, Slot, TargetError, TrustTarget, field_path::FieldPath, fields::BundleFields},
    watch,
};

/// A trust bundle in an object of the API server.
///
/// # Ownership
///
/// The bundle is written by server-side apply, and nothing else is applied: all other fields keep their
/// values and owners, and owners that apply the object without a bundle leave ours in place. Bundles set by
/// other field managers are taken over by force. The patch carries the `uid` and `resourceVersion` of the
/// reading, so it fails if the object or a webhook was changed or deleted in between.
///
/// The field manager must be exclusive to the target, because server-side apply removes fields that a manager
/// no longer applies. An operator that applies a whole MutatingWebhookConfiguration as `my-operator` must
/// give its targets another name, such as `my-operator-certs`. For the same reason, create only one target
/// per object.
///
/// Other users of server-side apply cannot remove a webhook that carries our bundle, or the conversion of a
/// definition: the API server keeps our field, and rejects the incomplete remainder as invalid. Updates such
/// as `kubectl replace`, or `kubectl apply` without `--server-side`, can remove them.
///
/// # Permissions
///
/// `get`, `list`, `watch` and `patch` on the object; `resourceNames` is sufficient.
///
/// ```no_run
/// # use lucid_certs::Certificates;
/// # use lucid_certs::target::ObjectTarget;
/// # fn with_targets(certificates: Certificates, client: kube::Client) -> Certificates {
/// const MANAGER: &str = "my-operator-certs";
/// certificates.with_targets([
///     ObjectTarget::mutating_webhooks(client.clone(), MANAGER, "my-operator"),
///     ObjectTarget::crd_conversion(client.clone(), MANAGER, "widgets.example.com"),
///     ObjectTarget::config_map(client, MANAGER, "my-namespace", "my-ca"),
/// ])
/// # }
/// ```
#[derive(Clone)]
pub struct ObjectTarget {
    /// Kind, namespace and name.
    name: String,
    client: Client,
    resource: ApiResource,
    namespace: Option<String>,
    object: String,
    field_manager: String,
    fields: BundleFields,
    recorder: Option<Recorder>,
}

impl ObjectTarget {
    /// Creates a target for `webhooks[].clientConfig.caBundle` of a MutatingWebhookConfiguration, of all webhooks, including
    /// ones that are added later. The API server accepts any bytes there, such as the placeholder `Cg==`; calls then fail.
    #[must_use]
    pub fn mutating_webhooks(client: Client, field_manager: &str, name: &str) -> Self {
        Self::new(client, BundleFields::Mutating, None, name, field_manager)
    }

    /// Creates a target for `webhooks[].clientConfig.caBundle` of a ValidatingWebhookConfiguration; see
    /// [`mutating_webhooks`](Self::mutating_webhooks).
    #[must_use]
    pub fn validating_webhooks(client: Client, field_manager: &str, name: &str) -> Self {
        Self::new(client, BundleFields::Validating, None, name, field_manager)
    }

    /// Creates a target for `spec.conversion.webhook.clientConfig.caBundle` of a CustomResourceDefinition,
    /// such as `widgets.example.com`. A definition with a conversion strategy other than `Webhook` reads as
    /// absent.
    ///
    /// Omit the field from the manifest. The API server rejects an update that replaces a valid bundle by an
    /// invalid one. However, a definition *created* with an invalid bundle, such as the placeholder `Cg==`,
    /// is not established (reason `InvalidCABundle`) and not served until the bundle is replaced.
    #[must_use]
    pub fn crd_conversion(client: Client, field_manager: &str, name: &str) -> Self {
        Self::new(client, BundleFields::Conversion, None, name, field_manager)
    }

    /// Creates a target for the `spec.caBundle` of an APIService, such as `v1.widgets.example.com`. An
    /// APIService without `spec.service` is served by the API server itself and reads as absent. One with
    /// `spec.insecureSkipTLSVerify` is rejected as [`TargetError::Unfit`](crate::target::TargetError::Unfit).
    #[must_use]
    pub fn api_service(client: Client, field_manager: &str, name: &str) -> Self {
        Self::new(client, BundleFields::ApiService, None, name, field_manager)
    }

    /// Creates a target for the key `ca.crt` of a ConfigMap, which holds the bundle as text. The target does not create the
    /// ConfigMap; it reads as absent until then.
    #[must_use]
    pub fn config_map(client: Client, field_manager: &str, namespace: &str, name: &str) -> Self {
        Self::new(client, BundleFields::Data("ca.crt".to_owned()), Some(namespace), name, field_manager)
    }

    /// Creates a target for the `spec.trustBundle` of a ClusterTrustBundle (Kubernetes 1.37), from which pods project trust
    /// anchors into volumes. The target does not create it; it reads as absent until then.
    ///
    /// The API server accepts CAs only, so that the certificates must come from a source with a CA. A bundle with a
    /// `spec.signerName` also requires the permission `attest` on the signer.
    #[must_use]
    pub fn cluster_trust_bundle(client: Client, field_manager: &str, name: &str) -> Self {
        Self::new(client, BundleFields::ClusterTrustBundle, None, name, field_manager)
    }

    pub(crate) fn new(
        client: Client,
        fields: BundleFields,
        namespace: Option<&str>,
        name: &str,
        field_manager: &str,
    ) -> Self {
        let resource = fields.resource();
        let parts = [Some(&*resource.kind), namespace, Some(name)];
        Self {
            name: parts.into_iter().flatten().collect::<Vec<_>>().join("/"),
            namespace: namespace.map(str::to_owned),
            object: name.to_owned(),
            field_manager: field_manager.to_owned(),
            fields,
            recorder: None,
            client,
            resource,
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match &self.namespace {
            None => Api::all_with(self.client.clone(), &self.resource),
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &self.resource),
        }
    }

    /// Reports contention as an event `TrustBundleContended` about the object, in its namespace or, for
    /// cluster-scoped objects, in `default`. Requires `create` and `patch` on `events` of `events.k8s.io`
    /// there.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    pub(crate) async fn get(&self) -> Result<Option<DynamicObject>, TargetError> {
        // Without a resourceVersion, a GET is a quorum read and never served from a stale cache.
        self.api::<DynamicObject>().get_opt(&self.object).await.map_err(|error| self.api_error("get", error))
    }

    pub(crate) fn reading(&self, object: &DynamicObject) -> Result<Reading, TargetError> {
        let unfit = |problem| TargetError::Unfit { target: self.name.clone(), problem };
        let names = self.fields.slots(&object.data).map_err(unfit)?;
        if names.is_empty() {
            return Ok(Reading::absent());
        }
        let paths: Vec<_> = names.iter().map(|name| self.fields.path(name)).collect();

        let managers = object.metadata.managed_fields.as_deref().unwrap_or_default();
        let mut other_owners = BTreeSet::new();
        // Without managedFields, ownership cannot be tracked.
        let mut is_owned = managers.is_empty();
        for entry in managers {
            let Some(fields) = entry.fields_v1.as_ref().map(|fields| &fields.0) else { continue };
            let manager = entry.manager.as_deref().unwrap_or_default();
            if manager != self.field_manager {
                if paths.iter().any(|path| path.is_in(fields)) {
                    other_owners.insert(manager.to_owned());
                }
            } else if entry.operation.as_deref() == Some("Apply") {
                if !paths.iter().all(|path| path.covers(fields)) {
                    return Err(unfit(format!(
                        "the field manager {manager} also applies other fields, which the next write would \
                         remove: give the target a field manager of its own"
                    )));
                }
                is_owned |= paths.iter().all(|path| path.is_in(fields));
            }
        }

        let content =
            |path: &FieldPath| self.decode(path.get(&object.data).and_then(Value::as_str).unwrap_or(""));
        let slots = names.iter().zip(&paths).map(|(name, path)| (name.clone(), content(path)));
        let ObjectMeta { uid, resource_version, .. } = &object.metadata;
        let [uid, resource_version] = [uid, resource_version].map(|it| it.as_deref().unwrap_or_default());
        let reading = Reading::present(format!("{uid}/{resource_version}"), slots);
        let other_owners = other_owners.into_iter().collect();
        Ok(Reading { stale: !is_owned, other_owners, ..reading })
    }

    /// Writes `wanted` to its fields, under the conditions of [`TrustTarget::write`]. Must include all fields
    /// of the reading, because server-side apply removes the others.
    pub(crate) async fn apply(&self, wanted: &[Slot], version: &str) -> Result<Reading, TargetError> {
        let (uid, resource_version) = split_version(version);
        let bundles = wanted.iter().map(|slot| (&*slot.name, self.encode(slot.pem()))).collect();
        let mut applied = self.fields.applied(bundles);
        applied["apiVersion"] = json!(self.resource.api_version);
        applied["kind"] = json!(self.resource.kind);
        applied["metadata"] = json!({ "name": self.object, "uid": uid, "resourceVersion": resource_version });
        let params = PatchParams::apply(&self.field_manager).force();
        match self.api::<DynamicObject>().patch(&self.object, &params, &Patch::Apply(&applied)).await {
            Ok(object) => self.reading(&object),
            // A forced apply has no ownership conflicts: 409 concerns uid or resourceVersion.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                Err(TargetError::Changed { target: self.name.clone() })
            }
            Err(kube::Error::Api(status)) if status.code == 422 => {
                Err(TargetError::Unfit { target: self.name.clone(), problem: status.message })
            }
            Err(error) => Err(self.api_error("write", error)),
        }
    }

    fn encode(&self, pem: &[u8]) -> String {
        if self.fields.is_text() {
            String::from_utf8_lossy(pem).into_owned()
        } else {
            BASE64_STANDARD.encode(pem)
        }
    }

    /// Decodes base64. Invalid base64, which the API server rejects, is returned as is and does not parse as
    /// PEM.
    fn decode(&self, content: &str) -> Vec<u8> {
        let decoded = if self.fields.is_text() { None } else { BASE64_STANDARD.decode(content).ok() };
        decoded.unwrap_or_else(|| content.as_bytes().to_vec())
    }

    fn api_error(&self, action: &'static str, source: kube::Error) -> TargetError {
        TargetError::Api { action, target: self.name.clone(), source: Box::new(source) }
    }

    pub(crate) fn reference(&self, uid: Option<String>) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.resource.api_version.clone()),
            kind: Some(self.resource.kind.clone()),
            name: Some(self.object.clone()),
            namespace: self.namespace.clone(),
            uid,
            ..ObjectReference::default()
        }
    }
}

impl TrustTarget for ObjectTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&self) -> BoxFuture<'_, Result<Reading, TargetError>> {
        Box::pin(async {
            match self.get().await? {
                Some(object) => self.reading(&object),
                None => Ok(Reading::absent()),
            }
        })
    }

    fn write<'a>(
        &'a self,
        bundle: &'a TrustBundle,
        reading: &'a Reading,
    ) -> BoxFuture<'a, Result<Reading, TargetError>> {
        Box::pin(async {
            let Some(version) = reading.version() else { return Ok(Reading::absent()) };
            let pem = bundle.to_pem();
            let wanted: Vec<_> = reading.slots.iter().map(|slot| Slot::new(&*slot.name, &*pem)).collect();
            self.apply(&wanted, version).await
        })
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        // Metadata only, because only the fact of a change matters.
        let api = self.api::<PartialObjectMeta<DynamicObject>>();
        watch::changes(api, watch::only(&self.object), self.name.clone())
    }

    fn report_contention<'a>(&'a self, reading: &'a Reading) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let Some(recorder) = &self.recorder else { return };
            let owners = match &*reading.other_owners {
                [] => "unknown".to_owned(),
                owners => owners.join(", "),
            };
            let note = format!(
                "another client keeps overwriting the trust bundle of {}, which is restored once a minute; calls fail \
                 meanwhile. Remove caBundle from the manifests that it applies, or let only one client manage it. \
                 Field managers that own it: {owners}",
                self.name
            );
            let uid = reading.version().map(|version| split_version(version).0.to_owned());
            let object = self.reference(uid);
            events::publish(recorder, EventType::Warning, "TrustBundleContended", "Restore", note, &object)
                .await;
        })
    }
}

impl fmt::Debug for ObjectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectTarget")
            .field("name", &self.name)
            .field("field_manager", &self.field_manager)
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

/// Splits the precondition of a write into `uid` and `resourceVersion`. The `uid` is required because server-side
/// apply would recreate a deleted object regardless of its `resourceVersion`.
fn split_version(version: &str) -> (&str, &str) {
    version.split_once('/').unwrap_or(("", version))
}
