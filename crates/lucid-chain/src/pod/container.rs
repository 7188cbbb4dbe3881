//! Views of containers.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

use super::{
    MAX_ITEMS, Quantities, RawResources,
    json::{FirstKey, LONGEST_LIST, LazyText, List, Object, Text, too_many},
    probe::RawProbe,
};
use crate::{privileges::Privileges, volume::MountView};

/// A container, init container or ephemeral container of a pod.
#[derive(Debug, Clone)]
pub struct ContainerView<'a> {
    fields: RawContainer<'a>,
    /// Text of the pod from the container on, once it is [located](Containers::located). Before that the first key, empty if
    /// it has escapes.
    rest: &'a str,
}

impl<'a> ContainerView<'a> {
    /// Returns the number of ports, variables, mounts and capabilities.
    fn items(&self) -> usize {
        let RawContainer { ports, env, volume_mounts, .. } = &self.fields;
        let capabilities = self.privileges().map_or(0, Privileges::capabilities);
        ports.iter().flatten().count()
            + env.iter().flatten().count()
            + volume_mounts.iter().flatten().count()
            + capabilities
    }

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

    /// Returns `containerPort` of the first port with this name.
    pub(crate) fn port_named(&self, name: &str) -> Option<i32> {
        self.ports().find(|port| port.name() == Some(name))?.container_port()
    }

    /// Returns `true` for a native sidecar: an init container with `restartPolicy: Always` (KEP-753).
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

    /// `targetContainerName`: the container whose process namespace an ephemeral container joins.
    pub fn target(&self) -> Option<&str> {
        self.fields.target_container_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Iterates over the startup, readiness and liveness probes that are set.
    pub(crate) fn probes(&self) -> impl Iterator<Item = &RawProbe<'a>> {
        let fields = &self.fields;
        [&fields.startup_probe, &fields.readiness_probe, &fields.liveness_probe]
            .into_iter()
            .flatten()
            .map(|Object(probe)| probe)
    }

    /// `startupProbe`.
    pub(crate) fn startup_probe(&self) -> Option<&RawProbe<'a>> {
        self.fields.startup_probe.as_ref().map(|Object(probe)| probe)
    }

    /// `readinessProbe`.
    pub(crate) fn readiness_probe(&self) -> Option<&RawProbe<'a>> {
        self.fields.readiness_probe.as_ref().map(|Object(probe)| probe)
    }

    /// Returns the ports of the pod that the kubelet calls for probes and lifecycle hooks, as written.
    pub(crate) fn kubelet_ports(&self) -> impl Iterator<Item = i64> {
        let hooks = self.fields.lifecycle.iter().flat_map(|Object(lifecycle)| {
            [&lifecycle.post_start, &lifecycle.pre_stop].into_iter().flatten().map(|Object(hook)| hook)
        });
        self.probes().chain(hooks).filter_map(|handler| handler.port(self))
    }

    /// Returns the value of an environment variable, which is `""` for a `valueFrom`. The last of several variables
    /// with the same name counts.
    pub fn env(&self, name: &str) -> Option<Cow<'a, str>> {
        self.variable(name).map(|(_, value)| value.unwrap_or_default())
    }

    /// Returns the index and the value of an environment variable; the value is `None` for a `valueFrom`. The last of
    /// several variables with the same name counts.
    pub(crate) fn variable(&self, name: &str) -> Option<(usize, Option<Cow<'a, str>>)> {
        let variables = self.fields.env.as_deref().unwrap_or_default();
        let place = variables.iter().rposition(|Object(variable)| variable.name.as_deref() == Some(name))?;
        let Object(variable) = &variables[place];
        let value = || variable.value.map(LazyText::decode).unwrap_or_default();
        Some((place, variable.value_from.is_none().then(value)))
    }

    /// Returns the JSON of the container as written in the pod.
    pub fn json(&self) -> &'a str {
        let mut rest = serde_json::Deserializer::from_str(self.rest);
        <&RawValue>::deserialize(&mut rest).map(RawValue::get).unwrap_or_default()
    }

    /// JSON of `resources`.
    pub(crate) fn resources_json(&self) -> Option<&'a RawValue> {
        self.fields.resources
    }

    /// `requests` and `limits` of `resources`; empty if invalid.
    pub(crate) fn resources(&self) -> (Quantities<'a>, Quantities<'a>) {
        let resources = self.fields.resources.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let RawResources { requests, limits } = resources.unwrap_or_default();
        (requests.unwrap_or_default(), limits.unwrap_or_default())
    }

    pub(crate) fn has_env(&self) -> bool {
        self.fields.env.is_some()
    }
}

/// An entry of a container's `ports`. Numbers are as written: the API server validates them only after the mutating
/// webhooks.
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

    /// Returns `true` if `protocol` is TCP, which is the default.
    pub fn is_tcp(&self) -> bool {
        matches!(self.protocol.as_deref(), None | Some("" | "TCP"))
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContainer<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    image: Option<Text<'a>>,
    #[serde(borrow)]
    ports: Option<List<Object<PortView<'a>>>>,
    #[serde(borrow)]
    env: Option<List<Object<Variable<'a>>>>,
    #[serde(borrow)]
    restart_policy: Option<Text<'a>>,
    #[serde(borrow)]
    security_context: Option<Object<Privileges<'a>>>,
    #[serde(borrow)]
    resources: Option<&'a RawValue>,
    #[serde(borrow)]
    volume_mounts: Option<List<Object<MountView<'a>>>>,
    #[serde(borrow)]
    target_container_name: Option<Text<'a>>,
    #[serde(borrow)]
    startup_probe: Option<Object<RawProbe<'a>>>,
    #[serde(borrow)]
    readiness_probe: Option<Object<RawProbe<'a>>>,
    #[serde(borrow)]
    liveness_probe: Option<Object<RawProbe<'a>>>,
    #[serde(borrow)]
    lifecycle: Option<Object<RawLifecycle<'a>>>,
}

/// `lifecycle`. A hook has the same actions as a probe.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLifecycle<'a> {
    #[serde(borrow)]
    post_start: Option<Object<RawProbe<'a>>>,
    #[serde(borrow)]
    pre_stop: Option<Object<RawProbe<'a>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variable<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    value: Option<LazyText<'a>>,
    value_from: Option<IgnoredAny>,
}

impl<'de: 'a, 'a> Deserialize<'de> for ContainerView<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContainerVisitor;

        impl<'de> Visitor<'de> for ContainerVisitor {
            type Value = ContainerView<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let mut map = FirstKey { map, key: None };
                let fields = RawContainer::deserialize(MapAccessDeserializer::new(&mut map))?;
                Ok(ContainerView { fields, rest: map.key.unwrap_or("{}") })
            }
        }

        deserializer.deserialize_map(ContainerVisitor)
    }
}

/// The containers of one list. Bounds their number and that of their contents.
pub(super) struct Containers<'a>(Vec<ContainerView<'a>>);

impl<'a> Containers<'a> {
    /// Finds the beginning of each container in `pod`, the text that the containers borrow from. `list` is the name of the
    /// list.
    pub(super) fn located(self, pod: &'a str, list: &str) -> Vec<ContainerView<'a>> {
        let Self(mut containers) = self;
        let mut raw = None;
        for (index, container) in containers.iter_mut().enumerate() {
            let key = container.rest.as_ptr().addr().checked_sub(pod.as_ptr().addr());
            let start = key.and_then(|key| pod.get(..key)?.rfind('{'));
            container.rest = match start {
                // The API server writes no escapes in keys.
                _ if container.rest.is_empty() => raw
                    .get_or_insert_with(|| raw_list(pod, list))
                    .get(index)
                    .copied()
                    .map_or("", RawValue::get),
                Some(start) => &pod[start..],
                None => container.rest,
            };
        }
        containers
    }
}

fn raw_list<'a>(pod: &'a str, list: &str) -> Vec<&'a RawValue> {
    #[derive(Deserialize)]
    struct RawPod<'a> {
        #[serde(borrow)]
        spec: BTreeMap<Text<'a>, &'a RawValue>,
    }

    let pod = serde_json::from_str::<RawPod<'a>>(pod).ok();
    let list = pod.and_then(|pod| serde_json::from_str(pod.spec.get(list)?.get()).ok());
    list.unwrap_or_default()
}

impl<'de: 'a, 'a> Deserialize<'de> for Containers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContainersVisitor;

        impl<'de> Visitor<'de> for ContainersVisitor {
            type Value = Containers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let (mut containers, mut items) = (Vec::new(), 0);
                while let Some(container) = list.next_element::<ContainerView<'de>>()? {
                    items += container.items();
                    if items > LONGEST_LIST {
                        return Err(A::Error::custom(too_many(items, LONGEST_LIST)));
                    }
                    containers.push(container);
                    if containers.len() == MAX_ITEMS {
                        let mut found = MAX_ITEMS;
                        while list.next_element::<IgnoredAny>()?.is_some() {
                            found += 1;
                        }
                        if found > MAX_ITEMS {
                            return Err(A::Error::custom(too_many(found, MAX_ITEMS)));
                        }
                        break;
                    }
                }
                Ok(Containers(containers))
            }
        }

        deserializer.deserialize_seq(ContainersVisitor)
    }
}
