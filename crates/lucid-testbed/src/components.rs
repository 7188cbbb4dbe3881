//! Files and command lines of the components.

use std::net::Ipv4Addr;

use rcgen::KeyPair;
use snafu::ResultExt as _;

use crate::{
    Cluster, Error,
    error::{FILES, KEYS},
    folder::Folder,
    layout::{ADMIN_KUBECONFIG, AUDIT_LOG, CA, CA_KEY, MASTERS},
    pki::{Authority, Pair},
};

pub(crate) const SERVING_CERTIFICATE: &str = "pki/serving.crt";
pub(crate) const SERVING_KEY: &str = "pki/serving.key";
const KUBELET_CLIENT_CERTIFICATE: &str = "pki/kubelet-client.crt";
const KUBELET_CLIENT_KEY: &str = "pki/kubelet-client.key";
const SERVICE_ACCOUNT_KEY: &str = "pki/service-account.key";
const SERVICE_ACCOUNT_PUBLIC_KEY: &str = "pki/service-account.pub";
const AUDIT_POLICY: &str = "audit-policy.yaml";
const ADMISSION: &str = "admission.yaml";
const WEBHOOK_CLIENT: &str = "webhook-client.kubeconfig";

const SERVICE_RANGE: &str = "10.96.0.0/16";

const AUDIT_PODS: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources: [{group: \"\", resources: [pods, pods/ephemeralcontainers]}]
- level: None
";

pub(crate) fn write_files(folder: &Folder, authority: &Authority, serving: &Pair) -> Result<(), Error> {
    let service_account = KeyPair::generate().whatever_context(KEYS)?;
    let kubelet_client = authority.client_pair("kube-apiserver", Some(MASTERS)).whatever_context(KEYS)?;
    for (name, content) in [
        (CA, &*authority.certificate()),
        (CA_KEY, &authority.key()),
        (SERVING_CERTIFICATE, &serving.certificate),
        (SERVING_KEY, &serving.key),
        (SERVICE_ACCOUNT_KEY, &service_account.serialize_pem()),
        (SERVICE_ACCOUNT_PUBLIC_KEY, &service_account.public_key_pem()),
        (KUBELET_CLIENT_CERTIFICATE, &kubelet_client.certificate),
        (KUBELET_CLIENT_KEY, &kubelet_client.key),
        (AUDIT_POLICY, AUDIT_PODS),
    ] {
        folder.write(name, content).whatever_context(FILES)?;
    }
    Ok(())
}

/// Makes the API server present a certificate to all webhooks.
pub(crate) fn write_admission(
    folder: &Folder,
    authority: &Authority,
    common_name: &str,
) -> Result<(), Error> {
    let kubeconfig = authority.webhook_client(common_name).whatever_context(KEYS)?;
    folder.write(WEBHOOK_CLIENT, &kubeconfig).whatever_context(FILES)?;
    let mut admission =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n".to_owned();
    for plugin in ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"] {
        admission.push_str(&format!(
            "- name: {plugin}
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: {}
",
            folder.path().join(WEBHOOK_CLIENT).display()
        ));
    }
    folder.write(ADMISSION, &admission).whatever_context(FILES)?;
    Ok(())
}

pub(crate) fn etcd(cluster: &Cluster, port: u16) -> Vec<String> {
    let url = format!("http://{}:{port}", Ipv4Addr::LOCALHOST);
    vec![
        format!("--data-dir={}", cluster.folder.data().display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls=http://{}:0", Ipv4Addr::LOCALHOST),
        "--socket-reuse-port".into(),
        // The data does not outlive the process.
        "--unsafe-no-fsync".into(),
    ]
}

pub(crate) fn api_server(cluster: &Cluster, etcd_port: u16) -> Vec<String> {
    let file = |name| file(cluster, name);
    let mut args = serving(cluster, cluster.api_port);
    args.extend([
        format!("--etcd-servers=http://{}:{etcd_port}", Ipv4Addr::LOCALHOST),
        format!("--advertise-address={}", cluster.address),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        // Resolves the Service of a webhook to its endpoint: without a node nothing routes cluster IPs.
        "--enable-aggregator-routing".into(),
        format!("--client-ca-file={}", file(CA)),
        "--authorization-mode=Node,RBAC".into(),
        "--allow-privileged".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file(SERVICE_ACCOUNT_PUBLIC_KEY)),
        format!("--service-account-signing-key-file={}", file(SERVICE_ACCOUNT_KEY)),
        format!("--audit-policy-file={}", file(AUDIT_POLICY)),
        format!("--audit-log-path={}", file(AUDIT_LOG)),
    ]);
    if cluster.options.nodes > 0 {
        args.extend([
            format!("--kubelet-client-certificate={}", file(KUBELET_CLIENT_CERTIFICATE)),
            format!("--kubelet-client-key={}", file(KUBELET_CLIENT_KEY)),
            format!("--kubelet-certificate-authority={}", file(CA)),
            // DNS does not resolve the node's name.
            "--kubelet-preferred-address-types=InternalIP".into(),
        ]);
    } else {
        // No node routes to the Service kubernetes, and a loopback endpoint would be rejected.
        args.push("--endpoint-reconciler-type=none".into());
    }
    if cluster.options.webhook_client.is_some() {
        args.push(format!("--admission-control-config-file={}", file(ADMISSION)));
    }
    if !cluster.options.controller_manager {
        args.push("--disable-admission-plugins=ServiceAccount".into());
    }
    args.extend_from_slice(&cluster.options.api_server_args);
    args
}

pub(crate) fn controller_manager(cluster: &Cluster, port: u16) -> Vec<String> {
    let file = |name| file(cluster, name);
    let mut args = client(cluster, port);
    args.extend([
        format!("--root-ca-file={}", file(CA)),
        format!("--service-account-private-key-file={}", file(SERVICE_ACCOUNT_KEY)),
    ]);
    args
}

pub(crate) fn scheduler(cluster: &Cluster, port: u16) -> Vec<String> {
    client(cluster, port)
}

/// Arguments of a component that is a client of the API server with the administrator's permissions.
fn client(cluster: &Cluster, port: u16) -> Vec<String> {
    let kubeconfig = file(cluster, ADMIN_KUBECONFIG);
    let mut args = serving(cluster, port);
    args.extend(
        ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
            .map(|flag| format!("--{flag}={kubeconfig}")),
    );
    args.push("--leader-elect=false".into());
    args
}

fn serving(cluster: &Cluster, port: u16) -> Vec<String> {
    let file = |name| file(cluster, name);
    vec![
        format!("--bind-address={}", cluster.address),
        format!("--secure-port={port}"),
        // A socket of this process reserves the port.
        "--permit-port-sharing".into(),
        format!("--tls-cert-file={}", file(SERVING_CERTIFICATE)),
        format!("--tls-private-key-file={}", file(SERVING_KEY)),
    ]
}

fn file(cluster: &Cluster, name: &str) -> String {
    cluster.folder.path().join(name).display().to_string()
}
