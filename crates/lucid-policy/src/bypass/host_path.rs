//! Paths of the node from which auditors are within reach.

/// Where a node keeps processes, the files of containers, and who starts and enters them: reading there tells what an auditor
/// keeps to itself, and a socket can be called however it is mounted. A node may keep them elsewhere, and whoever writes to
/// other directories of it can become its root; Pod Security `baseline` allows no hostPath at all. That is no reason to
/// refuse logs, a time zone or a GPU's driver here.
const KEPT: [&str; 23] = [
    "/etc/kubernetes",
    "/proc",
    "/run/containerd",
    "/run/cri-dockerd.sock",
    "/run/crio",
    "/run/crun",
    "/run/dbus",
    "/run/docker",
    "/run/docker.sock",
    "/run/dockershim.sock",
    "/run/k0s",
    "/run/k3s",
    "/run/netns",
    "/run/podman",
    "/run/runc",
    "/run/systemd/private",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/k0s",
    "/var/lib/kubelet",
    "/var/lib/rancher",
    "/var/snap/microk8s",
];

/// What is mounted of a `hostPath`, without `//`, `/./` and a `/` at the end, and under one name for `/run` and `/var/run`.
pub(super) fn mounted(path: &str, sub_path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/').chain(sub_path.split('/')) {
        match segment {
            "" | "." => {}
            // The API server takes none.
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let segments =
        segments.strip_prefix(&["var"]).filter(|rest| rest.first() == Some(&"run")).unwrap_or(&segments);
    format!("/{}", segments.join("/"))
}

/// What of [`KEPT`] the path, as [`mounted`] gives it, is above, at or below.
pub(super) fn kept(path: &str) -> Option<&'static str> {
    KEPT.into_iter().find(|kept| is_within(kept, path) || is_within(path, kept))
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reaches_what_is_kept_above_and_below_it_whatever_its_spelling() {
        for (path, sub_path, mounts, reaches) in [
            ("/", "", "/", Some("/etc/kubernetes")),
            ("", "", "/", Some("/etc/kubernetes")),
            ("/", "srv/models", "/srv/models", None),
            ("/", "proc", "/proc", Some("/proc")),
            ("/proc/1/root", "", "/proc/1/root", Some("/proc")),
            ("/process", "", "/process", None),
            ("/var", "", "/var", Some("/var/lib/containerd")),
            ("/var/", "lib/shop", "/var/lib/shop", None),
            ("/var/lib/kubelet/pods", "", "/var/lib/kubelet/pods", Some("/var/lib/kubelet")),
            ("//var/./lib//kubelet/", "", "/var/lib/kubelet", Some("/var/lib/kubelet")),
            ("/var/lib/kubelet-data", "", "/var/lib/kubelet-data", None),
            ("/srv/../proc", "", "/proc", Some("/proc")),
            ("/../..", "", "/", Some("/etc/kubernetes")),
            ("/var/run", "", "/run", Some("/run/containerd")),
            ("/var/run/docker.sock", "", "/run/docker.sock", Some("/run/docker.sock")),
            (
                "/run/containerd/containerd.sock",
                "",
                "/run/containerd/containerd.sock",
                Some("/run/containerd"),
            ),
            ("/var/runtime", "", "/var/runtime", None),
            ("/run/spire/sockets", "", "/run/spire/sockets", None),
            ("/run/systemd", "", "/run/systemd", Some("/run/systemd/private")),
            ("/run/systemd/journal", "", "/run/systemd/journal", None),
            ("/etc", "", "/etc", Some("/etc/kubernetes")),
            ("/etc/localtime", "", "/etc/localtime", None),
            ("/var/log", "", "/var/log", None),
            ("/dev/kfd", "", "/dev/kfd", None),
        ] {
            let found = mounted(path, sub_path);
            assert_eq!((found.as_str(), kept(&found)), (mounts, reaches), "{path:?}, {sub_path:?}");
        }
    }
}
