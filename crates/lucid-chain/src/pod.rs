//! A view of a pod that borrows from its JSON.

use std::{
    borrow::{Borrow, Cow},
    collections::BTreeMap,
    fmt,
    marker::PhantomData,
    ops::Deref,
};

use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Value, value::RawValue};
use snafu::Snafu;

use crate::{
    privileges::Privileges,
    text::Line,
    volume::{MountView, VolumeView},
};

/// The bytes are no pod that can be planned for.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read the pod at {}: {}", Line(path), Line(&reason(source))))]
pub struct PodError {
    /// JSON path of the offending value, such as `spec.containers[0].ports[1].containerPort`;
    /// `.` is the whole document.
    path: String,
    source: serde_json::Error,
}

impl PodError {
    /// JSON path of the offending value, such as `spec.containers[0].ports[1].containerPort`.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// What is wrong, without the place in the JSON where the path tells it: no user has seen that text, for the manifest
/// was YAML, and a container's is counted from its own start.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(reason) if error.is_data() => reason.to_owned(),
        _ => text,
    }
}

/// The fields of a core/v1 Pod that planning reads; everything else is skipped over.
///
/// A list or map that is `null` counts as absent, as it does for kube-apiserver.
#[derive(Debug, Clone)]
pub struct PodView<'a> {
    metadata: Option<Metadata<'a>>,
    restart_policy: Option<Text<'a>>,
    service_account: Option<Text<'a>>,
    host_network: bool,
    host_pid: bool,
    host_ipc: bool,
    hostname: Option<Text<'a>>,
    host_aliases: Vec<Object<HostAlias<'a>>>,
    shares_processes: bool,
    privileges: Option<Object<Privileges<'a>>>,
    windows: bool,
    pull_secrets: Option<Vec<Object<Named<'a>>>>,
    has_init_containers: bool,
    resources: Option<RawResources<'a>>,
    volumes: Vec<Object<VolumeView<'a>>>,
    containers: Vec<ContainerView<'a>>,
    init_containers: Vec<ContainerView<'a>>,
    ephemeral_containers: Vec<ContainerView<'a>>,
}

impl<'a> PodView<'a> {
    /// Reads the JSON of a pod, given as text or bytes.
    ///
    /// # Errors
    /// [`PodError`] with the JSON path when the text is no JSON object or a field that planning
    /// reads has the wrong type.
    pub fn from_json(json: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, PodError> {
        let json = json.as_ref();
        let pod: Object<RawPod<'a>> = serde_json::from_slice(json).or_else(|_| decode(json, String::new))?;
        let Object(pod) = pod;
        let Object(spec) = pod.spec.unwrap_or_default();
        Ok(Self {
            metadata: pod.metadata.map(|Object(metadata)| metadata),
            restart_policy: spec.restart_policy,
            service_account: spec
                .service_account_name
                .filter(|name| !name.is_empty())
                .or(spec.service_account),
            host_network: spec.host_network.unwrap_or_default(),
            host_pid: spec.host_pid.unwrap_or_default(),
            host_ipc: spec.host_ipc.unwrap_or_default(),
            hostname: spec.hostname,
            host_aliases: spec.host_aliases.unwrap_or_default(),
            shares_processes: spec.share_process_namespace.unwrap_or_default(),
            privileges: spec.security_context,
            windows: spec.os.is_some_and(|Object(os)| os.name.as_deref() == Some("windows")),
            pull_secrets: spec.image_pull_secrets,
            has_init_containers: spec.init_containers.is_some(),
            resources: spec.resources.map(|Object(resources)| resources),
            volumes: spec.volumes.unwrap_or_default(),
            containers: containers(spec.containers.unwrap_or_default(), "spec.containers")?,
            init_containers: containers(spec.init_containers.unwrap_or_default(), "spec.initContainers")?,
            ephemeral_containers: containers(
                spec.ephemeral_containers.unwrap_or_default(),
                "spec.ephemeralContainers",
            )?,
        })
    }

    /// `metadata.name`; absent while the name is still to be generated.
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

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.as_ref()?.labels.as_ref()?.get(key).map(Deref::deref)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.as_ref()?.annotations.as_ref()?.get(key).map(Deref::deref)
    }

    /// `metadata.labels`, by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(self.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()))
    }

    /// `metadata.annotations`, by key.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(self.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref()))
    }

    /// `spec.restartPolicy`; `Always` where it is left out.
    pub fn restart_policy(&self) -> &str {
        self.restart_policy.as_deref().filter(|policy| !policy.is_empty()).unwrap_or("Always")
    }

    /// `spec.serviceAccountName`; `default` where it is left out.
    pub fn service_account(&self) -> &str {
        self.service_account.as_deref().filter(|account| !account.is_empty()).unwrap_or("default")
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

    /// `spec.hostname`, or else the name of the pod: what the pod's own address is called in its hosts file.
    pub fn hostname(&self) -> Option<&str> {
        self.hostname.as_deref().filter(|name| !name.is_empty()).or(self.name())
    }

    /// Address and name of each entry that `spec.hostAliases` adds to the pod's hosts file.
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

    /// `spec.securityContext`, which holds for containers that do not say otherwise. It has users only: capabilities and
    /// `privileged` are a container's own.
    pub fn privileges(&self) -> Option<&Privileges<'a>> {
        self.privileges.as_ref().map(|Object(privileges)| privileges)
    }

    /// Name and `image.reference` of the image volumes (KEP-4639) in `spec.volumes`. A volume without a reference has the
    /// empty one.
    pub fn image_volumes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.volumes.iter().filter_map(|Object(volume)| Some((volume.name(), volume.image()?)))
    }

    /// Name and `hostPath.path` of the volumes in `spec.volumes` that are files of the node.
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

    /// Containers and init containers.
    pub(crate) fn all_containers(&self) -> impl Iterator<Item = &ContainerView<'a>> {
        self.containers.iter().chain(&self.init_containers)
    }

    pub(crate) fn has_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    pub(crate) fn has_annotations(&self) -> bool {
        self.metadata.as_ref().is_some_and(|metadata| metadata.annotations.is_some())
    }

    /// How many bytes the annotations other than `except` take, as the API server counts them.
    pub(crate) fn annotations_size(&self, except: &str) -> usize {
        let annotations = self.metadata.iter().filter_map(|metadata| metadata.annotations.as_ref()).flatten();
        annotations.filter(|(key, _)| ***key != *except).map(|(key, value)| key.len() + value.len()).sum()
    }

    pub(crate) fn has_init_containers(&self) -> bool {
        self.has_init_containers
    }

    /// The names in `spec.imagePullSecrets`; `None` where there is no list.
    pub(crate) fn pull_secrets(&self) -> Option<impl Iterator<Item = &str>> {
        let secrets = self.pull_secrets.as_ref()?;
        Some(secrets.iter().filter_map(|Object(secret)| secret.name.as_deref()))
    }

    /// The native sidecars among the init containers (KEP-753), with their places.
    pub(crate) fn native_sidecars(&self) -> impl Iterator<Item = (usize, &ContainerView<'a>)> {
        self.init_containers.iter().enumerate().filter(|(_, container)| container.is_native_sidecar())
    }

    /// Whether `spec.os.name` is `windows`.
    pub(crate) fn is_windows(&self) -> bool {
        self.windows
    }

    /// `spec.resources`, the quantities for the whole pod.
    pub(crate) fn resources(&self) -> Option<&RawResources<'a>> {
        self.resources.as_ref()
    }

    /// Whether the pod has a volume of this name and every such volume is `projected`.
    pub(crate) fn has_projected_volume(&self, name: &str) -> bool {
        let mut named = self.volumes.iter().filter(|Object(volume)| volume.name() == name).peekable();
        named.peek().is_some() && named.all(|Object(volume)| volume.is_projected())
    }
}

/// One container, init container or ephemeral container.
#[derive(Debug, Clone)]
pub struct ContainerView<'a> {
    fields: RawContainer<'a>,
    raw: &'a RawValue,
}

impl<'a> ContainerView<'a> {
    /// `name`; empty when absent.
    pub fn name(&self) -> &str {
        self.fields.name.as_deref().unwrap_or_default()
    }

    /// `image`.
    pub fn image(&self) -> Option<&str> {
        self.fields.image.as_deref()
    }

    /// `ports`.
    pub fn ports(&self) -> impl Iterator<Item = &PortView<'a>> {
        self.fields.ports.iter().flatten().map(|Object(port)| port)
    }

    /// Whether it is an init container that runs beside the others: one with `restartPolicy: Always` (KEP-753).
    pub fn is_native_sidecar(&self) -> bool {
        self.fields.restart_policy.as_deref() == Some("Always")
    }

    /// `securityContext`.
    pub fn privileges(&self) -> Option<&Privileges<'a>> {
        self.fields.security_context.as_ref().map(|Object(privileges)| privileges)
    }

    /// `volumeMounts`.
    pub fn mounts(&self) -> impl Iterator<Item = &MountView<'a>> {
        self.fields.volume_mounts.iter().flatten().map(|Object(mount)| mount)
    }

    /// `targetContainerName`: whose processes an ephemeral container is among.
    pub fn target(&self) -> Option<&str> {
        self.fields.target_container_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Startup, readiness and liveness probe, as far as they are there.
    pub(crate) fn probes(&self) -> impl Iterator<Item = &RawProbe<'a>> {
        let fields = &self.fields;
        [&fields.startup_probe, &fields.readiness_probe, &fields.liveness_probe]
            .into_iter()
            .flatten()
            .map(|Object(probe)| probe)
    }

    /// The value the container sets for an environment variable. A variable that takes its value
    /// from elsewhere (`valueFrom`) has the value `""`.
    pub fn env(&self, name: &str) -> Option<&str> {
        self.variable(name).map(|(_, value)| value.unwrap_or_default())
    }

    /// The place in the list and the value of an environment variable; `None` as its value when it takes that from
    /// elsewhere. The last of several is the one in force.
    pub(crate) fn variable(&self, name: &str) -> Option<(usize, Option<&str>)> {
        let variables = self.fields.env.as_deref().unwrap_or_default();
        let place = variables.iter().rposition(|Object(variable)| variable.name.as_deref() == Some(name))?;
        let Object(variable) = &variables[place];
        let value = variable.value.as_deref().unwrap_or_default();
        Some((place, variable.value_from.is_none().then_some(value)))
    }

    /// The whole container as it stands in the pod.
    pub fn json(&self) -> &'a str {
        self.raw.get()
    }

    pub(crate) fn has_env(&self) -> bool {
        self.fields.env.is_some()
    }
}

/// One entry of a container's `ports`. Numbers are as written: the API server checks them only
/// after the mutating webhooks.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortView<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    container_port: Option<i32>,
    host_port: Option<i32>,
    #[serde(borrow)]
    protocol: Option<Text<'a>>,
}

impl PortView<'_> {
    /// `name`.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// `containerPort`.
    pub fn container_port(&self) -> Option<i32> {
        self.container_port
    }

    /// `hostPort`.
    pub fn host_port(&self) -> Option<i32> {
        self.host_port
    }

    /// Whether `protocol` is TCP, which is also the default.
    pub fn is_tcp(&self) -> bool {
        matches!(self.protocol.as_deref(), None | Some("" | "TCP"))
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
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpec<'a> {
    #[serde(borrow)]
    restart_policy: Option<Text<'a>>,
    #[serde(borrow)]
    service_account_name: Option<Text<'a>>,
    /// The older name of the same, which the API server keeps in step.
    #[serde(borrow)]
    service_account: Option<Text<'a>>,
    host_network: Option<bool>,
    #[serde(rename = "hostPID")]
    host_pid: Option<bool>,
    #[serde(rename = "hostIPC")]
    host_ipc: Option<bool>,
    #[serde(borrow)]
    hostname: Option<Text<'a>>,
    #[serde(borrow)]
    host_aliases: Option<Vec<Object<HostAlias<'a>>>>,
    share_process_namespace: Option<bool>,
    #[serde(borrow)]
    security_context: Option<Object<Privileges<'a>>>,
    #[serde(borrow)]
    image_pull_secrets: Option<Vec<Object<Named<'a>>>>,
    #[serde(borrow)]
    os: Option<Object<Named<'a>>>,
    #[serde(borrow)]
    resources: Option<Object<RawResources<'a>>>,
    #[serde(borrow)]
    volumes: Option<Vec<Object<VolumeView<'a>>>>,
    #[serde(borrow)]
    containers: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    init_containers: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    ephemeral_containers: Option<Vec<&'a RawValue>>,
}

/// What is known by its name alone.
#[derive(Debug, Clone, Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
}

/// Quantities by resource name; a quantity may be written as a number too.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RawResources<'a> {
    #[serde(borrow)]
    pub(crate) requests: Option<BTreeMap<Text<'a>, Value>>,
    #[serde(borrow)]
    pub(crate) limits: Option<BTreeMap<Text<'a>, Value>>,
}

/// One entry of `hostAliases`.
#[derive(Debug, Clone, Deserialize)]
struct HostAlias<'a> {
    #[serde(borrow)]
    ip: Option<Text<'a>>,
    #[serde(borrow)]
    hostnames: Option<Vec<Text<'a>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContainer<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    image: Option<Text<'a>>,
    #[serde(borrow)]
    ports: Option<Vec<Object<PortView<'a>>>>,
    #[serde(borrow)]
    env: Option<Vec<Object<Variable<'a>>>>,
    #[serde(borrow)]
    restart_policy: Option<Text<'a>>,
    #[serde(borrow)]
    security_context: Option<Object<Privileges<'a>>>,
    #[serde(borrow)]
    volume_mounts: Option<Vec<Object<MountView<'a>>>>,
    #[serde(borrow)]
    target_container_name: Option<Text<'a>>,
    #[serde(borrow)]
    startup_probe: Option<Object<RawProbe<'a>>>,
    #[serde(borrow)]
    readiness_probe: Option<Object<RawProbe<'a>>>,
    #[serde(borrow)]
    liveness_probe: Option<Object<RawProbe<'a>>>,
}

/// How the kubelet asks a container.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RawProbe<'a> {
    #[serde(borrow)]
    http_get: Option<Object<Action<'a>>>,
    #[serde(borrow)]
    tcp_socket: Option<Object<Action<'a>>>,
    #[serde(borrow)]
    grpc: Option<Object<Action<'a>>>,
}

impl<'a> RawProbe<'a> {
    /// `httpGet`.
    pub(crate) fn http_get(&self) -> Option<&Action<'a>> {
        self.http_get.as_ref().map(|Object(action)| action)
    }

    /// `tcpSocket` or `grpc`, with that name.
    pub(crate) fn other(&self) -> Option<(&'static str, &Action<'a>)> {
        let tcp = self.tcp_socket.as_ref().map(|Object(action)| ("tcpSocket", action));
        tcp.or_else(|| self.grpc.as_ref().map(|Object(action)| ("grpc", action)))
    }
}

/// Where a probe goes.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Action<'a> {
    #[serde(borrow)]
    path: Option<Text<'a>>,
    #[serde(borrow)]
    scheme: Option<Text<'a>>,
    #[serde(borrow)]
    host: Option<Text<'a>>,
    #[serde(borrow)]
    port: Option<PortReference<'a>>,
}

impl Action<'_> {
    /// `path`; `/` where it is left out.
    pub(crate) fn path(&self) -> &str {
        self.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/")
    }

    /// Whether it speaks TLS (`scheme: HTTPS`).
    pub(crate) fn is_https(&self) -> bool {
        self.scheme.as_deref() == Some("HTTPS")
    }

    /// Whether it goes to `port` of the pod; names are those of the container's ports.
    pub(crate) fn goes_to(&self, port: u16, container: &ContainerView<'_>) -> bool {
        let elsewhere = self.host.as_deref().is_some_and(|host| !host.is_empty());
        let meant = match &self.port {
            Some(PortReference::Number(number)) => Some(*number),
            Some(PortReference::Name(name)) => {
                let mut declared = container.ports().filter(|port| port.name() == Some(name));
                declared.next().and_then(PortView::container_port).map(i64::from)
            }
            None => None,
        };
        !elsewhere && meant == Some(i64::from(port))
    }
}

/// A port by number or by name (`IntOrString`).
#[derive(Debug, Clone)]
enum PortReference<'a> {
    Number(i64),
    Name(Text<'a>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variable<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    value: Option<Text<'a>>,
    value_from: Option<IgnoredAny>,
}

fn pairs<'t>(map: Option<&'t BTreeMap<Text<'_>, Text<'_>>>) -> impl Iterator<Item = (&'t str, &'t str)> {
    map.into_iter().flatten().map(|(key, value)| (&**key, &**value))
}

fn containers<'a>(raw: Vec<&'a RawValue>, parent: &str) -> Result<Vec<ContainerView<'a>>, PodError> {
    let view = |(index, raw): (usize, &'a RawValue)| {
        let parent = || format!("{parent}[{index}]");
        let fields = serde_json::from_str(raw.get()).or_else(|_| decode(raw.get().as_bytes(), parent));
        let Object(fields) = fields?;
        Ok(ContainerView { fields, raw })
    };
    raw.into_iter().enumerate().map(view).collect()
}

/// Decodes a value that stands at the path `parent` of the pod and keeps track of the path, which costs more than
/// decoding: only for what is known to be at fault.
fn decode<'a, T: Deserialize<'a>>(json: &'a [u8], parent: impl FnOnce() -> String) -> Result<T, PodError> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let (parent, inner) = (parent(), error.path().to_string());
        let path = match (parent.as_str(), inner.as_str()) {
            ("", _) => inner,
            (_, ".") => parent,
            _ => format!("{parent}.{inner}"),
        };
        PodError { path, source: error.into_inner() }
    })?;
    deserializer.end().map_err(|source| PodError { path: ".".to_owned(), source })?;
    Ok(value)
}

/// A JSON object; serde's derived code would also take a list of the fields' values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// A string that borrows from the JSON unless it holds an escape. serde borrows a bare `Cow`
/// only as a direct field, not inside an `Option`, a list or a map. `null` reads as `""`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed("")))
            }
        }

        // `deserialize_str` would take no `null`.
        deserializer.deserialize_any(TextVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for PortReference<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PortVisitor;

        impl<'de> Visitor<'de> for PortVisitor {
            type Value = PortReference<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port's number or name")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(PortReference::Number(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                i64::try_from(number).map(PortReference::Number).map_err(E::custom)
            }

            fn visit_borrowed_str<E: de::Error>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(PortReference::Name(Text(Cow::Borrowed(name))))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(PortReference::Name(Text(Cow::Owned(name.to_owned()))))
            }
        }

        deserializer.deserialize_any(PortVisitor)
    }
}
