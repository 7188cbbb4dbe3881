//! Views of containers.

use std::borrow::Cow;

use lucid_text::json::{LONGEST_LIST, LazyText, Reader, Text};
use serde::de::IgnoredAny;

use super::{Error, MAX_ITEMS, MAX_NAME, Quantities, RawResources, check_count, probe::RawProbe, too_long};
use crate::{privileges::Privileges, volume::MountView};

/// A container, init container or ephemeral container of a pod.
#[derive(Debug, Clone, Default)]
pub struct ContainerView<'a> {
    json: &'a str,
    name: Option<Text<'a>>,
    image: Option<Text<'a>>,
    ports: Option<Vec<PortView<'a>>>,
    env: Option<Vec<Variable<'a>>>,
    restart_policy: Option<Text<'a>>,
    security_context: Option<Privileges<'a>>,
    resources: Option<&'a str>,
    mounts: Option<Vec<MountView<'a>>>,
    target: Option<Text<'a>>,
    startup_probe: Option<RawProbe<'a>>,
    readiness_probe: Option<RawProbe<'a>>,
    liveness_probe: Option<RawProbe<'a>>,
    hooks: Option<[Option<RawProbe<'a>>; 2]>,
}

impl<'a> ContainerView<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut view = Self::default();
        let start = reader.start();
        reader.object(|reader, key| match key {
            "name" => reader.member(&mut view.name, Reader::text),
            "image" => reader.member(&mut view.image, Reader::text),
            "ports" => reader.member(&mut view.ports, |reader| reader.list(PortView::read)),
            "env" => reader.member(&mut view.env, |reader| reader.list(Variable::read)),
            "restartPolicy" => reader.member(&mut view.restart_policy, Reader::text),
            "securityContext" => reader.member(&mut view.security_context, Privileges::read),
            "resources" => reader.member(&mut view.resources, Reader::raw),
            "volumeMounts" => reader.member(&mut view.mounts, |reader| reader.list(MountView::read)),
            "targetContainerName" => reader.member(&mut view.target, Reader::text),
            "startupProbe" => reader.member(&mut view.startup_probe, RawProbe::read),
            "readinessProbe" => reader.member(&mut view.readiness_probe, RawProbe::read),
            "livenessProbe" => reader.member(&mut view.liveness_probe, RawProbe::read),
            "lifecycle" => reader.member(&mut view.hooks, read_hooks),
            _ => reader.skip(),
        })?;
        view.json = reader.since(start);
        Ok(view)
    }

    /// Reads the containers of one list. Bounds their number and that of their contents.
    pub(super) fn read_list(reader: &mut Reader<'a>) -> Result<Vec<Self>, Error> {
        let (mut containers, mut found, mut items) = (Vec::new(), 0, 0);
        reader.items(|reader, index| {
            found = index + 1;
            if found > MAX_ITEMS || items > LONGEST_LIST {
                return reader.skip();
            }
            let container = Self::read(reader)?;
            items += container.items();
            containers.push(container);
            Ok(())
        })?;
        check_count(found, MAX_ITEMS)?;
        check_count(items, LONGEST_LIST)?;
        match containers.iter().position(|container| container.name().len() > MAX_NAME) {
            Some(index) => Err(too_long(index, containers[index].name())),
            None => Ok(containers),
        }
    }

    /// Returns the number of ports, variables, mounts and capabilities.
    fn items(&self) -> usize {
        let capabilities = self.privileges().map_or(0, Privileges::capabilities);
        self.ports().count() + self.env.iter().flatten().count() + self.mounts().count() + capabilities
    }

    /// `name`; empty when absent.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// `image`.
    pub fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }

    /// Iterates over `containerPort` of the `ports` whose protocol is TCP, which is the default. Numbers are as
    /// written: the API server validates them only after the mutating webhooks.
    pub fn tcp_ports(&self) -> impl Iterator<Item = i32> {
        let ports = self.ports().filter(|port| port.is_tcp());
        ports.filter_map(PortView::container_port)
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = &PortView<'a>> {
        self.ports.iter().flatten()
    }

    pub(crate) fn port_named(&self, name: &str) -> Option<i32> {
        self.ports().find(|port| port.name() == Some(name))?.container_port()
    }

    /// Returns `true` for a native sidecar: an init container with `restartPolicy: Always` (KEP-753).
    pub fn is_native_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }

    /// `securityContext`.
    pub fn privileges(&self) -> Option<&Privileges<'a>> {
        self.security_context.as_ref()
    }

    /// Iterates over the names of the volumes in `volumeMounts`.
    pub fn mounted_volumes(&self) -> impl Iterator<Item = &str> {
        self.mounts().map(MountView::volume)
    }

    pub(crate) fn mounts(&self) -> impl Iterator<Item = &MountView<'a>> {
        self.mounts.iter().flatten()
    }

    /// `targetContainerName`: the container whose process namespace an ephemeral container joins.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref().filter(|name| !name.is_empty())
    }

    pub(crate) fn probes(&self) -> impl Iterator<Item = &RawProbe<'a>> {
        [&self.startup_probe, &self.readiness_probe, &self.liveness_probe].into_iter().flatten()
    }

    pub(crate) fn startup_probe(&self) -> Option<&RawProbe<'a>> {
        self.startup_probe.as_ref()
    }

    pub(crate) fn readiness_probe(&self) -> Option<&RawProbe<'a>> {
        self.readiness_probe.as_ref()
    }

    /// Returns the ports of the pod that the kubelet calls for probes and lifecycle hooks, as written.
    pub(crate) fn kubelet_ports(&self) -> impl Iterator<Item = i64> {
        let hooks = self.hooks.iter().flatten().flatten();
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
        let variables = self.env.as_deref().unwrap_or_default();
        let place = variables.iter().rposition(|variable| variable.name.as_deref() == Some(name))?;
        let variable = &variables[place];
        let value = || variable.value.map(LazyText::decode).unwrap_or_default();
        Some((place, variable.value_from.is_none().then(value)))
    }

    /// Returns the JSON of the container as written in the pod.
    pub fn json(&self) -> &'a str {
        self.json
    }

    pub(crate) fn resources_json(&self) -> Option<&'a str> {
        self.resources
    }

    /// `requests` and `limits` of `resources`; empty if invalid.
    pub(crate) fn resources(&self) -> (Quantities<'a>, Quantities<'a>) {
        let resources = self.resources.and_then(|json| RawResources::read(&mut Reader::new(json)).ok());
        let RawResources { requests, limits } = resources.unwrap_or_default();
        (requests.unwrap_or_default(), limits.unwrap_or_default())
    }

    pub(crate) fn has_env(&self) -> bool {
        self.env.is_some()
    }
}

/// An entry of a container's `ports`, with numbers as written.
#[derive(Debug, Clone, Default)]
pub(crate) struct PortView<'a> {
    name: Option<Text<'a>>,
    container_port: Option<i32>,
    host_port: Option<i32>,
    protocol: Option<Text<'a>>,
}

impl<'a> PortView<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut view = Self::default();
        reader.object(|reader, key| match key {
            "name" => reader.member(&mut view.name, Reader::text),
            "containerPort" => reader.member(&mut view.container_port, Reader::value),
            "hostPort" => reader.member(&mut view.host_port, Reader::value),
            "protocol" => reader.member(&mut view.protocol, Reader::text),
            _ => reader.skip(),
        })?;
        Ok(view)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn container_port(&self) -> Option<i32> {
        self.container_port
    }

    pub(crate) fn host_port(&self) -> Option<i32> {
        self.host_port
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.protocol.as_deref(), None | Some("" | "TCP"))
    }
}

/// Reads the hooks of `lifecycle`, which have the same actions as a probe.
fn read_hooks<'a>(reader: &mut Reader<'a>) -> Result<[Option<RawProbe<'a>>; 2], Error> {
    let [mut post_start, mut pre_stop] = [None, None];
    reader.object(|reader, key| match key {
        "postStart" => reader.member(&mut post_start, RawProbe::read),
        "preStop" => reader.member(&mut pre_stop, RawProbe::read),
        _ => reader.skip(),
    })?;
    Ok([post_start, pre_stop])
}

#[derive(Debug, Clone, Default)]
struct Variable<'a> {
    name: Option<Text<'a>>,
    value: Option<LazyText<'a>>,
    value_from: Option<IgnoredAny>,
}

impl<'a> Variable<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut variable = Self::default();
        reader.object(|reader, key| match key {
            "name" => reader.member(&mut variable.name, Reader::text),
            "value" => reader.member(&mut variable.value, Reader::lazy_text),
            "valueFrom" => reader.member(&mut variable.value_from, Reader::value),
            _ => reader.skip(),
        })?;
        Ok(variable)
    }
}
