//! Files and command lines of a node's programs.

use std::{fs, io, path::PathBuf};

use super::{DNS, POD_RANGE, Place};
use crate::{
    Cluster,
    binaries::Binaries,
    layout::{NODE_NAME, NODES},
};

/// Image of the container that holds the namespaces of a pod.
pub(super) const PAUSE_IMAGE: &str = "testbed.test/pause:1";
/// Image for pods of tests.
pub(super) const HELLO_IMAGE: &str = "testbed.test/hello:1";

const KUBELET_PORT: u16 = 10250;

const PROXY: &str = "kube-proxy.yaml";
const COREFILE: &str = "Corefile";

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn pod_logs(&self, cluster: &Cluster) -> PathBuf {
        cluster.folder.path().join("logs").join(self.own("pods"))
    }

    pub(super) fn write_files(&self, cluster: &Cluster, binaries: &Binaries, cgroup: &str) -> io::Result<()> {
        for folder in [self.path("cni"), self.path("kubelet"), self.pod_logs(cluster)] {
            fs::create_dir_all(folder)?;
        }
        let values = [
            ("$FOLDER", cluster.folder.path().display().to_string()),
            ("$NODE_FOLDER", self.folder.display().to_string()),
            ("$SOCKET", self.socket().display().to_string()),
            ("$PLUGINS", binaries.node_folder().display().to_string()),
            ("$PAUSE_IMAGE", PAUSE_IMAGE.to_owned()),
            ("$PORT", (KUBELET_PORT + u16::from(self.index)).to_string()),
            ("$CGROUP", cgroup.to_owned()),
            ("$LOGS", self.pod_logs(cluster).display().to_string()),
            ("$DNS", DNS.to_string()),
        ];
        let user = format!("system:node:{}", self.name);
        let kubeconfig = cluster.authority.kubeconfig(&cluster.server, &user, Some(NODES));
        for (name, text) in [
            ("containerd.toml", fill(include_str!("containerd.toml"), &values)),
            ("cni/10-pods.conflist", self.cni()),
            ("kubelet.yaml", fill(include_str!("kubelet.yaml"), &values)),
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
}

/// Writes the files that all nodes share.
pub(super) fn write_files(cluster: &Cluster) -> io::Result<()> {
    let values = [
        ("$FOLDER", cluster.folder.path().display().to_string()),
        ("$POD_RANGE", POD_RANGE.to_owned()),
        ("$NODE_NAME", NODE_NAME.to_owned()),
        ("$DNS", DNS.to_string()),
    ];
    cluster.folder.write(PROXY, &fill(include_str!("kube-proxy.yaml"), &values))?;
    cluster.folder.write(COREFILE, &fill(include_str!("Corefile"), &values))?;
    Ok(())
}

fn fill(text: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

pub(super) fn dns_args(cluster: &Cluster) -> Vec<String> {
    vec!["-conf".to_owned(), format!("{}/{COREFILE}", cluster.folder.path().display())]
}

pub(super) fn proxy_args(cluster: &Cluster) -> Vec<String> {
    vec![format!("--config={}/{PROXY}", cluster.folder.path().display())]
}
