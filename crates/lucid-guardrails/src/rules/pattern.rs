//! Regular expressions for folded text.

use regex_syntax::{
    ParserBuilder,
    hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look, Repetition},
};

use crate::normalize::fold_char;

/// Larger classes, such as `\d`, `\w` and `[^x]`, are not folded: they contain the folded form of their characters.
const LARGE_CLASS: u32 = 256;

/// Parses a pattern. Unless it is exact, it is folded as text is.
pub(super) fn parse(pattern: &str, exact: bool) -> Result<Hir, String> {
    let mut parser = ParserBuilder::new().case_insensitive(!exact).build();
    let hir = parser.parse(pattern).map_err(|error| error.to_string())?;
    let mut folder = Folder { exact, has_boundary: false, has_non_ascii: false };
    let hir = folder.fold(&hir);
    match hir.properties().minimum_len() {
        Some(0) => return Err("matches the empty text".into()),
        None => return Err("matches nothing".into()),
        Some(_) => {}
    }
    if folder.has_boundary && folder.has_non_ascii {
        return Err(
            "letters other than Latin next to a boundary of ASCII words are supported in phrases only".into(),
        );
    }
    Ok(hir)
}

struct Folder {
    exact: bool,
    has_boundary: bool,
    has_non_ascii: bool,
}

impl Folder {
    /// The parser limits the depth of recursion.
    fn fold(&mut self, hir: &Hir) -> Hir {
        match hir.kind() {
            HirKind::Empty => Hir::empty(),
            HirKind::Literal(literal) => self.literal(&literal.0),
            HirKind::Class(Class::Unicode(class)) => self.class(class),
            HirKind::Class(class) => Hir::class(class.clone()),
            HirKind::Look(look) => Hir::look(self.look(*look)),
            HirKind::Repetition(repetition) => Hir::repetition(Repetition {
                min: repetition.min,
                max: repetition.max,
                greedy: repetition.greedy,
                sub: Box::new(self.fold(&repetition.sub)),
            }),
            HirKind::Capture(capture) => self.fold(&capture.sub),
            HirKind::Concat(parts) => Hir::concat(parts.iter().map(|part| self.fold(part)).collect()),
            HirKind::Alternation(parts) => {
                Hir::alternation(parts.iter().map(|part| self.fold(part)).collect())
            }
        }
    }

    fn literal(&mut self, literal: &[u8]) -> Hir {
        let text: String = match std::str::from_utf8(literal) {
            Ok(text) if !self.exact => text.chars().map(fold_char).collect(),
            _ => return Hir::literal(literal),
        };
        self.has_non_ascii |= !text.is_ascii();
        Hir::literal(text.into_bytes())
    }

    fn class(&mut self, class: &ClassUnicode) -> Hir {
        let size = |range: &ClassUnicodeRange| u32::from(range.end()) - u32::from(range.start()) + 1;
        if self.exact || class.ranges().iter().map(size).fold(0, u32::saturating_add) > LARGE_CLASS {
            return Hir::class(Class::Unicode(class.clone()));
        }
        let mut folded = ClassUnicode::empty();
        let mut longer = Vec::new();
        for c in class.ranges().iter().flat_map(|range| range.start()..=range.end()) {
            let text = fold_char(c);
            self.has_non_ascii |= !text.is_ascii();
            let mut chars = text.chars();
            match (chars.next(), chars.next()) {
                (Some(c), None) => folded.push(ClassUnicodeRange::new(c, c)),
                (Some(_), Some(_)) => longer.push(Hir::literal(text.into_bytes())),
                (None, _) => {}
            }
        }
        if !folded.ranges().is_empty() || longer.is_empty() {
            longer.push(Hir::class(Class::Unicode(folded)));
        }
        Hir::alternation(longer)
    }

    /// Replaces boundaries of Unicode words, for which lazy DFAs have no states beyond ASCII.
    fn look(&mut self, look: Look) -> Look {
        let ascii = match look {
            Look::WordUnicode => Look::WordAscii,
            Look::WordUnicodeNegate => Look::WordAsciiNegate,
            Look::WordStartUnicode => Look::WordStartAscii,
            Look::WordEndUnicode => Look::WordEndAscii,
            Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
            Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
            look => return look,
        };
        self.has_boundary = true;
        ascii
    }
}
