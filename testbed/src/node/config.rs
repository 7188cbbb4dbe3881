//! The files and the command lines of a node's programs.

use std::{fs, io, net::Ipv4Addr, path::PathBuf};

use crate::{
    Binaries, Cluster,
    cluster::ADMIN_KUBECONFIG,
    components::{CA, SERVING_CERTIFICATE, SERVING_KEY},
    pki,
};

/// The Node object's name.
pub(crate) const NODE_NAME: &str = "node";
/// The addresses of pods.
pub(super) const POD_RANGE: &str = "10.78.0.0/24";
const POD_RANGE_V6: &str = "fd00:78::/64";
/// The image that keeps the namespaces of a pod.
pub(super) const PAUSE_IMAGE: &str = "testbed.test/pause:1";

const CONTAINERD: &str = "containerd/config.toml";
const KUBELET: &str = "kubelet.yaml";
const KUBELET_KUBECONFIG: &str = "kubelet.kubeconfig";
const PROXY: &str = "kube-proxy.yaml";
const COREFILE: &str = "Corefile";

/// Where the cluster's DNS is asked: an address of the node itself, so that it needs no Service.
pub(super) const DNS: Ipv4Addr = Ipv4Addr::new(169, 254, 20, 10);

/// Where containerd listens.
pub(super) fn socket(cluster: &Cluster) -> PathBuf {
    cluster.folder.path().join("containerd/containerd.sock")
}

pub(super) fn write_files(cluster: &Cluster, binaries: &Binaries, cgroup: &str) -> io::Result<()> {
    let folder = cluster.folder.path();
    for name in ["containerd/cni", "kubelet", "logs/pods"] {
        fs::create_dir_all(folder.join(name))?;
    }
    let user = format!("system:node:{NODE_NAME}");
    let kubeconfig = cluster.authority.kubeconfig(&cluster.server, &user, Some(pki::NODES));
    for (name, text) in [
        (CONTAINERD, containerd(cluster, binaries)),
        ("containerd/cni/10-pods.conflist", cni(cluster)),
        (KUBELET, kubelet(cluster, cgroup)),
        (KUBELET_KUBECONFIG, kubeconfig.map_err(io::Error::other)?),
        (PROXY, proxy(cluster)),
        (COREFILE, corefile(cluster)),
    ] {
        cluster.folder.write(name, &text)?;
    }
    Ok(())
}

fn containerd(cluster: &Cluster, binaries: &Binaries) -> String {
    let folder = cluster.folder.path().join("containerd");
    let (socket, plugins) = (socket(cluster), binaries.node_folder());
    let (folder, socket, plugins) = (folder.display(), socket.display(), plugins.display());
    format!(
        "version = 3
root = '{folder}/root'
state = '{folder}/state'

[grpc]
address = '{socket}'

[plugins.'io.containerd.internal.v1.opt']
path = '{folder}/opt'

[plugins.'io.containerd.nri.v1.nri']
disable = true

[plugins.'io.containerd.cri.v1.runtime']
# This machine may not let us do more.
restrict_oom_score_adj = true
disable_apparmor = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{plugins}']
conf_dir = '{folder}/cni'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false

[plugins.'io.containerd.cri.v1.images']
snapshotter = 'overlayfs'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE_IMAGE}'
"
    )
}

fn cni(cluster: &Cluster) -> String {
    let addresses = cluster.folder.path().join("containerd/addresses");
    serde_json::json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{"type": "ptp", "ipam": {
            "type": "host-local",
            "dataDir": addresses,
            "ranges": [[{"subnet": POD_RANGE}], [{"subnet": POD_RANGE_V6}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        }}],
    })
    .to_string()
}

fn kubelet(cluster: &Cluster, cgroup: &str) -> String {
    let (folder, socket) = (cluster.folder.path().display(), socket(cluster));
    let socket = socket.display();
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://{socket}
cgroupDriver: cgroupfs
cgroupRoot: {cgroup}
cgroupsPerQOS: true
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: false}}
  x509: {{clientCAFile: {folder}/{CA}}}
authorization: {{mode: AlwaysAllow}}
tlsCertFile: {folder}/{SERVING_CERTIFICATE}
tlsPrivateKeyFile: {folder}/{SERVING_KEY}
podLogsDir: {folder}/logs/pods
volumePluginDir: {folder}/kubelet/volume-plugins
clusterDNS: ['{DNS}']
clusterDomain: cluster.local
# Nothing beyond the cluster has a name.
resolvConf: /dev/null
# A full disk of this machine is no affair of the tests.
evictionHard: {{}}
imageMinimumGCAge: 24h
syncFrequency: 2s
"
    )
}

pub(super) fn kubelet_args(cluster: &Cluster) -> Vec<String> {
    let folder = cluster.folder.path().display();
    vec![
        format!("--config={folder}/{KUBELET}"),
        format!("--kubeconfig={folder}/{KUBELET_KUBECONFIG}"),
        format!("--hostname-override={NODE_NAME}"),
        format!("--node-ip={}", cluster.address),
        format!("--root-dir={folder}/kubelet"),
        format!("--cert-dir={folder}/kubelet/pki"),
    ]
}

fn proxy(cluster: &Cluster) -> String {
    let folder = cluster.folder.path().display();
    format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: {POD_RANGE}
hostnameOverride: {NODE_NAME}
clientConnection: {{kubeconfig: {folder}/{ADMIN_KUBECONFIG}}}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
# Limits of the whole machine, which are not ours to set.
conntrack: {{maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}
"
    )
}

fn corefile(cluster: &Cluster) -> String {
    let folder = cluster.folder.path().display();
    format!(
        ".:53 {{
    bind {DNS}
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {folder}/{ADMIN_KUBECONFIG}
    }}
}}
"
    )
}

pub(super) fn dns_args(cluster: &Cluster) -> Vec<String> {
    vec!["-conf".to_owned(), format!("{}/{COREFILE}", cluster.folder.path().display())]
}

pub(super) fn proxy_args(cluster: &Cluster) -> Vec<String> {
    vec![format!("--config={}/{PROXY}", cluster.folder.path().display())]
}

pub(super) fn containerd_args(cluster: &Cluster) -> Vec<String> {
    vec![format!("--config={}/{CONTAINERD}", cluster.folder.path().display())]
}
