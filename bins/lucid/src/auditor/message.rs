//! HTTP/1.1 messages, as far as they were received.

use std::ops::Range;

/// Kind of message, which decides the length of its body (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Answer,
    AnswerToHead,
}

/// Completeness of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// More is to come.
    Open,
    /// The message is complete.
    Whole,
    /// The connection was closed before the end, or the framing is malformed.
    Cut,
}

/// A message whose head was received.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Request line or status line.
    pub(crate) start: String,
    /// Lines after the start line, as they were received.
    pub(crate) lines: Vec<String>,
    /// The body without its framing, as far as it was received.
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<String>,
    pub(crate) end: End,
    /// Number of bytes on the connection.
    pub(crate) length: usize,
}

impl Message {
    /// Reads the first message of `raw`. Returns `None` while its head is incomplete.
    pub(crate) fn read(raw: &[u8], kind: Kind, is_closed: bool) -> Option<Self> {
        let head = find(raw, b"\r\n\r\n")? + 4;
        let text = String::from_utf8_lossy(&raw[..head - 4]).into_owned();
        let mut lines = text.split("\r\n").map(str::to_owned);
        let start = lines.next().unwrap_or_default();
        let mut message = Self {
            start,
            lines: lines.collect(),
            body: Vec::new(),
            trailers: Vec::new(),
            end: End::Open,
            length: head,
        };
        message.read_body(raw, kind, is_closed);
        if is_closed && message.end == End::Open {
            message.end = End::Cut;
        }
        Some(message)
    }

    fn read_body(&mut self, raw: &[u8], kind: Kind, is_closed: bool) {
        let head = self.length;
        let is_chunked =
            self.header("transfer-encoding").is_some_and(|it| it.to_lowercase().ends_with("chunked"));
        let has_none = kind == Kind::AnswerToHead
            || kind == Kind::Answer && (matches!(self.status(), 204 | 304) || self.status() < 200);
        let known = self.header("content-length").map(|it| it.trim().parse::<usize>());
        if has_none || kind == Kind::Request && !is_chunked && known.is_none() {
            self.end = End::Whole;
        } else if is_chunked {
            let chunks = Chunks::read(raw, head);
            self.body = chunks.data.iter().flat_map(|range| &raw[range.clone()]).copied().collect();
            (self.trailers, self.end, self.length) = (chunks.trailers, chunks.end, chunks.position);
        } else if let Some(Ok(known)) = known {
            self.length = raw.len().min(head.saturating_add(known));
            self.body = raw[head..self.length].to_vec();
            self.end = if self.body.len() == known { End::Whole } else { End::Open };
        } else if known.is_some() {
            self.end = End::Cut;
        } else {
            self.body = raw[head..].to_vec();
            self.length = raw.len();
            self.end = if is_closed { End::Whole } else { End::Open };
        }
    }

    /// Returns the status of an answer; 0 if the status line is malformed.
    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
    }

    /// Returns the values of a header, in order.
    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        let fields = self.lines.iter().filter_map(|line| line.split_once(':'));
        fields.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    /// Returns the first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).first().copied()
    }

    /// Returns the body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns `true` if the connection is not used after this answer.
    pub(crate) fn closes(&self) -> bool {
        let listed = self.headers("connection").join(",").to_lowercase();
        listed.contains("close") || self.start.starts_with("HTTP/1.0") && !listed.contains("keep-alive")
    }

    /// Returns the reason why servers may disagree on the length of this request.
    pub(crate) fn ambiguity(&self) -> Option<String> {
        let (lengths, codings) = (self.headers("content-length"), self.headers("transfer-encoding"));
        let is_number = |value: &&str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        if !lengths.is_empty() && !codings.is_empty() {
            return Some("both Content-Length and Transfer-Encoding".to_owned());
        }
        if lengths.len() > 1 || !lengths.iter().all(is_number) {
            return Some(format!("Content-Length {}", lengths.join(" and ")));
        }
        if codings.len() > 1 || codings.iter().any(|coding| !coding.eq_ignore_ascii_case("chunked")) {
            return Some(format!("Transfer-Encoding {}", codings.join(" and ")));
        }
        let is_odd = |line: &&String| {
            let name = line.split(':').next().unwrap_or_default();
            name.is_empty()
                || name.contains([' ', '\t'])
                || line.chars().any(|it| it.is_control() && it != '\t')
        };
        self.lines.iter().find(is_odd).map(|line| format!("the line {line:?}"))
    }
}

/// A chunked body (RFC 9112, section 7.1).
struct Chunks {
    data: Vec<Range<usize>>,
    trailers: Vec<String>,
    end: End,
    position: usize,
}

impl Chunks {
    fn read(raw: &[u8], start: usize) -> Self {
        let mut chunks = Self { data: Vec::new(), trailers: Vec::new(), end: End::Open, position: start };
        chunks.advance(raw);
        chunks
    }

    /// Reads until the end, or until bytes are missing.
    fn advance(&mut self, raw: &[u8]) -> Option<()> {
        loop {
            let line = line(raw, &mut self.position)?;
            let size = line.split(';').next().unwrap_or_default().trim().to_owned();
            let Ok(size) = usize::from_str_radix(&size, 16) else {
                self.end = End::Cut;
                return None;
            };
            if size == 0 {
                break;
            }
            let received = self.position..raw.len().min(self.position.saturating_add(size));
            let is_complete = received.len() == size;
            self.position = received.end;
            self.data.push(received);
            if !is_complete || raw.len() < self.position + 2 {
                return None;
            }
            if raw[self.position..self.position + 2] != *b"\r\n" {
                self.end = End::Cut;
                return None;
            }
            self.position += 2;
        }
        loop {
            let line = line(raw, &mut self.position)?;
            if line.is_empty() {
                self.end = End::Whole;
                return Some(());
            }
            self.trailers.push(line);
        }
    }
}

/// Returns the line at `position` and advances it, or `None` if the line is incomplete.
fn line(raw: &[u8], position: &mut usize) -> Option<String> {
    let length = find(&raw[*position..], b"\r\n")?;
    let line = String::from_utf8_lossy(&raw[*position..*position + length]).into_owned();
    *position += length + 2;
    Some(line)
}

/// Returns the position of `part` in `bytes`.
pub(crate) fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_end_as_their_framing_says() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (raw, kind, is_closed, body, end) in [
            ("GET / HTTP/1.1\r\n\r\nGET", Kind::Request, false, "", End::Whole),
            ("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcd", Kind::Request, false, "abc", End::Whole),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcd", Kind::Request, false, "abcd", End::Open),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcd", Kind::Request, true, "abcd", End::Cut),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Kind::AnswerToHead, false, "", End::Whole),
            ("HTTP/1.0 200 OK\r\n\r\nabc", Kind::Answer, false, "abc", End::Open),
            ("HTTP/1.0 200 OK\r\n\r\nabc", Kind::Answer, true, "abc", End::Whole),
            (
                &format!("{chunked}3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX: 1\r\n\r\n"),
                Kind::Answer,
                false,
                "abcde",
                End::Whole,
            ),
            (&format!("{chunked}3\r\nabc\r\n2\r\nd"), Kind::Answer, true, "abcd", End::Cut),
            (&format!("{chunked}x\r\nabc"), Kind::Answer, false, "", End::Cut),
        ] {
            let message = Message::read(raw.as_bytes(), kind, is_closed).unwrap();
            assert_eq!((message.text().as_str(), message.end), (body, end), "{raw:?}");
        }
        assert!(Message::read(b"GET / HTTP/1.1\r\nHost: a\r\n", Kind::Request, false).is_none());
    }

    #[test]
    fn ambiguous_requests_are_recognized() {
        for (lines, is_ambiguous) in [
            ("Content-Length: 5", false),
            ("Transfer-Encoding: Chunked", false),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked", true),
            ("Content-Length: 5\r\nContent-Length: 5", true),
            ("Content-Length: +5", true),
            ("Transfer-Encoding: gzip, chunked", true),
            ("Transfer-Encoding : chunked", true),
            ("A: b\r\n Content-Length: 5", true),
            ("A: b\0", true),
        ] {
            let raw = format!("POST / HTTP/1.1\r\n{lines}\r\n\r\n");
            let message = Message::read(raw.as_bytes(), Kind::Request, false).unwrap();
            assert_eq!(message.ambiguity().is_some(), is_ambiguous, "{lines:?}");
        }
    }
}
