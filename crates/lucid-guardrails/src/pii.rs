//! Personal data.

mod checks;
mod email;
mod iban;
mod ip;
mod numbers;
mod phone;
mod text;

use lucid_auditor::{Judge, JudgeError, Passage, Verdict};

use self::{
    numbers::{FORMATS, Format},
    text::Step,
};
use crate::{
    EntityOptions, OptionsError,
    entities::{Finding, Selected, verdict},
    normalize::Normalized,
    spans::tail,
};

/// Finds personal data: email addresses, phone, card and account numbers, IP addresses and national ids.
///
/// Entities are named as in Microsoft Presidio. Card numbers, IBANs and national ids count only with valid check digits.
/// Formats that occur by chance, such as nine digits, need a context word in the 64 bytes before them, unless the options name
/// the entity. Numbers are also found with invisible characters in them, in full-width digits, and with spaces, hyphens, dots,
/// slashes or line breaks between their groups.
///
/// In a stream, text is withheld as long as its end may be the beginning of a finding. Ordinary words are released at once, so
/// the name of `name@example.com` passes if it consists of letters, arrives before the `@` and no word such as "email" precedes
/// it; the rest is masked.
#[derive(Debug)]
pub struct Pii {
    formats: Vec<(&'static Format, Selected)>,
    /// Shapes by the length of their first group.
    shapes: Vec<Vec<Shape>>,
    email: Option<Selected>,
    iban: Option<Selected>,
    ip: Option<Selected>,
    phone: Option<Selected>,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Index in [`Pii::formats`].
    format: usize,
    shape: &'static str,
    weak: bool,
    /// Has spaces, and other groups of digits may follow by chance. Luhn and brand of a card number suffice.
    spaced: bool,
}

/// Length of the longest finding, an email address.
const OVERLAP: usize = 256;

impl Pii {
    /// Returns the names of the entities, sorted.
    #[must_use]
    pub fn entities() -> Vec<&'static str> {
        let mut entities: Vec<_> = FORMATS.iter().map(|format| format.entity).collect();
        entities.extend([email::ENTITY, iban::ENTITY, ip::ENTITY, phone::ENTITY]);
        entities.sort_unstable();
        entities.dedup();
        entities
    }

    /// Creates a judge.
    ///
    /// # Errors
    ///
    /// Returns an error if the options name an unknown entity.
    pub fn new(options: EntityOptions) -> Result<Self, OptionsError> {
        let known = Self::entities();
        let selected = options.select(&known)?;
        let get = |entity| known.binary_search(&entity).ok().and_then(|index| selected[index]);
        let mut judge = Self {
            formats: Vec::new(),
            shapes: Vec::new(),
            email: get(email::ENTITY),
            iban: get(iban::ENTITY),
            ip: get(ip::ENTITY),
            phone: get(phone::ENTITY),
        };
        for format in FORMATS {
            let Some(selected) = get(format.entity) else { continue };
            let strong = format.strong.iter().map(|shape| (*shape, false));
            for (shape, weak) in strong.chain(format.weak.iter().map(|shape| (*shape, true))) {
                let first = shape.bytes().take_while(u8::is_ascii_alphanumeric).count();
                if judge.shapes.len() <= first {
                    judge.shapes.resize(first + 1, Vec::new());
                }
                let spaced = format.entity != "CREDIT_CARD" && shape.contains(['~', ' ']);
                judge.shapes[first].push(Shape { format: judge.formats.len(), shape, weak, spaced });
            }
            judge.formats.push((format, selected));
        }
        Ok(judge)
    }

    fn scan(&self, text: &str) -> Scan {
        let bytes = text.as_bytes();
        let mut scan = Scan { len: bytes.len(), ..Scan::default() };
        let mut compact = Vec::with_capacity(40);
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            if byte.is_ascii_alphanumeric() {
                let (mut end, mut digits) = (at, 0);
                while end < bytes.len() && bytes[end].is_ascii_alphanumeric() {
                    digits += usize::from(bytes[end].is_ascii_digit());
                    end += 1;
                }
                if digits > 0 || may_continue(bytes, at, end) {
                    self.scan_word(bytes, at, end, digits, &mut scan, &mut compact);
                }
                at = end;
                continue;
            }
            let after_word = at > 0 && bytes[at - 1].is_ascii_alphanumeric();
            match (byte, bytes.get(at + 1)) {
                (b'@', _) => {
                    if let Some(selected) = self.email {
                        let start = email::start(text, at);
                        scan.step(start, email::find(text, start, at), email::ENTITY, selected, false);
                    }
                }
                (b'+', _) if !after_word => {
                    if let Some(selected) = self.phone {
                        scan.phone(at, phone::find_international(bytes, at), selected, false);
                    }
                }
                (b'(', Some(b'0'..=b'9')) => {
                    let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                    if bytes.get(at + 1 + digits).map_or(digits <= 4, |byte| *byte == b')') {
                        self.scan_phone(bytes, at, &mut scan);
                    }
                }
                (b':', Some(b':')) if !after_word => self.scan_v6(bytes, at, &mut scan),
                _ => {}
            }
            at += 1;
        }
        scan
    }

    /// Finds what begins with the word at `at`.
    fn scan_word(
        &self,
        bytes: &[u8],
        at: usize,
        end: usize,
        digits: usize,
        scan: &mut Scan,
        compact: &mut Vec<u8>,
    ) {
        let len = end - at;
        let last = end == bytes.len();
        // Ordinary words at the end are not taken for the beginning of a code.
        let word = &bytes[at..end];
        let capitals = word.iter().all(u8::is_ascii_uppercase) && !matches!(word, b"A" | b"I");
        if last && digits == 0 && !capitals {
            return;
        }
        if (last || bytes[end] == b':') && word.iter().take(5).all(u8::is_ascii_hexdigit) && len <= 4 {
            self.scan_v6(bytes, at, scan);
        }
        if let Some(selected) = self.ip
            && len <= 3
            && digits == len
            && (last || bytes[end] == b'.')
            && at >= scan.v6_found
            && text::begins(bytes, at)
        {
            scan.ip(bytes, at, ip::find_v4(bytes, at), selected);
        }
        if !text::begins(bytes, at) {
            return;
        }
        if let Some(selected) = self.iban
            && word.iter().take(2).all(u8::is_ascii_alphabetic)
            && word.iter().skip(2).take(2).all(u8::is_ascii_digit)
            && (len >= 4 || last)
        {
            scan.step(at, iban::find(bytes, at, compact), iban::ENTITY, selected, false);
        }
        if digits == len && (last || phone::is_first_group(word)) && (at == 0 || bytes[at - 1] != b'+') {
            self.scan_phone(bytes, at, scan);
        }
        let shapes = match last {
            true => self.shapes.get(len..),
            false => self.shapes.get(len..=len),
        };
        for shape in shapes.unwrap_or_default().iter().flatten() {
            let (format, selected) = self.formats[shape.format];
            let step = text::match_shape(shape.shape, bytes, at, compact);
            let holds = match step {
                Step::Found(_) | Step::Growing(_) => (format.check)(compact),
                Step::Open => digits > 0 || capitals,
                Step::No => false,
            };
            let is_broken = text::is_broken(bytes, &step);
            let weak = shape.weak
                || shape.spaced && is_broken
                || (shape.spaced || is_broken) && text::is_crowded(bytes, at, &step);
            if holds && (!weak || selected.named || text::has_context(bytes, at, format.context)) {
                scan.step(at, step, format.entity, selected, weak);
            }
        }
    }

    fn scan_phone(&self, bytes: &[u8], at: usize, scan: &mut Scan) {
        if let Some(selected) = self.phone
            && at >= scan.phone_found
        {
            let (step, weak) = phone::find_national(bytes, at);
            if !weak || selected.named || text::has_context(bytes, at, phone::CONTEXT) {
                scan.phone(at, step, selected, weak);
            }
        }
    }

    fn scan_v6(&self, bytes: &[u8], at: usize, scan: &mut Scan) {
        let follows = matches!(bytes[..at], [.., byte, b':'] if byte.is_ascii_hexdigit() || byte == b':');
        if let Some(selected) = self.ip
            && at >= scan.v6_run
            && !follows
        {
            let (step, end) = ip::find_v6(bytes, at);
            scan.v6_run = end;
            if let Step::Found(range) | Step::Growing(range) = &step {
                scan.v6_found = range.end;
            }
            scan.ip(bytes, at, step, selected);
        }
    }

    /// Number of bytes at the end that may be the name of an email address.
    fn open_local(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let local = bytes.iter().rev().take_while(|byte| email::is_local(**byte)).take(65).count();
        let start = bytes.len() - local;
        if self.email.is_none() || local == 0 || local > 64 || !text.is_char_boundary(start) {
            return 0;
        }
        local
    }
}

impl Judge for Pii {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        let text = Normalized::codes(&passage.text);
        let mut findings = self.scan(&text.text).findings;
        for finding in &mut findings {
            finding.range = text.original(finding.range.clone());
        }
        Ok(verdict(findings, "personal data"))
    }

    fn overlap(&self) -> usize {
        OVERLAP
    }

    fn undecided(&self, text: &str) -> usize {
        let tail = tail(text, OVERLAP);
        let folded = Normalized::codes(tail);
        let len = folded.text.len();
        match open_end(&self.scan(&folded.text), len).max(self.open_local(&folded.text)) {
            0 => 0,
            open => tail.len() - folded.original(len - open..len).start,
        }
    }
}

/// Returns `true` if a code may begin with these letters: `AB 12 34 56 C`, `AA:BB:CC:DD:EE:FF`, `abcd::1`.
fn may_continue(bytes: &[u8], start: usize, end: usize) -> bool {
    match bytes.get(end) {
        None | Some(b':') => true,
        Some(b'-') => end - start == 2,
        Some(b' ' | b'.') => bytes.get(end + 1).is_some_and(u8::is_ascii_digit),
        Some(_) => false,
    }
}

/// Number of bytes at the end that may change. A finding is not cut.
fn open_end(scan: &Scan, len: usize) -> usize {
    let Some(open) = scan.open else { return 0 };
    let cut = scan
        .findings
        .iter()
        .filter(|finding| finding.range.contains(&open))
        .map(|finding| finding.range.start);
    len - cut.min().unwrap_or(open)
}

#[derive(Debug, Default)]
struct Scan {
    len: usize,
    findings: Vec<Finding>,
    /// Beginning of a finding that may continue after the end of the text.
    open: Option<usize>,
    /// End of the last phone number.
    phone_found: usize,
    /// End of the last run of hexadecimal digits and colons.
    v6_run: usize,
    /// End of the last IPv6 address.
    v6_found: usize,
}

impl Scan {
    fn step(&mut self, at: usize, step: Step, entity: &'static str, selected: Selected, weak: bool) {
        let mut open = |at| self.open = Some(self.open.map_or(at, |open| open.min(at)));
        let is_growing = matches!(step, Step::Growing(_));
        match step {
            Step::Found(range) | Step::Growing(range) => {
                if is_growing || range.end == self.len {
                    open(range.start);
                }
                self.findings.push(Finding { range, entity, action: selected.action, weak });
            }
            Step::Open => open(at),
            Step::No => {}
        }
    }

    fn ip(&mut self, bytes: &[u8], at: usize, step: Step, selected: Selected) {
        match step {
            Step::Found(range) if !selected.named && ip::is_special(&bytes[range.clone()]) => {}
            Step::Growing(range) if !selected.named && ip::is_special(&bytes[range.clone()]) => {
                self.step(at, Step::Open, ip::ENTITY, selected, false);
            }
            step => self.step(at, step, ip::ENTITY, selected, false),
        }
    }

    fn phone(&mut self, at: usize, step: Step, selected: Selected, weak: bool) {
        if let Step::Found(range) | Step::Growing(range) = &step {
            self.phone_found = range.end;
        }
        self.step(at, step, phone::ENTITY, selected, weak);
    }
}
