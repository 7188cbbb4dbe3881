//! Files and command lines of a node's programs.

use std::{fs, io, net::Ipv4Addr, path::PathBuf};

use crate::{
    Binaries, Cluster,
    cluster::ADMIN_KUBECONFIG,
    components::{CA, SERVING_CERTIFICATE, SERVING_KEY},
    pki,
};

/// Name of the first Node object, and prefix of the others.
pub(crate) const NODE_NAME: &str = "node";
/// Addresses of the pods of all nodes.
pub(super) const POD_RANGE: &str = "10.78.0.0/16";
/// Image of the container that holds the namespaces of a pod.
pub(super) const PAUSE_IMAGE: &str = "testbed.test/pause:1";

const KUBELET_PORT: u16 = 10250;

const PROXY: &str = "kube-proxy.yaml";
const COREFILE: &str = "Corefile";

/// Address of the cluster's DNS server: one of the nodes, so that it needs no Service.
pub(super) const DNS: Ipv4Addr = Ipv4Addr::new(169, 254, 20, 10);

/// Identity and paths of one node. All nodes share one network, like processes on one machine, so each has its own ports and
/// pod addresses.
#[derive(Clone, Debug)]
pub(super) struct Place {
    index: u8,
    pub(super) name: String,
    folder: PathBuf,
}

impl Place {
    pub(super) fn of(cluster: &Cluster, index: u8) -> Self {
        let name = match index {
            0 => NODE_NAME.to_owned(),
            _ => format!("{NODE_NAME}-{}", index + 1),
        };
        Self { index, folder: cluster.folder.path().join(&name), name }
    }

    /// Socket of containerd.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("containerd.sock")
    }

    /// Path of a file or folder of this node.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Unique name of one of the node's programs.
    pub(super) fn own(&self, name: &str) -> String {
        match self.index {
            0 => name.to_owned(),
            _ => format!("{name}-{}", self.name),
        }
    }

    fn pod_logs(&self, cluster: &Cluster) -> PathBuf {
        cluster.folder.path().join("logs").join(self.own("pods"))
    }

    pub(super) fn write_files(&self, cluster: &Cluster, binaries: &Binaries, cgroup: &str) -> io::Result<()> {
        for folder in [self.path("cni"), self.path("kubelet"), self.pod_logs(cluster)] {
            fs::create_dir_all(folder)?;
        }
        let user = format!("system:node:{}", self.name);
        let kubeconfig = cluster.authority.kubeconfig(&cluster.server, &user, Some(pki::NODES));
        for (name, text) in [
            ("containerd.toml", self.containerd(binaries)),
            ("cni/10-pods.conflist", self.cni()),
            ("kubelet.yaml", self.kubelet(cluster, cgroup)),
            ("kubelet.kubeconfig", kubeconfig.map_err(io::Error::other)?),
        ] {
            cluster.folder.write(&format!("{}/{name}", self.name), &text)?;
        }
        Ok(())
    }

    pub(super) fn kubelet_args(&self, cluster: &Cluster) -> Vec<String> {
        let folder = self.folder.display();
        vec![
            format!("--config={folder}/kubelet.yaml"),
            format!("--kubeconfig={folder}/kubelet.kubeconfig"),
            format!("--hostname-override={}", self.name),
            format!("--node-ip={}", cluster.address),
            format!("--root-dir={folder}/kubelet"),
            format!("--cert-dir={folder}/kubelet/pki"),
        ]
    }

    pub(super) fn containerd_args(&self) -> Vec<String> {
        vec![format!("--config={}/containerd.toml", self.folder.display())]
    }

    fn containerd(&self, binaries: &Binaries) -> String {
        let (socket, plugins) = (self.socket(), binaries.node_folder());
        let (folder, socket, plugins) = (self.folder.display(), socket.display(), plugins.display());
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

    fn cni(&self) -> String {
        let index = self.index;
        serde_json::json!({
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [{"type": "ptp", "ipam": {
                "type": "host-local",
                "dataDir": self.path("addresses"),
                "ranges": [[{"subnet": format!("10.78.{index}.0/24")}], [{"subnet": format!("fd00:78:0:{index}::/64")}]],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            }}],
        })
        .to_string()
    }

    fn kubelet(&self, cluster: &Cluster, cgroup: &str) -> String {
        let (folder, own, socket) = (cluster.folder.path().display(), self.folder.display(), self.socket());
        let logs = self.pod_logs(cluster);
        let (logs, socket, port) = (logs.display(), socket.display(), KUBELET_PORT + u16::from(self.index));
        format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
port: {port}
healthzPort: 0
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
podLogsDir: {logs}
volumePluginDir: {own}/kubelet/volume-plugins
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
}

/// Writes the files that all nodes share.
pub(super) fn write_files(cluster: &Cluster) -> io::Result<()> {
    cluster.folder.write(PROXY, &proxy(cluster))?;
    cluster.folder.write(COREFILE, &corefile(cluster))?;
    Ok(())
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
