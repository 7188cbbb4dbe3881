//! A cluster with the manifest applied, and injectors in it.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use lucid_certs::{CertificateAuthority, TrustBundle, injector::CaInjector};
use lucid_e2e::{ClusterExt as _, eventually};
use lucid_testbed::Cluster;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::object::Object;
use crate::common::{TIMEOUT, config_of, kubectl, names, now, objects::Kind};

/// A cluster with the manifest applied, and a client with its permissions.
pub(super) struct Site {
    pub(super) cluster: Cluster,
    pub(super) admin: Client,
    pub(super) restricted: Client,
}

impl Site {
    pub(super) async fn start() -> Self {
        let cluster = Cluster::builder().start().await.unwrap();
        for namespace in ["lucid-system", "web", "other", "cert-manager"] {
            cluster.create_namespace(namespace, &[]).await.unwrap();
        }
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/cainjector.yaml");
        let applied = cluster.kubectl(&["apply", "--server-side", "--filename", manifest], "").unwrap();
        assert!(applied.status.success(), "{applied:?}");
        // Opt-in to Secrets of all namespaces.
        bind_secrets(&cluster, "ClusterRoleBinding", &json!({ "name": "lucid-cainjector-secrets" }));
        let restricted = Client::try_from(Self::config(&cluster).await).unwrap();
        Self { admin: cluster.client(), restricted, cluster }
    }

    pub(super) async fn config(cluster: &Cluster) -> Config {
        config_of(cluster, "system:serviceaccount:lucid-system:lucid-cainjector").await
    }

    pub(super) async fn injector(&self) -> CaInjector {
        let config = Self::config(&self.cluster).await;
        CaInjector::new(self.restricted.clone())
            .with_openshift_ca("lucid-system", "lucid-operator-ca", "ca.crt")
            .with_api_server_ca(&config)
    }

    pub(super) async fn put_secret(
        &self,
        namespace: &str,
        name: &str,
        annotation: (&str, &str),
        bundle: &str,
    ) {
        self.put_secret_key(namespace, name, annotation, ("ca.crt", bundle)).await;
    }

    pub(super) async fn put_secret_key(
        &self,
        namespace: &str,
        name: &str,
        annotation: (&str, &str),
        (key, bundle): (&str, &str),
    ) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": name, "annotations": { annotation.0: annotation.1 } },
            "data": { key: BASE64_STANDARD.encode(bundle) },
        });
        let api: Api<Secret> = Api::namespaced(self.admin.clone(), namespace);
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(secret)).await.unwrap();
    }

    pub(super) async fn notes(&self, object: &Object) -> Vec<String> {
        let namespace = if object.kind == Kind::ConfigMap { "web" } else { "default" };
        let kind = object.kind.resource().kind;
        let events: Api<Event> = Api::namespaced(self.admin.clone(), namespace);
        let events = events.list(&Default::default()).await.unwrap();
        let is_its = |event: &Event| {
            let regarding = event.regarding.as_ref().unwrap();
            regarding.kind.as_deref() == Some(&*kind) && regarding.name.as_ref() == Some(&object.name)
        };
        events.into_iter().filter(is_its).filter_map(|event| event.note).collect()
    }

    pub(super) async fn wait_for_note(&self, object: &Object, part: &str) {
        let what = format!("an event about {} that says {part:?}", object.name);
        eventually(&what, async || self.notes(object).await.iter().any(|note| note.contains(part))).await;
    }
}

/// A running injector, aborted on drop.
pub(super) struct Running(JoinHandle<Result<(), lucid_certs::Error>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) async fn start(injector: CaInjector) -> Running {
    let mut ready = injector.ready();
    let mut running = Running(tokio::spawn(injector.run(std::future::pending())));
    tokio::select! {
        ended = &mut running.0 => panic!("{ended:?}"),
        ready = tokio::time::timeout(TIMEOUT, ready.wait_for(|ready| *ready)) => drop(ready.unwrap().unwrap()),
    }
    running
}

pub(super) fn bind_secrets(cluster: &Cluster, kind: &str, metadata: &Value) {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "lucid-cainjector-secrets" },
        "subjects": [{ "kind": "ServiceAccount", "name": "lucid-cainjector", "namespace": "lucid-system" }],
    });
    kubectl(cluster, &["apply"], &binding).unwrap();
}

pub(super) fn ca(age: Duration) -> TrustBundle {
    CertificateAuthority::generate(&names(), now() - age).unwrap().trust_bundle()
}

pub(super) fn namespaced(
    site: &Site,
    (group, kind, plural): (&str, &str, &str),
    namespace: &str,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
    Api::namespaced_with(site.admin.clone(), namespace, &resource)
}
