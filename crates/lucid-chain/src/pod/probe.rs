//! Views of probes.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};

use super::{
    ContainerView,
    json::{Object, Text},
};

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
        let tcp = self.tcp_socket.as_ref().map(|Object(action)| ("tcpSocket", action));
        tcp.or_else(|| self.grpc.as_ref().map(|Object(action)| ("grpc", action)))
    }
}

/// Target of a probe.
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
            PortReference::Number(number) => Some(*number),
            PortReference::Name(name) => port_named(name).map(i64::from),
        }
    }
}

/// A port by number or by name (`IntOrString`).
#[derive(Debug, Clone)]
enum PortReference<'a> {
    Number(i64),
    Name(Text<'a>),
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
                Ok(PortReference::Name(name.into()))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(PortReference::Name(name.to_owned().into()))
            }
        }

        deserializer.deserialize_any(PortVisitor)
    }
}
