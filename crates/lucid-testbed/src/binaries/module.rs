//! Go modules that pin the versions, and the build settings of their programs.

use sha2::{Digest as _, Sha256};
use snafu::OptionExt as _;

use super::Component;
use crate::Error;

macro_rules! pinned {
    ($folder:literal) => {
        Module {
            folder: concat!(env!("CARGO_MANIFEST_DIR"), "/", $folder),
            go_mod: include_str!(concat!("../../", $folder, "/go.mod")),
            go_sum: include_str!(concat!("../../", $folder, "/go.sum")),
            sources: &[],
        }
    };
}

/// A folder with a go.mod.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) folder: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
    /// Our own programs in the module.
    sources: &'static [&'static str],
}

/// Kubernetes and etcd.
pub(super) static KUBERNETES: Module = pinned!("components");

/// Programs of a node, whose requirements would select other versions of Kubernetes' dependencies.
pub(super) static NODE: Module = Module {
    sources: &[
        include_str!("../../components/node/pause/main.go"),
        include_str!("../../components/node/hello/main.go"),
    ],
    ..pinned!("components/node")
};

/// DNS server of the cluster, in a separate module for the same reason.
pub(super) static DNS: Module =
    Module { sources: &[include_str!("../../components/dns/main.go")], ..pinned!("components/dns") };

/// Helm, which needs another version of client-go than the control plane.
pub(super) static HELM: Module = pinned!("components/helm");

/// Our own program built from cert-manager's packages: no proxy serves the modules of its own programs.
pub(super) static CERT_MANAGER: Module = Module {
    sources: &[include_str!("../../components/certmanager/main.go")],
    ..pinned!("components/certmanager")
};

pub(super) static MODULES: [&Module; 5] = [&KUBERNETES, &NODE, &DNS, &HELM, &CERT_MANAGER];

/// Kind of artifact taken from a module.
pub(super) enum Source {
    /// A package to compile.
    Package(String),
    /// YAML documents in a folder of a required module, joined into one file.
    Documents { module: &'static str, folder: &'static str },
}

impl Module {
    /// Folder name of the module's programs, unique per version.
    pub(super) fn key(&self) -> String {
        let mut hash = Sha256::new().chain_update(self.go_mod).chain_update(self.go_sum);
        for source in self.sources {
            hash.update(source);
        }
        hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Version that follows `name` on a line of go.mod.
    pub(super) fn version(&self, name: &str) -> Result<&'static str, Error> {
        self.go_mod
            .lines()
            .find_map(|line| {
                let mut words = line.split_whitespace().skip_while(|word| *word == "require");
                (words.next() == Some(name)).then(|| words.next())?
            })
            .with_whatever_context(|| {
                format!("failed to find the version of {name} in {}/go.mod", self.folder)
            })
    }
}

/// Settings of `go build`.
impl Component {
    /// The kubelet and kube-proxy belong to Kubernetes.
    pub(super) fn module(self) -> &'static Module {
        match self {
            Self::Containerd
            | Self::ContainerdShim
            | Self::Ctr
            | Self::Runc
            | Self::Ptp
            | Self::Loopback
            | Self::HostLocal
            | Self::Pause
            | Self::Hello => &NODE,
            Self::CoreDns => &DNS,
            Self::Helm => &HELM,
            Self::CertManager | Self::CertManagerKinds => &CERT_MANAGER,
            _ => &KUBERNETES,
        }
    }

    pub(super) fn source(self) -> Source {
        let name = self.name();
        Source::Package(match self {
            Self::CertManagerKinds => {
                let module = "github.com/cert-manager/cert-manager";
                return Source::Documents { module, folder: "deploy/crds" };
            }
            Self::CertManager | Self::CoreDns => ".".to_owned(),
            Self::Etcd => "go.etcd.io/etcd/server/v3".to_owned(),
            Self::Containerd | Self::ContainerdShim | Self::Ctr => {
                format!("github.com/containerd/containerd/v2/cmd/{name}")
            }
            Self::Runc => "github.com/opencontainers/runc".to_owned(),
            Self::Ptp | Self::Loopback => {
                format!("github.com/containernetworking/plugins/plugins/main/{name}")
            }
            Self::HostLocal => format!("github.com/containernetworking/plugins/plugins/ipam/{name}"),
            Self::Helm => "helm.sh/helm/v4/cmd/helm".to_owned(),
            Self::Pause | Self::Hello => format!("./{name}"),
            _ => format!("k8s.io/kubernetes/cmd/{name}"),
        })
    }

    pub(super) fn ldflags(package: &str) -> Result<String, Error> {
        Ok(if package.starts_with("k8s.io/kubernetes/") {
            // Built outside its own repository, a program does not know its version and would report v0.0.0.
            let version = KUBERNETES.version("k8s.io/kubernetes")?;
            format!("-s -w -X k8s.io/component-base/version.gitVersion={version}")
        } else {
            "-s -w".to_owned()
        })
    }

    pub(super) fn tags(self) -> &'static str {
        match self {
            // Unused snapshotters; the first needs kernel headers.
            Self::Containerd => "no_btrfs,no_devmapper,no_zfs",
            Self::Runc => "seccomp",
            _ => "",
        }
    }

    /// Returns `true` for runc, which enters namespaces in C code before Go's runtime starts threads, and links libseccomp. All
    /// others are static.
    pub(super) fn needs_c(self) -> bool {
        self == Self::Runc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_go_mod() {
        assert!(KUBERNETES.version("k8s.io/kubernetes").unwrap().starts_with("v1."));
        for module in MODULES {
            assert!(module.version("go").unwrap().starts_with("1."));
        }
        assert!(NODE.version("github.com/opencontainers/runc").unwrap().starts_with("v1."));
        KUBERNETES.version("k8s.io/kube").unwrap_err();
    }

    /// Otherwise `go mod tidy` would drop the requirements of that program.
    #[test]
    fn every_program_is_named_in_its_module() {
        let components = Component::CONTROL_PLANE.into_iter().chain(Component::NODE).chain([
            Component::Kubectl,
            Component::Helm,
            Component::CertManager,
        ]);
        for component in components {
            let Source::Package(package) = component.source() else { panic!("{component:?}") };
            if package.starts_with('.') {
                continue;
            }
            let module = component.module().folder;
            let programs = std::fs::read_to_string(format!("{module}/programs.go")).unwrap();
            assert!(programs.contains(&format!("_ \"{package}\"\n")), "{package} in {module}");
        }
    }
}
