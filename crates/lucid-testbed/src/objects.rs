//! Objects that most tests need.

use std::time::{Duration, Instant};

use k8s_openapi::api::{
    core::v1::{Endpoints, Namespace, Service, ServiceAccount},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use snafu::{OptionExt as _, ResultExt as _, whatever};

use crate::{Cluster, Error};

const SERVICE_ACCOUNT_PATIENCE: Duration = Duration::from_secs(60);

const LOOPBACK: &str = "failed to expose a Service: an endpoint may not be a loopback address; start the cluster with Builder::webhooks_by_service (root)";

impl Cluster {
    /// Creates a namespace with these labels, or adds them to an existing one. With kube-controller-manager, waits for the
    /// ServiceAccount `default`, so that pods can be created.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server denies the request, or if the ServiceAccount does not appear.
    pub async fn create_namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<(), Error> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value)));
        let labels = Value::Object(labels.collect());
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
        });
        apply(&Api::<Namespace>::all(self.client()), name, &object).await?;
        if self.options.controller_manager {
            self.await_service_account(name).await?;
        }
        Ok(())
    }

    /// Points port 443 of a Service to a port of [`Cluster::host_address`]. Creates the namespace if it is absent. A repeated
    /// call points the Service to the new port.
    ///
    /// The API server connects to the endpoint directly and expects a certificate for `<name>.<namespace>.svc`.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster was not started with
    /// [`Builder::webhooks_by_service`](crate::Builder::webhooks_by_service), or if the API server denies a request.
    pub async fn expose_service(&self, namespace: &str, name: &str, port: u16) -> Result<(), Error> {
        self.expose_replicas(namespace, name, &[port]).await
    }

    /// Like [`Cluster::expose_service`], with a replica on each of these ports. The API server chooses one at random for each
    /// connection. After a repeated call with fewer ports, the others remain endpoints.
    ///
    /// # Errors
    ///
    /// See [`Cluster::expose_service`].
    pub async fn expose_replicas(&self, namespace: &str, name: &str, ports: &[u16]) -> Result<(), Error> {
        let address = self.network.as_ref().whatever_context(LOOPBACK)?.host_address();
        self.create_namespace(namespace, &[]).await?;
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": "https"}]},
        });
        apply(&Api::<Service>::namespaced(self.client(), namespace), name, &service).await?;
        // All replicas share one address, and a slice has one value per port.
        for (index, port) in ports.iter().enumerate() {
            let slice_name = if index == 0 { name.to_owned() } else { format!("{name}-{}", index + 1) };
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": slice_name, "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4",
                "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
                "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}],
            });
            apply(&Api::<EndpointSlice>::namespaced(self.client(), namespace), &slice_name, &slice).await?;
        }
        // API servers before 1.34 read no slices.
        let subset = |port: &u16| json!({"addresses": [{"ip": address.to_string()}], "ports": [{"name": "https", "port": port}]});
        let endpoints = json!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": name, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": ports.iter().map(subset).collect::<Vec<_>>(),
        });
        apply(&Api::<Endpoints>::namespaced(self.client(), namespace), name, &endpoints).await
    }

    pub(crate) async fn await_service_account(&self, namespace: &str) -> Result<(), Error> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), namespace);
        let deadline = Instant::now() + SERVICE_ACCOUNT_PATIENCE;
        while Instant::now() < deadline {
            let found = accounts.get_opt("default").await;
            let failed = |_: &mut kube::Error| format!("failed to read ServiceAccount {namespace}/default");
            if found.with_whatever_context(failed)?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        whatever!(
            "failed to see the ServiceAccount default in namespace {namespace} within {} s: kube-controller-manager makes it",
            SERVICE_ACCOUNT_PATIENCE.as_secs()
        )
    }
}

async fn apply<K>(api: &Api<K>, name: &str, object: &Value) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + k8s_openapi::serde::de::DeserializeOwned,
{
    let params = PatchParams::apply("lucid-testbed").force();
    api.patch(name, &params, &Patch::Apply(object))
        .await
        .with_whatever_context(|_| format!("failed to make {} {name}", K::kind(&())))?;
    Ok(())
}
