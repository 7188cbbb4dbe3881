//! Check digits. The functions get digits and capitals without separators, in the length of their shape.

fn digit(byte: u8) -> u32 {
    u32::from(byte.wrapping_sub(b'0'))
}

fn base36(byte: u8) -> u32 {
    match byte {
        b'0'..=b'9' => digit(byte),
        _ => u32::from(byte.wrapping_sub(b'A')) + 10,
    }
}

/// Number of up to 18 digits.
fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, byte| value * 10 + u64::from(digit(*byte)))
}

fn weighted(digits: &[u8], weights: &[u32]) -> u32 {
    digits.iter().zip(weights).map(|(byte, weight)| digit(*byte) * weight).sum()
}

fn all_equal(digits: &[u8]) -> bool {
    digits.windows(2).all(|pair| pair[0] == pair[1])
}

/// Day and month exist. February has 29 days if the year is not known.
fn is_date(day: u64, month: u64, year: Option<u64>) -> bool {
    let leap = year
        .is_none_or(|year| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)));
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// ISO/IEC 7812-1.
pub(super) fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, byte)| match digit(*byte) * (1 + index as u32 % 2) {
            product @ 10.. => product - 9,
            product => product,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Verhoeff's dihedral check.
fn verhoeff(digits: &[u8]) -> bool {
    /// Product in the dihedral group of order 10.
    fn product(a: u32, b: u32) -> u32 {
        match (a < 5, b < 5) {
            (true, true) => (a + b) % 5,
            (true, false) => 5 + (a + b - 5) % 5,
            (false, true) => 5 + (a - b) % 5,
            (false, false) => (5 + a - b) % 5,
        }
    }
    const PERMUTATION: [u32; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    digits.iter().rev().enumerate().fold(0, |check, (index, byte)| {
        let permuted = (0..index % 8).fold(digit(*byte), |value, _| PERMUTATION[value as usize % 10]);
        product(check, permuted)
    }) == 0
}

/// ISO 7064 mod 11,10.
fn mod_11_10(digits: &[u8]) -> bool {
    let Some((last, rest)) = digits.split_last() else { return false };
    let product = rest.iter().fold(10, |product, byte| {
        let sum = (digit(*byte) + product) % 10;
        (if sum == 0 { 10 } else { sum }) * 2 % 11
    });
    (11 - product) % 10 == digit(*last)
}

/// ISO 7064 mod 97,10 of an IBAN.
pub(super) fn mod_97(iban: &[u8]) -> bool {
    let (head, tail) = iban.split_at(4.min(iban.len()));
    let remainder = tail.iter().chain(head).fold(0, |remainder, byte| match base36(*byte) {
        value @ 10.. => (remainder * 100 + value) % 97,
        value => (remainder * 10 + value) % 97,
    });
    remainder == 1
}

pub(super) fn card(n: &[u8]) -> bool {
    let prefix = |len: usize| number(&n[..len]);
    let brand = match n.len() {
        // Visa; from 16 on also UnionPay and Maestro.
        13 => prefix(1) == 4,
        // Diners Club
        14 => matches!(prefix(2), 36 | 38 | 39) || matches!(prefix(3), 300..=305 | 309),
        // American Express
        15 => matches!(prefix(2), 34 | 37),
        16 => {
            matches!(prefix(1), 4)
                || matches!(prefix(2), 36 | 38 | 39 | 50..=65 | 67 | 81 | 82)
                || matches!(prefix(4), 2200..=2204 | 2221..=2720 | 3528..=3589 | 9792)
                || matches!(prefix(3), 300..=305 | 309)
        }
        _ => prefix(1) == 4 || matches!(prefix(2), 50 | 56..=65 | 67),
    };
    brand && luhn(n) && !all_equal(n)
}

/// UATP and old JCB.
pub(super) fn old_card(n: &[u8]) -> bool {
    (n[0] == b'1' || n.starts_with(b"2131")) && luhn(n) && !all_equal(n)
}

pub(super) fn us_ssn(n: &[u8]) -> bool {
    let (area, group, serial) = (number(&n[..3]), number(&n[3..5]), number(&n[5..]));
    !matches!(area, 0 | 666 | 900..)
        && group != 0
        && serial != 0
        && !all_equal(n)
        // Published in advertisements.
        && !matches!(n, b"078051120" | b"219099999" | b"123456789")
}

pub(super) fn us_itin(n: &[u8]) -> bool {
    n[0] == b'9' && matches!(number(&n[3..5]), 50..=65 | 70..=88 | 90..=92 | 94..=99)
}

pub(super) fn us_npi(n: &[u8]) -> bool {
    matches!(n[0], b'1' | b'2') && !all_equal(&n[..9]) && luhn(&[b"80840", n].concat())
}

/// Medicare beneficiary identifier.
pub(super) fn us_mbi(n: &[u8]) -> bool {
    let letter = |at: usize| n[at].is_ascii_uppercase() && !b"SLOIBZ".contains(&n[at]);
    let digit = |at: usize| n[at].is_ascii_digit();
    let either = |at: usize| digit(at) || letter(at);
    matches!(n[0], b'1'..=b'9')
        && [1, 4, 7, 8].into_iter().all(letter)
        && [3, 6, 9, 10].into_iter().all(digit)
        && [2, 5].into_iter().all(either)
}

pub(super) fn aba(n: &[u8]) -> bool {
    matches!(number(&n[..2]), 0..=12 | 21..=32 | 61..=72 | 80)
        && !all_equal(n)
        && weighted(n, &[3, 7, 1, 3, 7, 1, 3, 7, 1]).is_multiple_of(10)
}

/// Certificate of the Drug Enforcement Administration.
pub(super) fn us_dea(n: &[u8]) -> bool {
    b"ABCDEFGHJKLMPRSTUX".contains(&n[0])
        && (n[1].is_ascii_uppercase() || n[1] == b'9')
        && weighted(&n[2..8], &[1, 2, 1, 2, 1, 2]) % 10 == digit(n[8])
}

pub(super) fn uk_nhs(n: &[u8]) -> bool {
    !all_equal(n) && weighted(n, &[10, 9, 8, 7, 6, 5, 4, 3, 2, 1]).is_multiple_of(11)
}

/// National insurance number. It has no check digit.
pub(super) fn uk_nino(n: &[u8]) -> bool {
    !b"DFIQUV".contains(&n[0])
        && !b"DFIQUVO".contains(&n[1])
        && ![b"BG", b"GB", b"KN", b"NK", b"NT", b"TN", b"ZZ"].iter().any(|prefix| n.starts_with(*prefix))
        && matches!(n[8], b'A'..=b'D')
}

/// Steuer-Identifikationsnummer.
pub(super) fn de_tax_id(n: &[u8]) -> bool {
    let most = (b'0'..=b'9').map(|digit| n[..10].iter().filter(|byte| **byte == digit).count()).max();
    n[0] != b'0' && most <= Some(3) && mod_11_10(n)
}

/// ICAO 9303.
pub(super) fn de_id_card(n: &[u8]) -> bool {
    let sum: u32 =
        n[..8].iter().zip([7, 3, 1].iter().cycle()).map(|(byte, weight)| base36(*byte) * weight).sum();
    b"CFGHJKLMNPRTVWXYZ".contains(&n[0])
        && n[..8].iter().all(|byte| byte.is_ascii_digit() || b"CFGHJKLMNPRTVWXYZ".contains(byte))
        && sum % 10 == digit(n[8])
}

/// Numbers before 2010. They have no check digit.
pub(super) fn de_old_id_card(n: &[u8]) -> bool {
    n[0] == b'T'
}

/// Sum of the digits of the products.
fn cross_sum(digits: &[u8], weights: &[u32]) -> u32 {
    digits
        .iter()
        .zip(weights)
        .map(|(byte, weight)| digit(*byte) * weight)
        .map(|product| product / 10 + product % 10)
        .sum()
}

/// Replaces a letter by its place in the alphabet, in two digits.
fn ordinal(letter: u8) -> [u8; 2] {
    let place = letter.wrapping_sub(b'A') + 1;
    [b'0' + place / 10, b'0' + place % 10]
}

/// Krankenversichertennummer.
pub(super) fn de_health_insurance(n: &[u8]) -> bool {
    let digits = [&ordinal(n[0]), &n[1..9]].concat();
    cross_sum(&digits, &[1, 2, 1, 2, 1, 2, 1, 2, 1, 2]) % 10 == digit(n[9])
}

/// Rentenversicherungsnummer.
pub(super) fn de_social_security(n: &[u8]) -> bool {
    let digits = [&n[..8], &ordinal(n[8]), &n[9..11]].concat();
    matches!(number(&n[2..4]), 1..=31 | 51..=81)
        && matches!(number(&n[4..6]), 1..=12)
        && cross_sum(&digits, &[2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1]) % 10 == digit(n[11])
}

pub(super) fn es_nif(n: &[u8]) -> bool {
    let (digits, letter) = n.split_at(n.len() - 1);
    b"TRWAGMYFPDXBNJZSQVHLCKE"[number(digits) as usize % 23] == letter[0]
}

pub(super) fn es_nie(n: &[u8]) -> bool {
    let first = match n[0] {
        b'X' => b'0',
        b'Y' => b'1',
        b'Z' => b'2',
        _ => return false,
    };
    es_nif(&[&[first], &n[1..]].concat())
}

/// Codice fiscale, also with letters for digits (omocodia).
pub(super) fn it_fiscal_code(n: &[u8]) -> bool {
    const ODD: [u32; 26] =
        [1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23];
    let numeric =
        [6, 7, 9, 10, 12, 13, 14].iter().all(|at| n[*at].is_ascii_digit() || b"LMNPQRSTUV".contains(&n[*at]));
    let sum: u32 = n[..15]
        .iter()
        .enumerate()
        .map(|(index, byte)| {
            let value = if byte.is_ascii_digit() { digit(*byte) } else { base36(*byte) - 10 };
            if index % 2 == 0 { ODD[value as usize % 26] } else { value }
        })
        .sum();
    numeric && b"ABCDEHLMPRST".contains(&n[8]) && sum % 26 == base36(n[15]).wrapping_sub(10)
}

pub(super) fn pl_pesel(n: &[u8]) -> bool {
    is_date(number(&n[4..6]), number(&n[2..4]) % 20, None)
        && weighted(n, &[1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1]).is_multiple_of(10)
}

/// Numéro d'inscription au répertoire. Corsican departments are 2A and 2B.
pub(super) fn fr_nir(n: &[u8]) -> bool {
    let (department, minus) = match n[6] {
        b'A' => (b'0', 1_000_000),
        b'B' => (b'0', 2_000_000),
        other => (other, 0),
    };
    let digits = [&n[..6], &[department], &n[7..13]].concat();
    digits.iter().all(u8::is_ascii_digit)
        && matches!(n[0], b'1'..=b'4' | b'7' | b'8')
        && matches!(number(&n[3..5]), 1..=12 | 20 | 30..=42 | 50..=99)
        && 97 - (number(&digits) - minus) % 97 == number(&n[13..])
}

/// Elfproef.
pub(super) fn nl_bsn(n: &[u8]) -> bool {
    let sum = weighted(&n[..8], &[9, 8, 7, 6, 5, 4, 3, 2]) + 10 * 11;
    !all_equal(n) && (sum - digit(n[8])).is_multiple_of(11)
}

/// Henkilötunnus. The shape leaves out the separator of the century if it is `-`.
pub(super) fn fi_hetu(n: &[u8]) -> bool {
    let (date, rest) = n.split_at(6);
    let rest = match rest {
        [b'A'..=b'F' | b'U'..=b'Y', rest @ ..] if rest.len() == 4 => rest,
        rest if rest.len() == 4 => rest,
        _ => return false,
    };
    rest[..3].iter().all(u8::is_ascii_digit)
        && is_date(number(&date[..2]), number(&date[2..4]), None)
        && number(&rest[..3]) >= 2
        && b"0123456789ABCDEFHJKLMNPRSTUVWXY"[(number(date) * 1000 + number(&rest[..3])) as usize % 31]
            == rest[3]
}

/// Personnummer and samordningsnummer, whose day is larger by 60.
pub(super) fn se_personnummer(n: &[u8]) -> bool {
    let (century, n) = n.split_at(n.len() - 10);
    let day = number(&n[4..6]);
    let day = if day > 60 { day - 60 } else { day };
    let year = (!century.is_empty()).then(|| number(century) * 100 + number(&n[..2]));
    matches!(century, b"" | b"18" | b"19" | b"20") && is_date(day, number(&n[2..4]), year) && luhn(n)
}

pub(super) fn br_cpf(n: &[u8]) -> bool {
    let check = |len: u32| {
        let sum: u32 = (0..len).map(|at| digit(n[at as usize]) * (len + 1 - at)).sum();
        sum * 10 % 11 % 10 == digit(n[len as usize])
    };
    !all_equal(n) && check(9) && check(10)
}

/// Numbers that read the same backwards are not issued.
pub(super) fn in_aadhaar(n: &[u8]) -> bool {
    matches!(n[0], b'2'..=b'9')
        && !n.iter().eq(n.iter().rev())
        // Years.
        && !n.chunks(4).all(|group| matches!(group, [b'1', b'9', ..] | [b'2', b'0', ..]))
        && verhoeff(n)
}

/// Permanent account number. The check letter is not published.
pub(super) fn in_pan(n: &[u8]) -> bool {
    b"ABCFGHLJPTK".contains(&n[3]) && &n[5..9] != b"0000"
}

pub(super) fn in_any_pan(_: &[u8]) -> bool {
    true
}

pub(super) fn au_tfn(n: &[u8]) -> bool {
    !all_equal(n) && weighted(n, &[1, 4, 3, 7, 5, 8, 6, 9, 10]).is_multiple_of(11)
}

pub(super) fn au_abn(n: &[u8]) -> bool {
    n[0] != b'0' && (weighted(n, &[10, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19]) - 10).is_multiple_of(89)
}

pub(super) fn au_acn(n: &[u8]) -> bool {
    !all_equal(n) && (weighted(n, &[8, 7, 6, 5, 4, 3, 2, 1]) + digit(n[8])).is_multiple_of(10)
}

pub(super) fn au_medicare(n: &[u8]) -> bool {
    matches!(n[0], b'2'..=b'6') && weighted(n, &[1, 3, 7, 9, 1, 3, 7, 9]) % 10 == digit(n[8])
}

/// Identity card and foreign identification number.
pub(super) fn sg_nric(n: &[u8]) -> bool {
    let sum = weighted(&n[1..8], &[2, 7, 6, 5, 4, 3, 2]);
    let letter = |letters: &[u8; 11], offset: u32| letters[(sum + offset) as usize % 11];
    n[8] == match n[0] {
        b'S' => letter(b"JZIHGFEDCBA", 0),
        b'T' => letter(b"JZIHGFEDCBA", 4),
        b'F' => letter(b"XWUTRQPNMLK", 0),
        b'G' => letter(b"XWUTRQPNMLK", 4),
        b'M' => letter(b"XWUTRQPNJLK", 3),
        _ => return false,
    }
}

pub(super) fn ca_sin(n: &[u8]) -> bool {
    !matches!(n[0], b'0' | b'8') && !all_equal(n) && luhn(n)
}

/// Date and gender of a Korean number. Those issued since October 2020 have no check digit.
fn kr_number(n: &[u8]) -> bool {
    is_date(number(&n[4..6]), number(&n[2..4]), None)
}

pub(super) fn kr_rrn(n: &[u8]) -> bool {
    matches!(n[6], b'1'..=b'4') && kr_number(n)
}

pub(super) fn kr_frn(n: &[u8]) -> bool {
    matches!(n[6], b'5'..=b'8') && kr_number(n)
}

pub(super) fn th_tnin(n: &[u8]) -> bool {
    let sum = weighted(&n[..12], &[13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
    n[0] != b'0'
        && n[1] != b'0'
        && !matches!(number(&n[1..3]), 28 | 29 | 59 | 68 | 69 | 78 | 79 | 87..=89 | 97..=99)
        && (11 - sum % 11) % 10 == digit(n[12])
}

pub(super) fn tr_national_id(n: &[u8]) -> bool {
    let odd: u32 = n[..9].iter().step_by(2).map(|byte| digit(*byte)).sum();
    let even: u32 = n[1..8].iter().step_by(2).map(|byte| digit(*byte)).sum();
    n[0] != b'0'
        && (odd * 7 + 100 - even) % 10 == digit(n[9])
        && (odd + even + digit(n[9])) % 10 == digit(n[10])
}

pub(super) fn za_id_number(n: &[u8]) -> bool {
    let (year, month, day) = (number(&n[..2]), number(&n[2..4]), number(&n[4..6]));
    (is_date(day, month, Some(1900 + year)) || is_date(day, month, Some(2000 + year)))
        && matches!(n[10], b'0'..=b'2')
        && matches!(n[11], b'8' | b'9')
        && luhn(n)
}

pub(super) fn ng_nin(n: &[u8]) -> bool {
    !all_equal(n) && verhoeff(n)
}

/// Neither broadcast nor empty.
pub(super) fn mac(n: &[u8]) -> bool {
    n.iter().all(u8::is_ascii_hexdigit) && n.iter().any(u8::is_ascii_digit) && !all_equal(n)
}

/// Hexadecimal, also without digits.
pub(super) fn mac_in_groups(n: &[u8]) -> bool {
    n.iter().all(u8::is_ascii_hexdigit) && !all_equal(n)
}
