//! Lists of ports in settings.

use std::{fmt, num::NonZeroU16, str::FromStr};

use lucid_text::Excerpt;
use serde::{Deserialize, Serialize};

use crate::{error::Error, port, redirect::MAX_ROUTES};

/// Ports such as `8080,8085`: between 1 and 8 different ones, in their written order.
///
/// ```
/// let ports: lucid_chain::PortList = "8080, 8085".parse()?;
/// assert_eq!(ports.to_string(), "8080,8085");
/// # Ok::<(), lucid_chain::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortList {
    first: NonZeroU16,
    further: [Option<NonZeroU16>; Self::MAX - 1],
}

impl PortList {
    /// Maximum number of ports. Auditors have a listener for each port of a model.
    pub(crate) const MAX: usize = MAX_ROUTES;

    pub(crate) const EXPECTED: &str = "a port from 1 to 65535, or up to 8 such as 8080,8085";

    pub(crate) fn iter(&self) -> impl Iterator<Item = NonZeroU16> {
        let (first, further) = self.split_first();
        std::iter::once(first).chain(further)
    }

    pub(crate) fn split_first(&self) -> (NonZeroU16, impl Iterator<Item = NonZeroU16>) {
        (self.first, self.further.into_iter().flatten())
    }
}

impl From<NonZeroU16> for PortList {
    fn from(first: NonZeroU16) -> Self {
        Self { first, further: [None; Self::MAX - 1] }
    }
}

impl FromStr for PortList {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || Error::new(format!("expected {}, found {}", Self::EXPECTED, Excerpt(text)));
        let mut items = text.split(',').map(|item| port::parse(item.trim()).ok_or_else(invalid));
        let mut ports = Self::from(items.next().ok_or_else(invalid)??);
        for (place, port) in items.enumerate() {
            let port = port?;
            if ports.iter().any(|earlier| earlier == port) {
                return Err(invalid());
            }
            *ports.further.get_mut(place).ok_or_else(invalid)? = Some(port);
        }
        Ok(ports)
    }
}

impl TryFrom<String> for PortList {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PortList> for String {
    fn from(ports: PortList) -> Self {
        ports.to_string()
    }
}

impl fmt::Display for PortList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        self.further.into_iter().flatten().try_for_each(|port| write!(f, ",{port}"))
    }
}
