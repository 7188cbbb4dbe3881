//! Where the members of an object are.

use std::ops::Range;
use std::sync::Arc;

use super::cursor::Cursor;

/// Objects of Kubernetes have five or so. With more than this they are not worth the memory.
pub(super) const MOST: usize = 32;

/// Where the members of an object are in its text. Brackets match in all of it, and it nests no deeper than serde_json
/// reads.
#[derive(Clone, Debug)]
pub(super) struct Outline(Arc<[Member]>);

#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// Without the quotes; nothing in it is escaped.
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
}

impl Outline {
    /// Goes through the object that `cursor` is at; none if it is unusual. The text of the outline begins at the object.
    pub(super) fn pass(cursor: &mut Cursor<'_>) -> Option<Self> {
        let start = cursor.at;
        let from_start = |range: Range<usize>| range.start - start..range.end - start;
        let mut members = Vec::with_capacity(8);
        let mut first = true;
        (cursor.text.get(start) == Some(&b'{')).then(|| cursor.at += 1)?;
        while let Some(key) = cursor.next_key_range(&mut first)? {
            if members.len() == MOST {
                return None;
            }
            members.push(Member { key: from_start(key), value: from_start(cursor.skip()?) });
        }
        cursor.pass(b'}')?;
        Some(Self(members.into()))
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.0
    }
}
