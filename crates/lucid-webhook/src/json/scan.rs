//! Where a JSON value ends.
//!
//! For text that is no JSON the end is a guess, or none: only brackets, of whatever kind, and quotes are looked at.

use std::iter::successors;

use wide::u8x16;

/// As deep as values may nest that the scanner goes over. serde_json reads 127 levels, and one is the object around.
pub(super) const DEEPEST: u32 = 126;

/// Bytes that are looked at with one instruction.
const LANE: usize = 16;
/// Bytes that have a bit each in an integer.
const BLOCK: usize = 64;

/// The index behind the value that begins at `at`; none if there is none, or if it nests too deep.
pub(super) fn value_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => string_end(text, at),
        b'{' | b'[' => container_end(text, at),
        _ => scalar_end(text, at),
    }
}

/// Where the first byte is from `at` on that is no whitespace of JSON.
pub(super) fn skip_space(text: &[u8], at: usize) -> usize {
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    at + text.get(at..).unwrap_or_default().iter().take_while(is_space).count()
}

fn scalar_end(text: &[u8], at: usize) -> Option<usize> {
    let is_scalar = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
    let length = text.get(at..)?.iter().take_while(is_scalar).count();
    (length > 0).then_some(at + length)
}

fn string_end(text: &[u8], quote: usize) -> Option<usize> {
    let mut at = quote + 1;
    loop {
        at = special(text, at)?;
        match text[at] {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => return None,
        }
    }
}

/// Where the first byte is from `at` on that does not stand for itself in a string: a quote, a backslash, or a control
/// character, which JSON has no place for.
pub(super) fn special(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let rest = text.get(at..)?;
        let Some(lane) = rest.first_chunk() else {
            let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..b' ');
            return rest.iter().position(is_special).map(|length| at + length);
        };
        let bytes = u8x16::new(*lane);
        let quoted = bytes.simd_eq(u8x16::splat(b'"')) | bytes.simd_eq(u8x16::splat(b'\\'));
        let special = quoted | bytes.simd_eq(bytes.min(u8x16::splat(b' ' - 1)));
        match special.to_bitmask() {
            0 => at += LANE,
            bits => return Some(at + bits.trailing_zeros() as usize),
        }
    }
}

/// Goes in blocks: brackets outside of strings are counted, and only in a block that may hold the last one each is
/// looked at.
fn container_end(text: &[u8], bracket: usize) -> Option<usize> {
    let mut strings = Strings::default();
    let mut depth = 0;
    let starts = successors(Some(bracket), |at| Some(at + BLOCK));
    for start in starts.take_while(|start| *start < text.len()) {
        let rest = &text[start..];
        let Brackets { open, close } = match rest.first_chunk() {
            Some(block) => strings.brackets(block),
            None => strings.brackets(&padded(rest)),
        };
        let (opened, closed) = (open.count_ones(), close.count_ones());
        if depth + opened > DEEPEST {
            return None;
        }
        if depth > closed {
            depth = depth + opened - closed;
            continue;
        }
        let mut brackets = open | close;
        while brackets != 0 {
            let index = brackets.trailing_zeros();
            if open >> index & 1 == 1 {
                depth += 1;
            } else {
                depth -= 1;
                if depth == 0 {
                    return Some(start + index as usize + 1);
                }
            }
            brackets &= brackets - 1;
        }
    }
    None
}

fn padded(rest: &[u8]) -> [u8; BLOCK] {
    let mut block = [b' '; BLOCK];
    block.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    block
}

/// Brackets in a block that are not in strings; the lowest bit is the first byte.
struct Brackets {
    open: u64,
    close: u64,
}

/// What the end of a block means for the next one.
#[derive(Default)]
struct Strings {
    /// All ones within a string.
    inside: u64,
    /// One if the first byte of the next block is escaped.
    escaped: u64,
}

impl Strings {
    fn brackets(&mut self, block: &[u8; BLOCK]) -> Brackets {
        let backslashes = positions(block, |bytes| bytes.simd_eq(u8x16::splat(b'\\')));
        let quotes = positions(block, |bytes| bytes.simd_eq(u8x16::splat(b'"'))) & !self.escaped(backslashes);
        let inside = odd(quotes) ^ self.inside;
        self.inside = 0_u64.wrapping_sub(inside >> 63);
        // `[` and `{` differ in one bit, and so do `]` and `}`; no other two bytes become these with that bit set.
        let folded = |bytes: u8x16| bytes | u8x16::splat(0x20);
        Brackets {
            open: positions(block, |bytes| folded(bytes).simd_eq(u8x16::splat(b'{'))) & !inside,
            close: positions(block, |bytes| folded(bytes).simd_eq(u8x16::splat(b'}'))) & !inside,
        }
    }

    /// The bytes that a backslash before them escapes.
    fn escaped(&mut self, backslashes: u64) -> u64 {
        let mut escaped = std::mem::take(&mut self.escaped);
        let mut escaping = backslashes & !escaped;
        while escaping != 0 {
            let next = (escaping & escaping.wrapping_neg()) << 1;
            if next == 0 {
                self.escaped = 1;
                break;
            }
            escaped |= next;
            // What is behind the escaped byte.
            escaping = backslashes & !escaped & !(next - 1);
        }
        escaped
    }
}

/// Which bytes of a block `matches` selects: it sets those to all ones.
fn positions(block: &[u8; BLOCK], matches: impl Fn(u8x16) -> u8x16) -> u64 {
    let (lanes, _) = block.as_chunks::<LANE>();
    lanes.iter().rev().fold(0, |bits, lane| bits << 16 | u64::from(matches(u8x16::new(*lane)).to_bitmask()))
}

/// Sets the bits that have an odd number of set ones from the lowest bit up to themselves.
fn odd(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}
