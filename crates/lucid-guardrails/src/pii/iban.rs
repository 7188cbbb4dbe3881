//! IBAN (ISO 13616).

use super::{
    checks,
    text::{Step, ends, separator},
};

pub(super) const ENTITY: &str = "IBAN_CODE";

/// Lengths by country, from the IBAN registry of SWIFT.
#[rustfmt::skip]
const LENGTHS: &[(&[u8; 2], usize)] = &[
    (b"AD", 24), (b"AE", 23), (b"AL", 28), (b"AT", 20), (b"AZ", 28), (b"BA", 20), (b"BE", 16), (b"BG", 22), (b"BH", 22), (b"BI", 27),
    (b"BR", 29), (b"BY", 28), (b"CH", 21), (b"CR", 22), (b"CY", 28), (b"CZ", 24), (b"DE", 22), (b"DJ", 27), (b"DK", 18), (b"DO", 28),
    (b"EE", 20), (b"EG", 29), (b"ES", 24), (b"FI", 18), (b"FK", 18), (b"FO", 18), (b"FR", 27), (b"GB", 22), (b"GE", 22), (b"GI", 23),
    (b"GL", 18), (b"GR", 27), (b"GT", 28), (b"HN", 28), (b"HR", 21), (b"HU", 28), (b"IE", 22), (b"IL", 23), (b"IQ", 23), (b"IS", 26),
    (b"IT", 27), (b"JO", 30), (b"KW", 30), (b"KZ", 20), (b"LB", 28), (b"LC", 32), (b"LI", 21), (b"LT", 20), (b"LU", 20), (b"LV", 21),
    (b"LY", 25), (b"MC", 27), (b"MD", 24), (b"ME", 22), (b"MK", 19), (b"MN", 20), (b"MR", 27), (b"MT", 31), (b"MU", 30), (b"NI", 28),
    (b"NL", 18), (b"NO", 15), (b"OM", 23), (b"PK", 24), (b"PL", 28), (b"PS", 29), (b"PT", 25), (b"QA", 29), (b"RO", 24), (b"RS", 22),
    (b"RU", 33), (b"SA", 24), (b"SC", 31), (b"SD", 18), (b"SE", 24), (b"SI", 19), (b"SK", 24), (b"SM", 27), (b"SO", 23), (b"ST", 25),
    (b"SV", 28), (b"TL", 23), (b"TN", 24), (b"TR", 26), (b"UA", 29), (b"VA", 22), (b"VG", 24), (b"XK", 20), (b"YE", 30),
];

/// Finds an IBAN at `start`, without separators or in groups of four.
pub(super) fn find(text: &[u8], start: usize, compact: &mut Vec<u8>) -> Step {
    let Some(country) = text.get(start..start + 2) else { return Step::Open };
    let lower = country[0].is_ascii_lowercase();
    let country = [country[0].to_ascii_uppercase(), country[1].to_ascii_uppercase()];
    let Ok(known) = LENGTHS.binary_search_by_key(&&country, |(code, _)| code) else { return Step::No };
    let len = LENGTHS[known].1;
    compact.clear();
    let mut separated = None;
    let mut at = start;
    while compact.len() < len {
        if compact.len() == 4 || compact.len().is_multiple_of(4) && separated.flatten().is_some() {
            let found = separator(text, at).filter(|kind| *kind != b':');
            if *separated.get_or_insert(found) != found {
                return if at == text.len() { Step::Open } else { Step::No };
            }
            at += usize::from(found.is_some());
        }
        let Some(byte) = text.get(at) else { return Step::Open };
        let fits = match compact.len() {
            0 | 1 => byte.is_ascii_alphabetic(),
            2 | 3 => byte.is_ascii_digit(),
            _ => byte.is_ascii_alphanumeric(),
        };
        if !fits || byte.is_ascii_alphabetic() && byte.is_ascii_lowercase() != lower {
            return Step::No;
        }
        compact.push(byte.to_ascii_uppercase());
        at += 1;
    }
    match ends(text, at) && checks::mod_97(compact) {
        true => Step::Found(start..at),
        false => Step::No,
    }
}
