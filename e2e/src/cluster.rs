//! Objects, clients and files of a cluster that the tests share.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use k8s_openapi::api::core::v1::{Endpoints, Namespace, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use lucid_testbed::Cluster;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Error, binary, command, eventually};

/// Methods of a [`Cluster`] for our tests.
pub trait ClusterExt {
    /// Path of the certificate of the cluster's authority.
    fn authority_path(&self) -> PathBuf;

    /// URL of the API server, such as `https://127.0.0.1:41233`.
    fn server(&self) -> String;

    /// The administrator's kubeconfig, including keys.
    fn kubeconfig(&self) -> String;

    /// Path of the API server's audit log, JSON lines.
    fn audit_log(&self) -> PathBuf;

    /// Returns the events in the audit log so far. The API server writes an event before it responds to the request.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or a line is not JSON.
    fn audit_events(&self) -> Result<Vec<Value>, Error>;

    /// Runs `kubectl` as the cluster's administrator, with `input` as its standard input.
    ///
    /// # Errors
    ///
    /// Returns an error if kubectl cannot be built or run. Its exit status is part of the output.
    fn kubectl(&self, arguments: &[&str], input: &str) -> Result<Output, Error>;

    /// Runs `helm` as the cluster's administrator, with `input` as its standard input, such as values for `-f -`.
    ///
    /// # Errors
    ///
    /// See [`ClusterExt::kubectl`].
    fn helm(&self, arguments: &[&str], input: &str) -> Result<Output, Error>;

    /// Creates a namespace with these labels, or adds them to an existing one. With kube-controller-manager, waits for the
    /// ServiceAccount `default`, so that pods can be created.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server denies the request.
    fn create_namespace(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> impl Future<Output = Result<(), Error>>;

    /// Points port 443 of a Service to these ports of [`Cluster::host_address`], each a replica. Creates the namespace if it is
    /// absent. After a repeated call with fewer ports, the others remain endpoints.
    ///
    /// The API server connects to an endpoint directly and expects a certificate for `<name>.<namespace>.svc`.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server denies a request, as it does for the loopback address of a cluster without
    /// [`webhooks_by_service`](lucid_testbed::Builder::webhooks_by_service).
    fn expose_service(
        &self,
        namespace: &str,
        name: &str,
        ports: &[u16],
    ) -> impl Future<Output = Result<(), Error>>;
}

impl ClusterExt for Cluster {
    fn authority_path(&self) -> PathBuf {
        self.folder().join("pki/ca.crt")
    }

    fn server(&self) -> String {
        let kubeconfig = self.kubeconfig();
        let server = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: "));
        server.unwrap_or_default().to_owned()
    }

    fn kubeconfig(&self) -> String {
        fs::read_to_string(self.kubeconfig_path()).unwrap_or_default()
    }

    fn audit_log(&self) -> PathBuf {
        self.folder().join("audit.jsonl")
    }

    fn audit_events(&self) -> Result<Vec<Value>, Error> {
        let text = match fs::read_to_string(self.audit_log()) {
            // The first event creates the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        // Text after the last line end is still being written.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(complete.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    }

    fn kubectl(&self, arguments: &[&str], input: &str) -> Result<Output, Error> {
        let mut kubectl = command(binary("kubectl")?);
        // The default cache may hold the API of another cluster on the same port.
        kubectl.arg("--cache-dir").arg(self.folder().join("kubectl-cache")).args(arguments);
        run(self, kubectl, input)
    }

    fn helm(&self, arguments: &[&str], input: &str) -> Result<Output, Error> {
        let home = self.folder().join("helm");
        let mut helm = command(binary("helm")?);
        helm.args(arguments);
        helm.envs(
            ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"].map(|variable| (variable, &home)),
        );
        run(self, helm, input)
    }

    async fn create_namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<(), Error> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value)));
        let labels = Value::Object(labels.collect());
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
        });
        apply(&Api::<Namespace>::all(self.client()), name, &object).await?;
        let account = async |namespace: &str| {
            Api::<ServiceAccount>::namespaced(self.client(), namespace).get_opt("default").await
        };
        // A cluster with kube-controller-manager starts with this one.
        if account("default").await?.is_some() {
            eventually("the ServiceAccount default", async || account(name).await.ok().flatten()).await;
        }
        Ok(())
    }

    async fn expose_service(&self, namespace: &str, name: &str, ports: &[u16]) -> Result<(), Error> {
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
                "endpoints": [{"addresses": [self.host_address()], "conditions": {"ready": true}}],
            });
            apply(&Api::<EndpointSlice>::namespaced(self.client(), namespace), &slice_name, &slice).await?;
        }
        // API servers before 1.34 read no slices.
        let subset = |port: &u16| json!({"addresses": [{"ip": self.host_address()}], "ports": [{"name": "https", "port": port}]});
        let endpoints = json!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": name, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": ports.iter().map(subset).collect::<Vec<_>>(),
        });
        apply(&Api::<Endpoints>::namespaced(self.client(), namespace), name, &endpoints).await
    }
}

fn run(cluster: &Cluster, mut client: Command, input: &str) -> Result<Output, Error> {
    let mut child = client
        .env("KUBECONFIG", cluster.kubeconfig_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    match written {
        // The client ended before it read all input; its output says why.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(output),
    }
}

async fn apply<K>(api: &Api<K>, name: &str, object: &Value) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    api.patch(name, &PatchParams::apply("lucid-testbed").force(), &Patch::Apply(object)).await?;
    Ok(())
}
