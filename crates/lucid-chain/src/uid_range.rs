//! Range of user IDs of an OpenShift namespace.

use std::{collections::BTreeMap, fmt, str::FromStr};

use lucid_text::Excerpt;

use crate::{error::Error, keys};

/// Smallest and largest uid of an auditor. `runAsUser` is at most `i32::MAX`.
const AUDITOR_UIDS: (u32, u32) = (1001, i32::MAX.cast_unsigned());

/// User IDs that OpenShift allows in a namespace ([`keys::SCC_UID_RANGE`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct UidRange {
    first: u32,
    last: u32,
}

impl UidRange {
    pub(crate) const EXPECTED: &'static str = "<first>/<size> or <first>-<last>, such as 1000650000/10000";

    /// Parses the namespace annotation [`keys::SCC_UID_RANGE`]. An invalid one is ignored, and the problem is returned.
    pub(crate) fn from_annotations(annotations: &BTreeMap<String, String>) -> (Option<Self>, Option<String>) {
        match annotations.get(keys::SCC_UID_RANGE).map(|range| range.parse()).transpose() {
            Ok(range) => (range, None),
            Err(error) => {
                let error: Error = error;
                (None, Some(format!("{}: {error}", keys::SCC_UID_RANGE)))
            }
        }
    }

    /// Iterates over the uids for auditors. The first uid of the range is left to containers without `runAsUser`,
    /// which get it from OpenShift.
    pub(crate) fn auditor_uids(self) -> impl Iterator<Item = u32> {
        let (least, most) = AUDITOR_UIDS;
        self.first.saturating_add(1).max(least)..=self.last.min(most)
    }

    pub(crate) fn admits(self, uid: u32) -> bool {
        let (least, most) = AUDITOR_UIDS;
        (self.first.max(least)..=self.last.min(most)).contains(&uid)
    }
}

impl FromStr for UidRange {
    type Err = Error;

    /// Parses a range. As in OpenShift, the first of several blocks counts.
    fn from_str(text: &str) -> Result<Self, Error> {
        let block = text.split(',').next().unwrap_or_default().trim();
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let range = match block.split_once('/') {
            Some((first, size)) => number(first).zip(number(size).and_then(|size| size.checked_sub(1))),
            None => block
                .split_once('-')
                .and_then(|(first, last)| Some((number(first)?, number(last)?.checked_sub(number(first)?)?))),
        };
        let range = range.and_then(|(first, more)| Some(Self { first, last: first.checked_add(more)? }));
        range.ok_or_else(|| Error::new(format!("expected {}, found {}", Self::EXPECTED, Excerpt(text))))
    }
}

impl fmt::Display for UidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}
