//! Views of probes.

use super::{ContainerView, Error, Reader, Text};

/// A probe or hook. If there are several actions, which the API server rejects, the first of `httpGet`, `tcpSocket` and
/// `grpc` counts.
#[derive(Debug, Clone)]
pub(crate) struct RawProbe<'a> {
    action: Option<(Protocol, Action<'a>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Tcp,
    Grpc,
}

impl<'a> RawProbe<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let [mut http_get, mut tcp_socket, mut grpc] = [None, None, None];
        reader.object(|reader, key| match key {
            "httpGet" => reader.member(&mut http_get, Action::read),
            "tcpSocket" => reader.member(&mut tcp_socket, Action::read),
            "grpc" => reader.member(&mut grpc, Action::read),
            _ => reader.skip(),
        })?;
        let actions = [(Protocol::Http, http_get), (Protocol::Tcp, tcp_socket), (Protocol::Grpc, grpc)];
        Ok(Self { action: actions.into_iter().find_map(|(protocol, action)| Some((protocol, action?))) })
    }

    /// Returns the protocol and the content of the action; `None` for commands.
    pub(crate) fn action(&self) -> Option<(Protocol, &Action<'a>)> {
        self.action.as_ref().map(|(protocol, action)| (*protocol, action))
    }

    /// Returns the port of the pod that the probe targets; `None` for another host and for commands.
    pub(crate) fn port(&self, container: &ContainerView<'_>) -> Option<i64> {
        self.action()?.1.port(|name| container.port_named(name))
    }

    /// Returns the path of an HTTP probe, and an empty text for others.
    pub(crate) fn path(&self) -> &str {
        match self.action() {
            Some((Protocol::Http, action)) => action.path(),
            _ => "",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Action<'a> {
    path: Option<Text<'a>>,
    scheme: Option<Text<'a>>,
    host: Option<Text<'a>>,
    port: Option<Result<i64, Text<'a>>>,
}

impl<'a> Action<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
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

    pub(crate) fn is_https(&self) -> bool {
        self.scheme.as_deref() == Some("HTTPS")
    }

    /// Returns `None` if the probe targets another host. `port_named` resolves the names of the container's ports.
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
