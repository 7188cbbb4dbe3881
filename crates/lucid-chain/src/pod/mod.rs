//! Views of a pod that borrow from its JSON: [`container`] has containers, [`probe`] probes.

mod container;
mod error;
mod probe;

use std::{collections::BTreeMap, ops::Deref};

use lucid_text::json::{Error, LONGEST_LIST, Reader, Text};

pub use container::ContainerView;
pub use error::PodError;
pub(crate) use probe::Protocol;

use crate::{
    privileges::Privileges,
    trigger::Trigger,
    volume::{MountView, VolumeView},
};

/// The fields of a core/v1 Pod that planning reads; all others are ignored.
///
/// A list or map that is `null` counts as absent, as in kube-apiserver.
#[derive(Debug, Clone, Default)]
pub struct PodView<'a> {
    metadata: Option<Metadata<'a>>,
    spec: Spec<'a>,
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
        Self::read(json.as_ref()).map_err(|source| PodError { source })
    }

    fn read(json: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(str::from_utf8(json).map_err(Error::new)?);
        let (mut metadata, mut spec) = (None, None);
        reader.object(|reader, key| match key {
            "metadata" => reader.member(&mut metadata, Metadata::read),
            "spec" => reader.member(&mut spec, Spec::read),
            _ => reader.skip(),
        })?;
        reader.end()?;
        let spec = spec.ok_or_else(|| Error::new("missing").within("spec"))?;
        Ok(Self { metadata, spec })
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
    pub fn owner_references(&self) -> Option<&'a str> {
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

    /// Returns `true` if the pod requests a chain, by label or annotation.
    pub fn requests_chain(&self) -> bool {
        Trigger::from_pod(self).is_some()
    }

    /// `spec.restartPolicy`; `Always` if absent.
    pub(crate) fn restart_policy(&self) -> &str {
        self.spec.restart_policy.as_deref().filter(|policy| !policy.is_empty()).unwrap_or("Always")
    }

    /// `spec.serviceAccountName`; `default` if absent.
    pub fn service_account(&self) -> &str {
        let names = [&self.spec.service_account_name, &self.spec.service_account];
        names.into_iter().flatten().map(Deref::deref).find(|name| !name.is_empty()).unwrap_or("default")
    }

    /// `spec.automountServiceAccountToken`; if absent, the value of the ServiceAccount applies.
    pub(crate) fn automounts_token(&self) -> Option<bool> {
        self.spec.automounts_token
    }

    /// Returns `true` if no container has a mount at the path of the ServiceAccount token. After the admission plugin
    /// ServiceAccount, it means that the pod's token is not mounted automatically. Containers that other webhooks have
    /// added since may have none in any case.
    pub fn lacks_token(&self) -> bool {
        let mut containers = self.all_containers();
        !containers.any(|found| found.mounts().any(MountView::is_token))
    }

    pub(crate) fn host_network(&self) -> bool {
        self.spec.host_network.unwrap_or_default()
    }

    /// Iterates over the fields that are `true` of those by which the pod shares namespaces with the node or between
    /// its containers: `hostNetwork`, `hostPID`, `hostIPC` and `shareProcessNamespace`.
    pub fn shared_namespaces(&self) -> impl Iterator<Item = &'static str> {
        let spec = &self.spec;
        let fields = [
            ("hostNetwork", spec.host_network),
            ("hostPID", spec.host_pid),
            ("hostIPC", spec.host_ipc),
            ("shareProcessNamespace", spec.shares_processes),
        ];
        fields.into_iter().filter_map(|(name, value)| (value == Some(true)).then_some(name))
    }

    /// Iterates over the names in the pod's hosts file, each with its address; `None` for the address of the pod, whose
    /// names are `spec.hostname` or else the name of the pod, and `spec.hostnameOverride` (KEP-4762).
    pub fn host_names(&self) -> impl Iterator<Item = (Option<&str>, &str)> {
        let hostname = self.spec.hostname.as_deref().filter(|name| !name.is_empty()).or(self.name());
        let own = hostname.into_iter().chain(self.spec.hostname_override.as_deref());
        let aliases = self.spec.host_aliases.iter().flatten().flat_map(|alias| {
            let address = alias.ip.as_deref().unwrap_or_default();
            alias.hostnames.iter().flatten().map(move |name| (Some(address), &**name))
        });
        own.map(|name| (None, name)).chain(aliases)
    }

    /// `spec.securityContext`, the default for containers that do not override it. It sets only users: capabilities
    /// and `privileged` exist only in containers.
    pub fn privileges(&self) -> Option<&Privileges<'a>> {
        self.spec.privileges.as_ref()
    }

    /// Iterates over the image volumes (KEP-4639) in `spec.volumes`: the name and `image.reference`, which is empty
    /// if absent.
    pub fn image_volumes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.volumes().filter_map(|volume| Some((volume.name(), volume.image()?)))
    }

    /// Iterates over the `hostPath` volumes in `spec.volumes`: the name and `hostPath.path`, which is empty if
    /// absent.
    pub fn host_paths(&self) -> impl Iterator<Item = (&str, &str)> {
        self.volumes().filter_map(|volume| Some((volume.name(), volume.host_path()?)))
    }

    /// `spec.containers`.
    pub fn containers(&self) -> &[ContainerView<'a>] {
        self.spec.containers.as_deref().unwrap_or_default()
    }

    /// `spec.initContainers`.
    pub fn init_containers(&self) -> &[ContainerView<'a>] {
        self.spec.init_containers.as_deref().unwrap_or_default()
    }

    /// `spec.ephemeralContainers`.
    pub fn ephemeral_containers(&self) -> &[ContainerView<'a>] {
        self.spec.ephemeral_containers.as_deref().unwrap_or_default()
    }

    pub(crate) fn all_containers(&self) -> impl Iterator<Item = &ContainerView<'a>> {
        self.containers().iter().chain(self.init_containers())
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
        self.spec.init_containers.is_some()
    }

    /// Iterates over the names in `spec.imagePullSecrets`; `None` if the list is absent.
    pub(crate) fn pull_secrets(&self) -> Option<impl Iterator<Item = &str>> {
        let secrets = self.spec.pull_secrets.as_ref()?;
        Some(secrets.iter().filter_map(Option::as_deref))
    }

    /// Iterates over the native sidecars (KEP-753), with their indices in `spec.initContainers`.
    pub(crate) fn native_sidecars(&self) -> impl Iterator<Item = (usize, &ContainerView<'a>)> {
        self.init_containers().iter().enumerate().filter(|(_, container)| container.is_native_sidecar())
    }

    pub(crate) fn is_windows(&self) -> bool {
        self.spec.os.as_ref().is_some_and(|name| name.as_deref() == Some("windows"))
    }

    pub(crate) fn resources(&self) -> Option<&RawResources<'a>> {
        self.spec.resources.as_ref()
    }

    pub(crate) fn has_volumes(&self) -> bool {
        self.spec.volumes.is_some()
    }

    fn volumes(&self) -> impl Iterator<Item = &VolumeView<'a>> {
        self.spec.volumes.iter().flatten()
    }

    pub(crate) fn volume(&self, name: &str) -> Option<(usize, &VolumeView<'a>)> {
        self.volumes().enumerate().find(|(_, volume)| volume.name() == name)
    }

    /// Returns `true` if all volumes of this name [hold only tokens](VolumeView::has_tokens), and there is one.
    pub(crate) fn has_tokens(&self, name: &str, with_api_access: bool) -> bool {
        let mut named = self.volumes().filter(|volume| volume.name() == name).peekable();
        named.peek().is_some() && named.all(|volume| volume.has_tokens(with_api_access))
    }
}

#[derive(Debug, Clone, Default)]
struct Metadata<'a> {
    name: Option<Text<'a>>,
    generate_name: Option<Text<'a>>,
    namespace: Option<Text<'a>>,
    labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
    annotations: Option<BTreeMap<Text<'a>, Text<'a>>>,
    owner_references: Option<&'a str>,
}

impl<'a> Metadata<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut metadata = Self::default();
        reader.object(|reader, key| match key {
            "name" => reader.member(&mut metadata.name, Reader::text),
            "generateName" => reader.member(&mut metadata.generate_name, Reader::text),
            "namespace" => reader.member(&mut metadata.namespace, Reader::text),
            "labels" => reader.member(&mut metadata.labels, |reader| reader.map(Reader::text)),
            "annotations" => reader.member(&mut metadata.annotations, |reader| reader.map(Reader::text)),
            "ownerReferences" => reader.member(&mut metadata.owner_references, Reader::raw),
            _ => reader.skip(),
        })?;
        Ok(metadata)
    }
}

#[derive(Debug, Clone, Default)]
struct Spec<'a> {
    restart_policy: Option<Text<'a>>,
    service_account_name: Option<Text<'a>>,
    /// Deprecated alias of `serviceAccountName`, which the API server keeps in sync.
    service_account: Option<Text<'a>>,
    automounts_token: Option<bool>,
    host_network: Option<bool>,
    host_pid: Option<bool>,
    host_ipc: Option<bool>,
    hostname: Option<Text<'a>>,
    hostname_override: Option<Text<'a>>,
    host_aliases: Option<Vec<HostAlias<'a>>>,
    shares_processes: Option<bool>,
    privileges: Option<Privileges<'a>>,
    pull_secrets: Option<Vec<Option<Text<'a>>>>,
    os: Option<Option<Text<'a>>>,
    resources: Option<RawResources<'a>>,
    volumes: Option<Vec<VolumeView<'a>>>,
    containers: Option<Vec<ContainerView<'a>>>,
    init_containers: Option<Vec<ContainerView<'a>>>,
    ephemeral_containers: Option<Vec<ContainerView<'a>>>,
}

impl<'a> Spec<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut spec = Self::default();
        reader.object(|reader, key| match key {
            "restartPolicy" => reader.member(&mut spec.restart_policy, Reader::text),
            "serviceAccountName" => reader.member(&mut spec.service_account_name, Reader::text),
            "serviceAccount" => reader.member(&mut spec.service_account, Reader::text),
            "automountServiceAccountToken" => reader.member(&mut spec.automounts_token, Reader::value),
            "hostNetwork" => reader.member(&mut spec.host_network, Reader::value),
            "hostPID" => reader.member(&mut spec.host_pid, Reader::value),
            "hostIPC" => reader.member(&mut spec.host_ipc, Reader::value),
            "hostname" => reader.member(&mut spec.hostname, Reader::text),
            "hostnameOverride" => reader.member(&mut spec.hostname_override, Reader::text),
            "hostAliases" => reader.member(&mut spec.host_aliases, HostAlias::read_list),
            "shareProcessNamespace" => reader.member(&mut spec.shares_processes, Reader::value),
            "securityContext" => reader.member(&mut spec.privileges, Privileges::read),
            "imagePullSecrets" => reader.member(&mut spec.pull_secrets, |reader| reader.list(read_name)),
            "os" => reader.member(&mut spec.os, read_name),
            "resources" => reader.member(&mut spec.resources, RawResources::read),
            "volumes" => reader.member(&mut spec.volumes, read_volumes),
            "containers" => reader.member(&mut spec.containers, ContainerView::read_list),
            "initContainers" => reader.member(&mut spec.init_containers, ContainerView::read_list),
            "ephemeralContainers" => reader.member(&mut spec.ephemeral_containers, ContainerView::read_list),
            _ => reader.skip(),
        })?;
        Ok(spec)
    }
}

fn read_name<'a>(reader: &mut Reader<'a>) -> Result<Option<Text<'a>>, Error> {
    reader.only_member("name", Reader::text)
}

fn read_volumes<'a>(reader: &mut Reader<'a>) -> Result<Vec<VolumeView<'a>>, Error> {
    let volumes = reader.list(VolumeView::read)?;
    check_count(volumes.len(), MAX_ITEMS)?;
    match volumes.iter().position(|volume| volume.name().len() > MAX_NAME) {
        Some(index) => Err(too_long(index, volumes[index].name())),
        None => Ok(volumes),
    }
}

pub(crate) type Quantities<'a> = BTreeMap<Text<'a>, &'a str>;

#[derive(Debug, Clone, Default)]
pub(crate) struct RawResources<'a> {
    pub(crate) requests: Option<Quantities<'a>>,
    pub(crate) limits: Option<Quantities<'a>>,
}

impl<'a> RawResources<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut resources = Self::default();
        reader.object(|reader, key| match key {
            "requests" => reader.member(&mut resources.requests, |reader| reader.map(Reader::raw)),
            "limits" => reader.member(&mut resources.limits, |reader| reader.map(Reader::raw)),
            _ => reader.skip(),
        })?;
        Ok(resources)
    }
}

#[derive(Debug, Clone, Default)]
struct HostAlias<'a> {
    ip: Option<Text<'a>>,
    hostnames: Option<Vec<Text<'a>>>,
}

impl<'a> HostAlias<'a> {
    fn read_list(reader: &mut Reader<'a>) -> Result<Vec<Self>, Error> {
        let mut names = 0;
        reader.list(|reader| {
            let alias = Self::read(reader)?;
            names += alias.hostnames.as_ref().map_or(0, Vec::len);
            check_count(names, LONGEST_LIST)?;
            Ok(alias)
        })
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut alias = Self::default();
        reader.object(|reader, key| match key {
            "ip" => reader.member(&mut alias.ip, Reader::text),
            "hostnames" => reader.member(&mut alias.hostnames, |reader| reader.list(Reader::text)),
            _ => reader.skip(),
        })?;
        Ok(alias)
    }
}

/// Maximum number of containers of each kind, and of volumes.
const MAX_ITEMS: usize = 1024;
/// Maximum length of a container or volume name: a DNS subdomain (RFC 1123).
const MAX_NAME: usize = 253;

fn check_count(found: usize, most: usize) -> Result<(), Error> {
    match found > most {
        true => Err(Error::new(format_args!("expected at most {most} items, found {found}"))),
        false => Ok(()),
    }
}

fn too_long(index: usize, name: &str) -> Error {
    let problem = format_args!("expected at most {MAX_NAME} bytes, found {}", name.len());
    Error::new(problem).within("name").within(&format!("[{index}]"))
}

fn pairs<'t>(map: Option<&'t BTreeMap<Text<'_>, Text<'_>>>) -> impl Iterator<Item = (&'t str, &'t str)> {
    map.into_iter().flatten().map(|(key, value)| (&**key, &**value))
}
