//! DER (X.690) as Go's `cryptobyte` reads it.

/// Reads elements in order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

#[derive(Debug, Clone, Copy)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    /// Tag, length and content.
    pub(super) der: &'a [u8],
}

pub(super) const BOOLEAN: u8 = 1;
pub(super) const INTEGER: u8 = 2;
pub(super) const BIT_STRING: u8 = 3;
pub(super) const OCTET_STRING: u8 = 4;
pub(super) const OBJECT_IDENTIFIER: u8 = 6;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// Tag of `[number]`.
pub(super) const fn context(number: u8) -> u8 {
    0x80 | number
}

/// Tag of `[number]` around other elements.
pub(super) const fn constructed(number: u8) -> u8 {
    0xa0 | number
}

/// Reads all of `der`, which must not have trailing elements.
pub(super) fn whole<'a, T>(der: &'a [u8], read: impl FnOnce(&mut Reader<'a>) -> Option<T>) -> Option<T> {
    let mut reader = Reader(der);
    let read = read(&mut reader)?;
    reader.0.is_empty().then_some(read)
}

impl<'a> Reader<'a> {
    pub(super) fn new(der: &'a [u8]) -> Self {
        Self(der)
    }

    pub(super) fn element(&mut self) -> Option<Element<'a>> {
        let [tag, first, rest @ ..] = self.0 else { return None };
        // Tag numbers above 30 take several bytes.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (length, header) = match first {
            0..=0x7f => (usize::from(*first), 2),
            0x81..=0x84 => {
                let count = usize::from(first & 0x7f);
                let octets = rest.get(..count)?;
                let length = octets.iter().try_fold(0_usize, |length, octet| {
                    Some(length.checked_mul(256)? | usize::from(*octet))
                })?;
                // DER has one encoding of each length.
                if length < 128 || octets.first() == Some(&0) {
                    return None;
                }
                (length, 2 + count)
            }
            _ => return None,
        };
        let (der, rest) = self.0.split_at_checked(header.checked_add(length)?)?;
        self.0 = rest;
        Some(Element { tag: *tag, content: &der[header..], der })
    }

    /// Returns the content of the next element, which has this tag.
    pub(super) fn read(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.element().filter(|element| element.tag == tag).map(|element| element.content)
    }

    pub(super) fn next_tag(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Returns the content of the next element if it has this tag.
    pub(super) fn optional(&mut self, tag: u8) -> Option<Option<&'a [u8]>> {
        if self.next_tag() == Some(tag) { self.read(tag).map(Some) } else { Some(None) }
    }

    /// Reads the next element, which has this tag and contains what `read` reads.
    pub(super) fn nested<T>(&mut self, tag: u8, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        whole(self.read(tag)?, read)
    }

    /// Reads the next element, which has this tag and contains any number of what `read` reads.
    pub(super) fn each<T>(
        &mut self,
        tag: u8,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.nested(tag, |reader| {
            let mut all = Vec::new();
            while !reader.0.is_empty() {
                all.push(read(reader)?);
            }
            Some(all)
        })
    }

    pub(super) fn skip_rest(&mut self) {
        self.0 = &[];
    }

    /// Reads an optional `BOOLEAN`, whose default in X.509 is `FALSE`.
    pub(super) fn boolean(&mut self) -> Option<bool> {
        match self.optional(BOOLEAN)? {
            None | Some([0]) => Some(false),
            Some([0xff]) => Some(true),
            Some(_) => None,
        }
    }

    /// Returns the two's complement of an `INTEGER`.
    pub(super) fn integer(&mut self) -> Option<&'a [u8]> {
        self.read(INTEGER).filter(|bytes| is_integer(bytes))
    }

    /// Returns the bytes of a `BIT STRING`, and how many of its last bits do not count.
    pub(super) fn bit_string(&mut self) -> Option<(&'a [u8], u8)> {
        let (unused, bytes) = self.read(BIT_STRING)?.split_first()?;
        let last = bytes.last().copied().unwrap_or_default();
        let is_valid = *unused < 8 && (*unused == 0 || !bytes.is_empty()) && last & ((1 << unused) - 1) == 0;
        is_valid.then_some((bytes, *unused))
    }

    /// Returns an encoded `OBJECT IDENTIFIER` whose components have at most 31 bits.
    pub(super) fn object_identifier(&mut self) -> Option<&'a [u8]> {
        self.read(OBJECT_IDENTIFIER).filter(|oid| components(oid).is_some())
    }
}

/// Returns `true` if the bytes are the only encoding of an `INTEGER`.
pub(super) fn is_integer(bytes: &[u8]) -> bool {
    match bytes {
        [] => false,
        [0, second, ..] => *second >= 0x80,
        [0xff, second, ..] => *second < 0x80,
        _ => true,
    }
}

/// Returns the components of an `OBJECT IDENTIFIER`, if each has at most 31 bits.
pub(super) fn components(oid: &[u8]) -> Option<Vec<u64>> {
    let mut all = Vec::new();
    for encoded in oid.split_inclusive(|byte| byte & 0x80 == 0) {
        let is_complete = encoded.last().is_some_and(|byte| byte & 0x80 == 0);
        if !is_complete || encoded.len() > 5 || encoded.first() == Some(&0x80) {
            return None;
        }
        let component = encoded.iter().fold(0, |all, byte| all << 7 | u64::from(byte & 0x7f));
        if component >= 1 << 31 {
            return None;
        }
        if all.is_empty() {
            let first = (component / 40).min(2);
            all.extend([first, component - 40 * first]);
        } else {
            all.push(component);
        }
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_that_exceed_the_input_or_are_not_der_are_rejected() {
        let cases: [(&[u8], bool); 8] = [
            (&[2, 1, 1], true),
            (&[2, 2, 1], false),
            (&[2, 0x81, 1, 1], false),
            (&[2, 0x82, 0, 0x80], false),
            (&[2, 0x80], false),
            (&[2, 0x84, 0xff, 0xff, 0xff, 0xff], false),
            (&[2, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], false),
            (&[0x1f, 1, 1], false),
        ];
        for (der, is_valid) in cases {
            assert_eq!(whole(der, Reader::element).is_some(), is_valid, "{der:x?}");
        }
    }

    #[test]
    fn object_identifiers_are_decoded() {
        let cases: [(&[u8], Option<&[u64]>); 7] = [
            (&[0x55, 0x1d, 15], Some(&[2, 5, 29, 15])),
            (&[0x2a, 0x81, 0x80, 0], Some(&[1, 2, 16384])),
            (&[0x88, 0x37, 3], Some(&[2, 999, 3])),
            (&[0x2a, 0x87, 0xff, 0xff, 0xff, 0x7f], Some(&[1, 2, (1 << 31) - 1])),
            (&[0x2a, 0x88, 0x80, 0x80, 0x80, 0], None),
            (&[0x2a, 0x80, 1], None),
            (&[0x2a, 0x81], None),
        ];
        for (oid, expected) in cases {
            assert_eq!(components(oid).as_deref(), expected, "{oid:x?}");
        }
    }
}
