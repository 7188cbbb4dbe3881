//! Parser for the grammar of distribution/reference. Hand-written to report the offset of a fault.

use lucid_text::Line;

use super::ImageReference;
use super::error::{Part, ReferenceError};
use crate::digest::{Digest, DigestError};

const DEFAULT_REGISTRY: &str = "docker.io";
/// Legacy name of [`DEFAULT_REGISTRY`], still used by some tools.
const LEGACY_DEFAULT_REGISTRY: &str = "index.docker.io";
/// Path prefix of single-component repositories on the default registry.
const OFFICIAL_REPOSITORIES: &str = "library/";

const GRAMMAR: &str = "[registry[:port]/]repository[:tag][@digest]";

/// Maximum length of the normalized path within the registry, as in distribution/reference.
const REPOSITORY_LIMIT: usize = 255;
const TAG_LIMIT: usize = 128;

pub(super) fn parse(text: &str) -> Result<ImageReference, ReferenceError> {
    let source = Source { text };
    if text.is_empty() {
        return Err(source.error(Part::Repository, 0, format!("is empty; expected {GRAMMAR}")));
    }
    if text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        let fault = "is a bare identifier of 64 hexadecimal digits, which does not name a repository";
        return Err(source.error(Part::Repository, 0, format!("{fault}; expected {GRAMMAR}")));
    }
    let (registry, start) = source.registry()?;

    // Repositories and tags contain no '@', and repositories no ':', so the first occurrence is the delimiter.
    let digest_mark = text[start..].find('@').map(|at| start + at);
    let tagged_end = digest_mark.unwrap_or(text.len());
    let tag_mark = text[start..tagged_end].find(':').map(|at| start + at);
    let path_end = tag_mark.unwrap_or(tagged_end);

    Ok(ImageReference {
        repository: source.repository(registry, start, path_end)?,
        registry: registry.to_owned(),
        tag: tag_mark.map(|mark| source.tag(mark + 1, tagged_end)).transpose()?,
        digest: digest_mark.map(|mark| source.digest(mark + 1)).transpose()?,
    })
}

/// The text being parsed. Parts are ranges of it, so that errors can report offsets.
struct Source<'a> {
    text: &'a str,
}

impl<'a> Source<'a> {
    /// Returns the normalized registry and the offset of the repository.
    fn registry(&self) -> Result<(&'a str, usize), ReferenceError> {
        let Some((first, _)) = self.text.split_once('/') else { return Ok((DEFAULT_REGISTRY, 0)) };
        // Repositories are lower-case: a first component with an upper-case letter must be a host.
        let is_host = first == "localhost"
            || first.contains(['.', ':'])
            || first.bytes().any(|byte| byte.is_ascii_uppercase());
        if !is_host {
            return Ok((DEFAULT_REGISTRY, 0));
        }
        self.check_host_and_port(first)?;
        let registry = if first == LEGACY_DEFAULT_REGISTRY { DEFAULT_REGISTRY } else { first };
        Ok((registry, first.len() + 1))
    }

    fn check_host_and_port(&self, host_and_port: &str) -> Result<(), ReferenceError> {
        let host_end = if let Some(inner) = host_and_port.strip_prefix('[') {
            let Some(close) = inner.find(']') else {
                let fault = "has a '[' at byte 0 that is not closed; expected [IPV6]";
                return Err(self.error(Part::Registry, 0, fault.to_owned()));
            };
            self.check_characters(Part::Registry, 1, 1 + close, |c| c.is_ascii_hexdigit() || c == ':')?;
            close + 2
        } else {
            let host_end = host_and_port.find(':').unwrap_or(host_and_port.len());
            self.check_host_name(host_end)?;
            host_end
        };
        if host_end == host_and_port.len() {
            return Ok(());
        }
        if !host_and_port[host_end..].starts_with(':') {
            return self.character(Part::Registry, host_end);
        }
        self.check_characters(Part::Port, host_end + 1, host_and_port.len(), |c| c.is_ascii_digit())
    }

    fn check_host_name(&self, end: usize) -> Result<(), ReferenceError> {
        let mut start = 0;
        for name in self.text[..end].split('.') {
            let name_end = start + name.len();
            self.check_characters(Part::Registry, start, name_end, |c| {
                c.is_ascii_alphanumeric() || c == '-'
            })?;
            if name.starts_with('-') {
                return self.character(Part::Registry, start);
            }
            if name.ends_with('-') {
                return self.character(Part::Registry, name_end - 1);
            }
            start = name_end + 1;
        }
        Ok(())
    }

    /// Returns the normalized repository, written from `start` to `end`.
    fn repository(&self, registry: &str, start: usize, end: usize) -> Result<String, ReferenceError> {
        let path = &self.text[start..end];
        let mut component_start = start;
        for component in path.split('/') {
            self.check_component(component_start, component_start + component.len())?;
            component_start += component.len() + 1;
        }
        let is_official = registry == DEFAULT_REGISTRY && !path.contains('/');
        let repository = if is_official { format!("{OFFICIAL_REPOSITORIES}{path}") } else { path.to_owned() };
        self.check_length(Part::Repository, start, repository.len(), REPOSITORY_LIMIT)?;
        Ok(repository)
    }

    /// Checks one repository component: runs of lower-case letters and digits, with one separator between each two.
    fn check_component(&self, start: usize, end: usize) -> Result<(), ReferenceError> {
        let bytes = &self.text.as_bytes()[..end];
        let skip_while = |from: usize, accept: fn(u8) -> bool| {
            from + bytes[from..].iter().take_while(|&&byte| accept(byte)).count()
        };
        if start == end {
            return self.missing(Part::Repository, start);
        }
        let mut at = start;
        loop {
            let run_end = skip_while(at, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
            if run_end == at {
                // At the end of a component, the trailing separator is the invalid character.
                return self.character(Part::Repository, if at == end { at - 1 } else { at });
            }
            at = match &bytes[run_end..] {
                [] => return Ok(()),
                [b'_', b'_', ..] => run_end + 2,
                [b'.' | b'_', ..] => run_end + 1,
                [b'-', ..] => skip_while(run_end, |byte| byte == b'-'),
                _ => return self.character(Part::Repository, run_end),
            };
        }
    }

    fn tag(&self, start: usize, end: usize) -> Result<String, ReferenceError> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        self.check_characters(Part::Tag, start, end, |c| is_word(c) || c == '.' || c == '-')?;
        let tag = &self.text[start..end];
        if !tag.starts_with(is_word) {
            return self.character(Part::Tag, start);
        }
        self.check_length(Part::Tag, start, tag.len(), TAG_LIMIT)?;
        Ok(tag.to_owned())
    }

    fn digest(&self, start: usize) -> Result<Digest, ReferenceError> {
        if start == self.text.len() {
            return self.missing(Part::Digest, start);
        }
        self.text[start..].parse().map_err(|error: DigestError| {
            let offset = start + error.offset;
            self.error(Part::Digest, offset, format!("is wrong from byte {offset}: {error}"))
        })
    }

    /// Requires at least one character from `start` to `end`, all of which satisfy `accept`.
    fn check_characters(
        &self,
        part: Part,
        start: usize,
        end: usize,
        accept: impl Fn(char) -> bool,
    ) -> Result<(), ReferenceError> {
        if start == end {
            return self.missing(part, start);
        }
        match self.text[start..end].find(|c| !accept(c)) {
            Some(at) => self.character(part, start + at),
            None => Ok(()),
        }
    }

    fn missing<T>(&self, part: Part, offset: usize) -> Result<T, ReferenceError> {
        let fault = format!("has an empty {part} at byte {offset}; expected {}", part.expected());
        Err(self.error(part, offset, fault))
    }

    /// Reports the character at `offset` as invalid, or as missing at the end of the text.
    fn character<T>(&self, part: Part, offset: usize) -> Result<T, ReferenceError> {
        match self.text[offset..].chars().next() {
            Some(found) => {
                let expected = part.expected();
                let fault = format!("has {found:?} in the {part} at byte {offset}; expected {expected}");
                Err(self.error(part, offset, fault))
            }
            None => self.missing(part, offset),
        }
    }

    fn check_length(
        &self,
        part: Part,
        offset: usize,
        length: usize,
        limit: usize,
    ) -> Result<(), ReferenceError> {
        if length > limit {
            let fault =
                format!("has a {part} of {length} characters at byte {offset}; expected at most {limit}");
            return Err(self.error(part, offset, fault));
        }
        Ok(())
    }

    fn error(&self, part: Part, offset: usize, fault: String) -> ReferenceError {
        ReferenceError { reference: format!("\"{}\"", Line(self.text)), part, offset, fault }
    }
}
