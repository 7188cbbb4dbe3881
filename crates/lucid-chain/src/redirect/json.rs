//! JSON form of a [`Redirect`].

use std::num::NonZeroU16;

use lucid_text::{Excerpt, Line};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::{Hop, Redirect, check, invalid};
use crate::{error::Error, keys};

/// Version of the JSON form that this build writes, and the only one it reads.
const VERSION: u64 = 1;

/// Maximum size of a text that is parsed, in bytes. A chain of 128 auditors takes about 4 KiB.
const LONGEST: usize = 64 * 1024;

#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u64,
    chain: Vec<Auditor>,
    model: Port,
    inbound: bool,
    outbound: Vec<Port>,
    /// Absent if the chain ends at the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit: Option<Port>,
    /// Absent with one route, whose ports are those of `chain` and `model`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    routes: Vec<AnotherRoute>,
    /// Absent if no port is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open: Option<Vec<Port>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnotherRoute {
    ports: Vec<Port>,
    model: Port,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Auditor {
    uid: u32,
    port: Port,
}

#[derive(Serialize)]
struct Port(NonZeroU16);

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = serde_json::Value::deserialize(deserializer)?;
        let port = found.as_u64().and_then(|number| u16::try_from(number).ok()).and_then(NonZeroU16::new);
        port.map(Self).ok_or_else(|| {
            let found = found.to_string();
            D::Error::custom(format_args!("expected a port from 1 to 65535, found {}", Excerpt(&found)))
        })
    }
}

impl Redirect {
    /// Parses the output of [`Redirect::to_json`]. Every member except `exit`, `routes` and `open` is required and
    /// may occur only once; other members are rejected.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the text is not JSON of this form, has another version, or describes no
    /// chain: a uid is 0 or out of range, or a uid or port occurs twice.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        check(json.len() <= LONGEST, || format!("expected at most {LONGEST} bytes, found {}", json.len()))?;
        // Check the version first, because other versions may have other members.
        let Versioned { version } = read(json)?;
        check(version == VERSION, || {
            format!(
                "expected version {VERSION}, found {version}: {} and the operator must be of the same release",
                keys::INIT_CONTAINER
            )
        })?;
        let document: Document = read(json)?;
        let mut redirect = Self::new(
            document.chain.into_iter().map(|Auditor { uid, port }| Hop { uid, port: port.0 }),
            document.model.0,
            document.inbound,
            document.outbound.into_iter().map(|port| port.0),
        )?;
        for AnotherRoute { ports, model } in document.routes {
            redirect = redirect.with_route(ports.into_iter().map(|port| port.0), model.0)?;
        }
        if let Some(exit) = document.exit {
            redirect = redirect.with_exit(exit.0)?;
        }
        if let Some(open) = document.open {
            redirect = redirect.with_open_ports(open.into_iter().map(|port| port.0));
        }
        Ok(redirect)
    }

    /// Returns the JSON form, on one line. Equal redirects have equal texts.
    pub fn to_json(&self) -> String {
        let document = Document {
            version: VERSION,
            chain: self.chain().map(|Hop { uid, port }| Auditor { uid, port: Port(port) }).collect(),
            model: Port(self.model()),
            inbound: self.inbound,
            outbound: self.outbound().map(Port).collect(),
            exit: self.exit.map(Port),
            routes: self
                .more_routes
                .iter()
                .map(|route| AnotherRoute {
                    ports: route.auditors().map(Port).collect(),
                    model: Port(route.model),
                })
                .collect(),
            open: self.open_ports.as_ref().map(|ports| ports.iter().copied().map(Port).collect()),
        };
        // Numbers, booleans and lists cannot fail to serialize.
        serde_json::to_string(&document).unwrap_or_default()
    }
}

fn read<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        // `.` denotes the whole text, `?` a value without a name.
        let path = error.path().to_string();
        let problem = match path.contains('?') || path == "." {
            true => error.inner().to_string(),
            false => format!("{path}: {}", error.inner()),
        };
        invalid(Line(&problem))
    })?;
    deserializer.end().map_err(invalid)?;
    Ok(value)
}
