//! Views of probes.

use super::{
    ContainerView, PodError,
    reader::{Reader, Text},
};

#[derive(Debug, Clone, Default)]
pub(crate) struct RawProbe<'a> {
    http_get: Option<Action<'a>>,
    tcp_socket: Option<Action<'a>>,
    grpc: Option<Action<'a>>,
}

impl<'a> RawProbe<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, PodError> {
        let mut probe = Self::default();
        reader.object(|reader, key| match key {
            "httpGet" => reader.member(&mut probe.http_get, Action::read),
            "tcpSocket" => reader.member(&mut probe.tcp_socket, Action::read),
            "grpc" => reader.member(&mut probe.grpc, Action::read),
            _ => reader.skip(),
        })?;
        Ok(probe)
    }

    /// `httpGet`.
    pub(crate) fn http_get(&self) -> Option<&Action<'a>> {
        self.http_get.as_ref()
    }

    /// Returns the port of the pod that the probe targets; `None` for another host and for commands.
    pub(crate) fn port(&self, container: &ContainerView<'_>) -> Option<i64> {
        let action = self.http_get().or_else(|| Some(self.other()?.1))?;
        action.port(|name| container.port_named(name))
    }

    /// Returns the path of an HTTP probe, and an empty text for others.
    pub(crate) fn path(&self) -> &str {
        self.http_get().map(Action::path).unwrap_or_default()
    }

    /// `tcpSocket` or `grpc`, with the name of the field.
    pub(crate) fn other(&self) -> Option<(&'static str, &Action<'a>)> {
        let tcp = self.tcp_socket.as_ref().map(|action| ("tcpSocket", action));
        tcp.or_else(|| self.grpc.as_ref().map(|action| ("grpc", action)))
    }
}

/// Target of a probe.
#[derive(Debug, Clone, Default)]
pub(crate) struct Action<'a> {
    path: Option<Text<'a>>,
    scheme: Option<Text<'a>>,
    host: Option<Text<'a>>,
    /// Number or name.
    port: Option<Result<i64, Text<'a>>>,
}

impl<'a> Action<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, PodError> {
        let mut action = Self::default();
        reader.object(|reader, key| match key {
            "path" => reader.member(&mut action.path, Reader::text),
            "scheme" => reader.member(&mut action.scheme, Reader::text),
            "host" => reader.member(&mut action.host, Reader::text),
            "port" => reader.member(&mut action.port, |it| it.number_or_text("a port's number or name")),
            _ => reader.skip(),
        })?;
        Ok(action)
    }

    /// `path`; `/` if absent.
    pub(crate) fn path(&self) -> &str {
        self.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/")
    }

    /// Returns `true` if the probe uses TLS (`scheme: HTTPS`).
    pub(crate) fn is_https(&self) -> bool {
        self.scheme.as_deref() == Some("HTTPS")
    }

    /// Returns the port of the pod, or `None` if the probe targets another host. `port_named` resolves the names of the
    /// container's ports.
    fn port(&self, port_named: impl FnOnce(&str) -> Option<i32>) -> Option<i64> {
        if self.host.as_deref().is_some_and(|host| !host.is_empty()) {
            return None;
        }
        match self.port.as_ref()? {
            Ok(number) => Some(*number),
            Err(name) => port_named(name).map(i64::from),
        }
    }
}
