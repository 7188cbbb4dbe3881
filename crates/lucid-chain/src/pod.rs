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

/// The bytes are no pod that can be planned for.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read the pod at {path}: {source}"))]
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

/// The fields of a core/v1 Pod that planning reads; everything else is skipped over.
///
/// A list or map that is `null` counts as absent, as it does for kube-apiserver.
#[derive(Debug, Clone)]
pub struct PodView<'a> {
    metadata: Option<Metadata<'a>>,
    host_network: bool,
    windows: bool,
    resources: Option<RawResources<'a>>,
    volumes: Vec<Object<RawVolume<'a>>>,
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
        let Object(pod): Object<RawPod<'a>> = decode(json.as_ref(), "")?;
        let Object(spec) = pod.spec.unwrap_or_default();
        Ok(Self {
            metadata: pod.metadata.map(|Object(metadata)| metadata),
            host_network: spec.host_network.unwrap_or_default(),
            windows: spec.os.is_some_and(|Object(os)| os.name.as_deref() == Some("windows")),
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

    /// `spec.hostNetwork`.
    pub fn host_network(&self) -> bool {
        self.host_network
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
        let mut named =
            self.volumes.iter().filter(|Object(volume)| volume.name.as_deref() == Some(name)).peekable();
        named.peek().is_some() && named.all(|Object(volume)| volume.projected.is_some())
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
    host_network: Option<bool>,
    #[serde(borrow)]
    os: Option<Object<RawOs<'a>>>,
    #[serde(borrow)]
    resources: Option<Object<RawResources<'a>>>,
    #[serde(borrow)]
    volumes: Option<Vec<Object<RawVolume<'a>>>>,
    #[serde(borrow)]
    containers: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    init_containers: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    ephemeral_containers: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Clone, Deserialize)]
struct RawOs<'a> {
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

#[derive(Debug, Clone, Deserialize)]
struct RawVolume<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    projected: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Deserialize)]
struct RawContainer<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    image: Option<Text<'a>>,
    #[serde(borrow)]
    ports: Option<Vec<Object<PortView<'a>>>>,
    #[serde(borrow)]
    env: Option<Vec<Object<Variable<'a>>>>,
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

fn containers<'a>(raw: Vec<&'a RawValue>, parent: &str) -> Result<Vec<ContainerView<'a>>, PodError> {
    let view = |(index, raw): (usize, &'a RawValue)| {
        let Object(fields) = decode(raw.get().as_bytes(), &format!("{parent}[{index}]"))?;
        Ok(ContainerView { fields, raw })
    };
    raw.into_iter().enumerate().map(view).collect()
}

/// Decodes a value that stands at the path `parent` of the pod.
fn decode<'a, T: Deserialize<'a>>(json: &'a [u8], parent: &str) -> Result<T, PodError> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let inner = error.path().to_string();
        let path = match (parent, inner.as_str()) {
            ("", _) => inner,
            (_, ".") => parent.to_owned(),
            _ => format!("{parent}.{inner}"),
        };
        PodError { path, source: error.into_inner() }
    })?;
    deserializer.end().map_err(|source| PodError { path: ".".to_owned(), source })?;
    Ok(value)
}

/// A JSON object; serde's derived code would also take a list of the fields' values.
#[derive(Debug, Clone, Default)]
struct Object<T>(T);

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

        deserializer.deserialize_str(TextVisitor)
    }
}
