//! Views of a pod that borrow from its JSON: [`container`] has containers, [`probe`] probes, and [`json`] the
//! borrowing values.

mod container;
mod json;
mod probe;

use std::{collections::BTreeMap, ops::Deref};

use serde::Deserialize;
use serde_json::value::RawValue;

pub use container::{ContainerView, PortView};
pub use json::PodError;
pub(crate) use json::{List, Object, Text};

use crate::{
    privileges::Privileges,
    volume::{MountView, VolumeView},
};
use container::Containers;
use json::{Named, decode, too_many};

/// The fields of a core/v1 Pod that planning reads; all others are ignored.
///
/// A list or map that is `null` counts as absent, as in kube-apiserver.
#[derive(Debug, Clone)]
pub struct PodView<'a> {
    metadata: Option<Metadata<'a>>,
    restart_policy: Option<Text<'a>>,
    service_account: Option<Text<'a>>,
    automounts_token: Option<bool>,
    host_network: bool,
    host_pid: bool,
    host_ipc: bool,
    hostname: Option<Text<'a>>,
    hostname_override: Option<Text<'a>>,
    host_aliases: List<Object<HostAlias<'a>>>,
    shares_processes: bool,
    privileges: Option<Object<Privileges<'a>>>,
    windows: bool,
    pull_secrets: Option<List<Object<Named<'a>>>>,
    has_init_containers: bool,
    resources: Option<RawResources<'a>>,
    has_volumes: bool,
    volumes: List<Object<VolumeView<'a>>>,
    containers: Vec<ContainerView<'a>>,
    init_containers: Vec<ContainerView<'a>>,
    ephemeral_containers: Vec<ContainerView<'a>>,
}

impl<'a> PodView<'a> {
    /// Parses the JSON of a pod.
    ///
    /// # Errors
    /// Returns [`PodError`], with the JSON path, if the text is not a JSON object, `spec` is missing, or a field that
    /// planning reads has the wrong type or is too large. The limits keep the cost linear in the size of the pod:
    /// 1,024 containers of each kind; 65,536 ports, variables, mounts and capabilities in total for each kind; 1,024
    /// volumes; and 253 bytes for the name of a container or volume.
    pub fn from_json(json: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, PodError> {
        let json = str::from_utf8(json.as_ref()).map_err(|error| PodError::new(".", error))?;
        let pod: Object<RawPod<'a>> = serde_json::from_str(json).or_else(|_| decode(json))?;
        let Object(pod) = pod;
        let Some(Object(spec)) = pod.spec else { return Err(PodError::new("spec", "missing")) };
        let has_volumes = spec.volumes.is_some();
        let volumes = spec.volumes.unwrap_or_default();
        if volumes.len() > MAX_ITEMS {
            return Err(PodError::new("spec.volumes", too_many(volumes.len(), MAX_ITEMS)));
        }
        check_names("volumes", volumes.iter().map(|Object(volume)| volume.name()))?;
        let list = |list: Option<Containers<'a>>, name: &str| {
            let list = list.map(|list| list.located(json, name)).unwrap_or_default();
            check_names(name, list.iter().map(ContainerView::name))?;
            Ok(list)
        };
        Ok(Self {
            metadata: pod.metadata.map(|Object(metadata)| metadata),
            restart_policy: spec.restart_policy,
            service_account: spec
                .service_account_name
                .filter(|name| !name.is_empty())
                .or(spec.service_account),
            automounts_token: spec.automount_service_account_token,
            host_network: spec.host_network.unwrap_or_default(),
            host_pid: spec.host_pid.unwrap_or_default(),
            host_ipc: spec.host_ipc.unwrap_or_default(),
            hostname: spec.hostname,
            hostname_override: spec.hostname_override,
            host_aliases: spec.host_aliases.unwrap_or_default(),
            shares_processes: spec.share_process_namespace.unwrap_or_default(),
            privileges: spec.security_context,
            windows: spec.os.is_some_and(|Object(os)| os.name.as_deref() == Some("windows")),
            pull_secrets: spec.image_pull_secrets,
            has_init_containers: spec.init_containers.is_some(),
            resources: spec.resources.map(|Object(resources)| resources),
            has_volumes,
            volumes,
            containers: list(spec.containers, "containers")?,
            init_containers: list(spec.init_containers, "initContainers")?,
            ephemeral_containers: list(spec.ephemeral_containers, "ephemeralContainers")?,
        })
    }

    /// `metadata.name`; `None` until the name is generated.
    pub fn name(&self) -> Option<&str> {
        self.metadata.as_ref()?.name.as_deref()
    }

    /// `metadata.generateName`.
    pub fn generate_name(&self) -> Option<&str> {
        self.metadata.as_ref()?.generate_name.as_deref()
    }

    /// `metadata.namespace`.
    pub fn namespace(&self) -> Option<&str> {
        self.metadata.as_ref()?.namespace.as_deref()
    }

    /// JSON of `metadata.ownerReferences`.
    pub fn owner_references(&self) -> Option<&'a RawValue> {
        self.metadata.as_ref()?.owner_references
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.as_ref()?.labels.as_ref()?.get(key).map(Deref::deref)
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.as_ref()?.annotations.as_ref()?.get(key).map(Deref::deref)
    }

    /// `metadata.labels`, sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(self.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()))
    }

    /// `metadata.annotations`, sorted by key.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(self.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref()))
    }

    /// `spec.restartPolicy`; `Always` if absent.
    pub fn restart_policy(&self) -> &str {
        self.restart_policy.as_deref().filter(|policy| !policy.is_empty()).unwrap_or("Always")
    }

    /// `spec.serviceAccountName`; `default` if absent.
    pub fn service_account(&self) -> &str {
        self.service_account.as_deref().filter(|account| !account.is_empty()).unwrap_or("default")
    }

    /// `spec.automountServiceAccountToken`; if absent, the value of the ServiceAccount applies.
    pub fn automounts_token(&self) -> Option<bool> {
        self.automounts_token
    }

    /// Returns `true` if no container has a mount at the path of the ServiceAccount token. After the admission plugin
    /// ServiceAccount, it means that the pod's token is not mounted automatically. Containers that other webhooks have added
    /// since may have none in any case.
    pub fn lacks_token(&self) -> bool {
        let mut containers = self.containers.iter().chain(&self.init_containers);
        !containers.any(|found| found.mounts().any(MountView::is_token))
    }

    /// `spec.hostNetwork`.
    pub fn host_network(&self) -> bool {
        self.host_network
    }

    /// `spec.hostPID`.
    pub fn host_pid(&self) -> bool {
        self.host_pid
    }

    /// `spec.hostIPC`.
    pub fn host_ipc(&self) -> bool {
        self.host_ipc
    }

    /// `spec.hostname`, or the name of the pod: the host name of the pod's address in its hosts file.
    pub fn hostname(&self) -> Option<&str> {
        self.hostname.as_deref().filter(|name| !name.is_empty()).or(self.name())
    }

    /// `spec.hostnameOverride` (KEP-4762), which replaces [`hostname`](Self::hostname) in the pod's hosts file.
    pub fn hostname_override(&self) -> Option<&str> {
        self.hostname_override.as_deref()
    }

    /// Iterates over address and name of each entry that `spec.hostAliases` adds to the pod's hosts file.
    pub fn host_aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.host_aliases.iter().flat_map(|Object(alias)| {
            let address = alias.ip.as_deref().unwrap_or_default();
            alias.hostnames.iter().flatten().map(move |name| (address, &**name))
        })
    }

    /// `spec.shareProcessNamespace`.
    pub fn shares_processes(&self) -> bool {
        self.shares_processes
    }

    /// `spec.securityContext`, the default for containers that do not override it. It sets only users: capabilities
    /// and `privileged` exist only in containers.
    pub fn privileges(&self) -> Option<&Privileges<'a>> {
        self.privileges.as_ref().map(|Object(privileges)| privileges)
    }

    /// Iterates over the image volumes (KEP-4639) in `spec.volumes`: the name and `image.reference`, which is empty
    /// if absent.
    pub fn image_volumes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.volumes.iter().filter_map(|Object(volume)| Some((volume.name(), volume.image()?)))
    }

    /// Iterates over the `hostPath` volumes in `spec.volumes`: the name and `hostPath.path`, which is empty if
    /// absent.
    pub fn host_paths(&self) -> impl Iterator<Item = (&str, &str)> {
        self.volumes.iter().filter_map(|Object(volume)| Some((volume.name(), volume.host_path()?)))
    }

    /// `spec.containers`.
    pub fn containers(&self) -> &[ContainerView<'a>] {
        &self.containers
    }

    /// `spec.initContainers`.
    pub fn init_containers(&self) -> &[ContainerView<'a>] {
        &self.init_containers
    }

    /// `spec.ephemeralContainers`.
    pub fn ephemeral_containers(&self) -> &[ContainerView<'a>] {
        &self.ephemeral_containers
    }

    /// Iterates over containers and init containers.
    pub(crate) fn all_containers(&self) -> impl Iterator<Item = &ContainerView<'a>> {
        self.containers.iter().chain(&self.init_containers)
    }

    pub(crate) fn has_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    pub(crate) fn has_annotations(&self) -> bool {
        self.metadata.as_ref().is_some_and(|metadata| metadata.annotations.is_some())
    }

    /// Returns the size of the annotations other than `except`, in bytes, as counted by the API server.
    pub(crate) fn annotations_size(&self, except: &str) -> usize {
        let annotations = self.metadata.iter().filter_map(|metadata| metadata.annotations.as_ref()).flatten();
        annotations.filter(|(key, _)| ***key != *except).map(|(key, value)| key.len() + value.len()).sum()
    }

    pub(crate) fn has_init_containers(&self) -> bool {
        self.has_init_containers
    }

    /// Iterates over the names in `spec.imagePullSecrets`; `None` if the list is absent.
    pub(crate) fn pull_secrets(&self) -> Option<impl Iterator<Item = &str>> {
        let secrets = self.pull_secrets.as_ref()?;
        Some(secrets.iter().filter_map(|Object(secret)| secret.name.as_deref()))
    }

    /// Iterates over the native sidecars (KEP-753), with their indices in `spec.initContainers`.
    pub(crate) fn native_sidecars(&self) -> impl Iterator<Item = (usize, &ContainerView<'a>)> {
        self.init_containers.iter().enumerate().filter(|(_, container)| container.is_native_sidecar())
    }

    /// Returns `true` if `spec.os.name` is `windows`.
    pub(crate) fn is_windows(&self) -> bool {
        self.windows
    }

    /// `spec.resources`, the pod-level resources.
    pub(crate) fn resources(&self) -> Option<&RawResources<'a>> {
        self.resources.as_ref()
    }

    pub(crate) fn has_volumes(&self) -> bool {
        self.has_volumes
    }

    /// Returns the first volume with this name and its index.
    pub(crate) fn volume(&self, name: &str) -> Option<(usize, &VolumeView<'a>)> {
        let place = self.volumes.iter().position(|Object(volume)| volume.name() == name)?;
        let Object(volume) = &self.volumes[place];
        Some((place, volume))
    }

    /// Returns `true` if the pod has a volume of this name and every such volume [holds only
    /// tokens](VolumeView::has_tokens).
    pub(crate) fn has_tokens(&self, name: &str, with_api_access: bool) -> bool {
        let mut named = self.volumes.iter().filter(|Object(volume)| volume.name() == name).peekable();
        named.peek().is_some() && named.all(|Object(volume)| volume.has_tokens(with_api_access))
    }
}

#[derive(Deserialize)]
struct RawPod<'a> {
    #[serde(borrow)]
    metadata: Option<Object<Metadata<'a>>>,
    #[serde(borrow)]
    spec: Option<Object<RawSpec<'a>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    generate_name: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    #[serde(borrow)]
    labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
    #[serde(borrow)]
    annotations: Option<BTreeMap<Text<'a>, Text<'a>>>,
    #[serde(borrow)]
    owner_references: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpec<'a> {
    #[serde(borrow)]
    restart_policy: Option<Text<'a>>,
    #[serde(borrow)]
    service_account_name: Option<Text<'a>>,
    /// Deprecated alias of `serviceAccountName`, which the API server keeps in sync.
    #[serde(borrow)]
    service_account: Option<Text<'a>>,
    automount_service_account_token: Option<bool>,
    host_network: Option<bool>,
    #[serde(rename = "hostPID")]
    host_pid: Option<bool>,
    #[serde(rename = "hostIPC")]
    host_ipc: Option<bool>,
    #[serde(borrow)]
    hostname: Option<Text<'a>>,
    #[serde(borrow)]
    hostname_override: Option<Text<'a>>,
    #[serde(borrow)]
    host_aliases: Option<List<Object<HostAlias<'a>>>>,
    share_process_namespace: Option<bool>,
    #[serde(borrow)]
    security_context: Option<Object<Privileges<'a>>>,
    #[serde(borrow)]
    image_pull_secrets: Option<List<Object<Named<'a>>>>,
    #[serde(borrow)]
    os: Option<Object<Named<'a>>>,
    #[serde(borrow)]
    resources: Option<Object<RawResources<'a>>>,
    #[serde(borrow)]
    volumes: Option<List<Object<VolumeView<'a>>>>,
    #[serde(borrow)]
    containers: Option<Containers<'a>>,
    #[serde(borrow)]
    init_containers: Option<Containers<'a>>,
    #[serde(borrow)]
    ephemeral_containers: Option<Containers<'a>>,
}

/// JSON of quantities by resource name; a quantity may be a string or a number.
pub(crate) type Quantities<'a> = BTreeMap<Text<'a>, &'a RawValue>;

/// `resources`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct RawResources<'a> {
    #[serde(borrow)]
    pub(crate) requests: Option<Quantities<'a>>,
    #[serde(borrow)]
    pub(crate) limits: Option<Quantities<'a>>,
}

/// One entry of `hostAliases`.
#[derive(Debug, Clone, Deserialize)]
struct HostAlias<'a> {
    #[serde(borrow)]
    ip: Option<Text<'a>>,
    #[serde(borrow)]
    hostnames: Option<List<Text<'a>>>,
}

/// Maximum number of containers of each kind, and of volumes.
const MAX_ITEMS: usize = 1024;
/// Maximum length of a container or volume name: a DNS subdomain (RFC 1123).
const MAX_NAME: usize = 253;

fn check_names<'n>(list: &str, names: impl Iterator<Item = &'n str>) -> Result<(), PodError> {
    match names.enumerate().find(|(_, name)| name.len() > MAX_NAME) {
        None => Ok(()),
        Some((index, name)) => {
            let problem = format_args!("found {} bytes, accepted at most {MAX_NAME}", name.len());
            Err(PodError::new(format!("spec.{list}[{index}].name"), problem))
        }
    }
}

fn pairs<'t>(map: Option<&'t BTreeMap<Text<'_>, Text<'_>>>) -> impl Iterator<Item = (&'t str, &'t str)> {
    map.into_iter().flatten().map(|(key, value)| (&**key, &**value))
}
