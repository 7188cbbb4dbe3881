//! Programs of the test bed: where they are, and what they are built from.

mod build;
mod releases;
mod settings;

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest as _, Sha256};
use snafu::{OptionExt as _, ResultExt as _, ensure_whatever};

use crate::{Error, process};
use releases::RELEASES;
use settings::ASSETS;

/// Minor version of Kubernetes, such as `1.31`.
const MINOR: &str = "LUCID_TESTBED_KUBERNETES";

/// Programs of Kubernetes, by the beginning of their packages.
const COMMANDS: &str = "k8s.io/kubernetes/cmd/";

/// A program of the control plane, of a node, or an additional one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component {
    /// etcd, the store of the API server.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kubectl, the command line client.
    Kubectl,
    /// kubelet, the node agent that runs pods.
    Kubelet,
    /// kube-proxy, which routes the cluster IPs of Services to pods.
    KubeProxy,
    /// containerd, the container runtime of the kubelet.
    Containerd,
    /// The shim of containerd, which supervises the containers of a pod.
    ContainerdShim,
    /// The command line client of containerd.
    Ctr,
    /// runc, which starts containers.
    Runc,
    /// CNI plugin: a veth pair for each pod.
    Ptp,
    /// CNI plugin: the pod's loopback device.
    Loopback,
    /// CNI plugin: assigns the addresses of pods.
    HostLocal,
    /// CoreDNS, which resolves the names of Services.
    CoreDns,
    /// The static program that holds a pod's namespaces.
    Pause,
    /// helm, the package manager.
    Helm,
    /// cert-manager's controller and its cainjector, in one program.
    CertManager,
    /// Not a program: the CustomResourceDefinitions of cert-manager, YAML documents in one file.
    CertManagerKinds,
    /// A static program for pods of tests: responds to HTTP requests with the pod's name. Listens on the address in its
    /// argument, by default `:8080`.
    Hello,
}

impl Component {
    /// Programs that [`Builder`](crate::Builder) starts at most without [`Builder::nodes`](crate::Builder::nodes).
    pub(crate) const CONTROL_PLANE: [Self; 4] =
        [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    /// Additional programs for [`Builder::nodes`](crate::Builder::nodes).
    pub(crate) const NODE: [Self; 12] = [
        Self::Kubelet,
        Self::KubeProxy,
        Self::Containerd,
        Self::ContainerdShim,
        Self::Ctr,
        Self::Runc,
        Self::Ptp,
        Self::Loopback,
        Self::HostLocal,
        Self::CoreDns,
        Self::Pause,
        Self::Hello,
    ];

    /// Files needed by [`Builder::cert_manager`](crate::Builder::cert_manager) and
    /// [`Builder::cainjector`](crate::Builder::cainjector).
    pub(crate) const CERT_MANAGER: [Self; 2] = [Self::CertManager, Self::CertManagerKinds];

    /// Finds a program by its file name.
    fn named(name: &str) -> Result<Self, Error> {
        let all = Self::CONTROL_PLANE.into_iter().chain(Self::NODE).chain(Self::CERT_MANAGER);
        let all: Vec<_> = all.chain([Self::Kubectl, Self::Helm]).collect();
        let found = all.iter().copied().find(|component| component.name() == name);
        found.with_whatever_context(|| {
            let known = all.into_iter().map(Self::name).collect::<Vec<_>>().join(", ");
            format!("failed to find a program: expected one of {known}; found {name}")
        })
    }

    /// The file name of the program, such as `kube-apiserver`.
    pub(crate) fn name(self) -> &'static str {
        self.source().0
    }

    /// File name, module, and package to compile; for cert-manager's definitions the folder in a required module.
    fn source(self) -> (&'static str, &'static Module, &'static str) {
        match self {
            Self::Etcd => ("etcd", &KUBERNETES, settings::ETCD),
            Self::ApiServer => ("kube-apiserver", &KUBERNETES, settings::API_SERVER),
            Self::ControllerManager => {
                ("kube-controller-manager", &KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager")
            }
            Self::Scheduler => ("kube-scheduler", &KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler"),
            Self::Kubectl => ("kubectl", &KUBERNETES, "k8s.io/kubernetes/cmd/kubectl"),
            Self::Kubelet => ("kubelet", &KUBERNETES, "k8s.io/kubernetes/cmd/kubelet"),
            Self::KubeProxy => ("kube-proxy", &KUBERNETES, "k8s.io/kubernetes/cmd/kube-proxy"),
            Self::Containerd => ("containerd", &NODE, "github.com/containerd/containerd/v2/cmd/containerd"),
            Self::ContainerdShim => (
                "containerd-shim-runc-v2",
                &NODE,
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            ),
            Self::Ctr => ("ctr", &NODE, "github.com/containerd/containerd/v2/cmd/ctr"),
            Self::Runc => ("runc", &NODE, "github.com/opencontainers/runc"),
            Self::Ptp => ("ptp", &NODE, "github.com/containernetworking/plugins/plugins/main/ptp"),
            Self::Loopback => {
                ("loopback", &NODE, "github.com/containernetworking/plugins/plugins/main/loopback")
            }
            Self::HostLocal => {
                ("host-local", &NODE, "github.com/containernetworking/plugins/plugins/ipam/host-local")
            }
            Self::Pause => ("pause", &NODE, "./pause"),
            Self::Hello => ("hello", &NODE, "./hello"),
            Self::CoreDns => ("coredns", &DNS, "."),
            Self::Helm => ("helm", &HELM, "helm.sh/helm/v4/cmd/helm"),
            Self::CertManager => ("cert-manager", &CERT_MANAGER, "."),
            Self::CertManagerKinds => ("cert-manager-kinds.yaml", &CERT_MANAGER, "deploy/crds"),
        }
    }
}

/// A go.mod, which pins the versions of programs.
#[derive(Debug)]
struct Module {
    /// Folder in this package; empty for a release of Kubernetes, whose files are generated for a build.
    folder: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
    /// Paths and texts of our own programs.
    sources: &'static [(&'static str, &'static str)],
}

macro_rules! module {
    ($folder:literal $(, $source:literal)*) => {
        Module {
            folder: $folder,
            go_mod: include_str!(concat!("../", $folder, "/go.mod")),
            go_sum: include_str!(concat!("../", $folder, "/go.sum")),
            sources: &[$(($source, include_str!(concat!("../", $folder, "/", $source)))),*],
        }
    };
}

/// Kubernetes with the kubelet and kube-proxy, and etcd.
static KUBERNETES: Module = module!("components");
/// Programs of a node, whose requirements would select other versions of Kubernetes' dependencies.
static NODE: Module = module!("components/node", "pause/main.go", "hello/main.go");
/// DNS server of the cluster, in a separate module for the same reason.
static DNS: Module = module!("components/dns", "main.go");
/// Helm, which needs another version of client-go than the control plane.
static HELM: Module = module!("components/helm");
/// Our own program built from cert-manager's packages: no proxy serves the modules of its own programs.
static CERT_MANAGER: Module = module!("components/certmanager", "main.go");

static MODULES: [&Module; 5] = [&KUBERNETES, &NODE, &DNS, &HELM, &CERT_MANAGER];

impl Module {
    /// Folder name of the module's programs, unique per version.
    fn key(&self) -> String {
        let mut hash = Sha256::new().chain_update(self.go_mod).chain_update(self.go_sum);
        for (_, text) in self.sources {
            hash.update(text);
        }
        hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the paths and texts of its files.
    fn files(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        [("go.mod", self.go_mod), ("go.sum", self.go_sum)].into_iter().chain(self.sources.iter().copied())
    }

    /// Returns `true` for a release of Kubernetes without files of ours.
    const fn is_generated(&self) -> bool {
        self.folder.is_empty()
    }

    fn version(&self, name: &str) -> Result<&'static str, Error> {
        let version = self.go_mod.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip_while(|word| *word == "require");
            (words.next() == Some(name)).then(|| words.next())?
        });
        version.with_whatever_context(|| {
            format!("failed to find the version of {name} in the go.mod of the test bed")
        })
    }
}

/// Returns the path of a program of the test bed by its file name, such as `kubectl` or `helm`. Builds it if it is missing.
///
/// # Errors
///
/// Returns an error if the test bed has no such program, and those of [`Builder::start`](crate::Builder::start) for programs.
pub async fn binary(name: &str) -> Result<PathBuf, Error> {
    let (binaries, component) = (Binaries::from_env()?, Component::named(name)?);
    binaries.ensure_async(&[component]).await?;
    Ok(binaries.path(component))
}

/// Folders of the programs, which may not be built yet.
///
/// [`Binaries::from_env`] selects the folder named by `KUBEBUILDER_ASSETS`. If that is unset, it selects
/// `<key>` in `LUCID_TESTBED_CACHE`, else in `lucid/testbed` of the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`). The key is a hash of the go.mod, the
/// go.sum and our own sources of the Go module that pins the program, so each version has its own folder.
///
/// `LUCID_TESTBED_KUBERNETES` selects a minor version of Kubernetes as [`Binaries::kubernetes`] does.
#[derive(Clone, Debug)]
pub(crate) struct Binaries {
    place: Place,
    kubernetes: &'static Module,
}

#[derive(Clone, Debug)]
enum Place {
    /// Prebuilt programs: a missing one is an error, and is not built.
    Assets(PathBuf),
    /// Contains a folder for each module.
    Cache(PathBuf),
}

impl Binaries {
    /// Selects the folder by the environment. Builds and creates nothing yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the environment names neither a cache nor a home folder, or an unknown version of Kubernetes.
    pub(crate) fn from_env() -> Result<Self, Error> {
        let place = if let Some(assets) = env::var_os(ASSETS).filter(|value| !value.is_empty()) {
            Place::Assets(assets.into())
        } else {
            Place::Cache(settings::cache().whatever_context(
                "failed to choose a cache folder: neither XDG_CACHE_HOME (an absolute path) nor HOME is set",
            )?)
        };
        let binaries = Self { place, kubernetes: &KUBERNETES };
        match env::var_os(MINOR).filter(|value| !value.is_empty()) {
            Some(minor) => binaries.kubernetes(&minor.to_string_lossy()),
            None => Ok(binaries),
        }
    }

    /// Selects the minor version of the API server, kube-controller-manager, kube-scheduler, kubelet and kube-proxy, such as
    /// `1.31`. A folder given by `KUBEBUILDER_ASSETS` is used whatever its version.
    ///
    /// # Errors
    ///
    /// Returns an error if the version is not one of [`RELEASES`].
    pub(crate) fn kubernetes(mut self, minor: &str) -> Result<Self, Error> {
        let release = RELEASES.into_iter().find(|module| module.minor() == Some(minor));
        self.kubernetes = release.with_whatever_context(|| {
            let known: Vec<_> = RELEASES.iter().filter_map(|module| module.minor()).collect();
            let known = known.join(", ");
            format!("failed to select Kubernetes: expected one of {known}; found {minor:?}")
        })?;
        Ok(self)
    }

    /// Folder of kubectl and etcd, and of the programs of Kubernetes in the version that is built by default.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder_of(&KUBERNETES)
    }

    /// Folder of containerd, runc and the CNI plugins.
    pub(crate) fn node_folder(&self) -> PathBuf {
        self.folder_of(&NODE)
    }

    fn folder_of(&self, module: &Module) -> PathBuf {
        match &self.place {
            Place::Assets(folder) => folder.clone(),
            Place::Cache(folder) => folder.join(module.key()),
        }
    }

    fn module_of(&self, component: Component) -> &'static Module {
        match component.source() {
            // kubectl supports older and newer API servers, and pages of the documentation show the output of one version.
            (_, _, package) if package.starts_with(COMMANDS) && component != Component::Kubectl => {
                self.kubernetes
            }
            (_, module, _) => module,
        }
    }

    /// Path of one program. The file exists after [`Binaries::ensure_async`] was called for it.
    pub(crate) fn path(&self, component: Component) -> PathBuf {
        self.folder_of(self.module_of(component)).join(component.name())
    }

    /// Builds the missing programs among `components`, with progress on standard error.
    ///
    /// The first build takes minutes. The folder is locked meanwhile: one process or thread builds, and the others wait and
    /// report that. A program appears under its name only when it is complete. Dropping the future cancels the build: the drop
    /// waits until Go has ended and the unfinished program is removed. Finished programs stay.
    ///
    /// # Errors
    ///
    /// Returns an error if a folder given by `KUBEBUILDER_ASSETS` lacks a program, if Go is missing or too old, or if the build
    /// fails.
    pub(crate) async fn ensure_async(&self, components: &[Component]) -> Result<(), Error> {
        match &self.place {
            Place::Assets(folder) => self.find(components, folder),
            Place::Cache(_) => build::missing(self, components).await,
        }
    }

    /// Checks that the programs are in the folder given by `KUBEBUILDER_ASSETS`, or can be built.
    pub(crate) fn check(&self, components: &[Component]) -> Result<(), Error> {
        if let Place::Assets(folder) = &self.place {
            return self.find(components, folder);
        }
        let missing: Vec<_> =
            components.iter().copied().filter(|component| !self.path(*component).exists()).collect();
        if let Some(first) = missing.first() {
            build::go(self.module_of(*first))?;
        }
        if missing.contains(&Component::Runc) {
            let tools = ["-c", "cc --version && pkg-config --exists libseccomp"];
            process::output(Command::new("sh").args(tools)).whatever_context(
                "failed to run a node: to build runc, a C compiler, pkg-config and libseccomp-dev are needed",
            )?;
        }
        Ok(())
    }

    fn find(&self, components: &[Component], folder: &Path) -> Result<(), Error> {
        for component in components {
            ensure_whatever!(
                self.path(*component).is_file(),
                "failed to find {} in {}, the folder that {ASSETS} names; put it there, or unset {ASSETS} to build it from source",
                component.name(),
                folder.display()
            );
        }
        Ok(())
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

    #[test]
    fn programs_of_another_version_have_a_folder_of_their_own() {
        let binaries = |minor| {
            let place = Place::Cache("cache".into());
            Binaries { place, kubernetes: &KUBERNETES }.kubernetes(minor).unwrap()
        };
        let (oldest, pinned) = (binaries("1.30"), binaries(KUBERNETES.minor().unwrap()));
        for (component, differs) in [
            (Component::ApiServer, true),
            (Component::Kubelet, true),
            (Component::Kubectl, false),
            (Component::Etcd, false),
        ] {
            assert_eq!(oldest.path(component) != pinned.path(component), differs, "{component:?}");
        }
        assert_eq!(pinned.path(Component::ApiServer), pinned.folder().join("kube-apiserver"));
        let error = oldest.kubernetes("1.3").unwrap_err().to_string();
        assert!(error.contains("expected one of 1.30, 1.31") && error.contains("found \"1.3\""), "{error}");
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
            let (_, Module { folder, .. }, package) = component.source();
            if package.starts_with('.') {
                continue;
            }
            let programs = std::fs::read_to_string(format!("{folder}/programs.go")).unwrap();
            assert!(programs.contains(&format!("_ \"{package}\"\n")), "{package} in {folder}");
        }
    }
}
