//! Locations of the programs of the control plane.

mod build;
mod given_up;
mod go;
mod module;
mod progress;

use std::{env, path::PathBuf};

use snafu::{OptionExt as _, ResultExt as _, ensure_whatever};

use crate::Error;

use given_up::GivenUp;
use module::{KUBERNETES, Module, NODE};

const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// A program of the control plane, of a node, or an additional one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Component {
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
    /// A static program for pods of tests: answers HTTP requests with the pod's name. Listens on the address in its argument,
    /// by default `:8080`.
    Hello,
}

impl Component {
    /// Programs that [`Builder`](crate::Builder) starts at most without [`Builder::node`](crate::Builder::node).
    pub const CONTROL_PLANE: [Self; 4] =
        [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    /// Additional programs for [`Builder::node`](crate::Builder::node).
    pub const NODE: [Self; 12] = [
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
    pub const CERT_MANAGER: [Self; 2] = [Self::CertManager, Self::CertManagerKinds];

    /// The file name of the program, such as `kube-apiserver`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Containerd => "containerd",
            Self::ContainerdShim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Runc => "runc",
            Self::Ptp => "ptp",
            Self::Loopback => "loopback",
            Self::HostLocal => "host-local",
            Self::CoreDns => "coredns",
            Self::Helm => "helm",
            Self::CertManager => "cert-manager",
            Self::CertManagerKinds => "cert-manager-kinds.yaml",
            Self::Pause => "pause",
            Self::Hello => "hello",
        }
    }
}

/// Folders of the programs, which may not be built yet.
///
/// [`Binaries::from_env`] selects the folder named by `KUBEBUILDER_ASSETS`. If that is unset, it selects
/// `lucid/testbed/<key>` in the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`). The key is a hash of the go.mod, the
/// go.sum and our own sources of the Go module that pins the program, so each version has its own folder.
#[derive(Clone, Debug)]
pub struct Binaries(Place);

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
    /// Returns an error if the environment names neither a cache nor a home folder.
    pub fn from_env() -> Result<Self, Error> {
        if let Some(assets) = env::var_os(ASSETS).filter(|value| !value.is_empty()) {
            return Ok(Self(Place::Assets(assets.into())));
        }
        // A relative XDG_CACHE_HOME is invalid and ignored (XDG Base Directory Specification).
        let cache = env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(env::home_dir()?.join(".cache")))
            .whatever_context(
                "failed to choose a cache folder: neither XDG_CACHE_HOME (an absolute path) nor HOME is set",
            )?;
        Ok(Self(Place::Cache(cache.join("lucid/testbed"))))
    }

    /// Folder of the programs of Kubernetes and etcd.
    pub fn folder(&self) -> PathBuf {
        self.folder_of(&KUBERNETES)
    }

    /// Folder of containerd, runc and the CNI plugins.
    pub(crate) fn node_folder(&self) -> PathBuf {
        self.folder_of(&NODE)
    }

    fn folder_of(&self, module: &Module) -> PathBuf {
        match &self.0 {
            Place::Assets(folder) => folder.clone(),
            Place::Cache(folder) => folder.join(module.key()),
        }
    }

    /// Path of one program. The file exists after [`Binaries::ensure`] was called for it.
    pub fn path(&self, component: Component) -> PathBuf {
        self.folder_of(component.module()).join(component.name())
    }

    /// Builds the missing programs among `components`, with progress on standard error. Blocks, for minutes the first time.
    ///
    /// The folder is locked meanwhile: one process or thread builds, and the others wait and report that. A program appears
    /// under its name only when it is complete.
    ///
    /// # Errors
    ///
    /// Returns an error if a folder given by `KUBEBUILDER_ASSETS` lacks a program, if Go is missing or too old, or if the build
    /// fails.
    pub fn ensure(&self, components: &[Component]) -> Result<(), Error> {
        let (_wish, given_up) = given_up::channel();
        self.ensure_unless(given_up, components)
    }

    /// Like [`Binaries::ensure`], without blocking the task.
    ///
    /// Dropping the future cancels the build: the drop waits until Go has ended and the unfinished program is removed. Finished
    /// programs stay.
    ///
    /// # Errors
    ///
    /// See [`Binaries::ensure`].
    pub async fn ensure_async(&self, components: &[Component]) -> Result<(), Error> {
        let (_wish, given_up) = given_up::channel();
        let (binaries, components) = (self.clone(), components.to_owned());
        tokio::task::spawn_blocking(move || binaries.ensure_unless(given_up, &components))
            .await
            .whatever_context("failed to wait for the build")?
    }

    fn ensure_unless(&self, given_up: GivenUp, components: &[Component]) -> Result<(), Error> {
        let Place::Assets(folder) = &self.0 else { return build::ensure(self, components, &given_up) };
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

    fn missing(&self, components: &[Component]) -> Vec<Component> {
        components.iter().copied().filter(|component| !self.path(*component).exists()).collect()
    }
}

const ALTERNATIVE: &str = "install it from https://go.dev/dl, or set KUBEBUILDER_ASSETS to a folder that \
     holds etcd and kube-apiserver (and kube-controller-manager, kube-scheduler, kubectl and the programs of a node where asked \
     for)";
