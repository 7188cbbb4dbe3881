//! HTTP/1.1 messages, as far as they were received.

use httparse::{EMPTY_HEADER, Error, Status};

/// Maximum number of fields of a message.
const FIELDS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Whole,
    /// The connection was closed before the end, or the message is malformed.
    Cut,
}

pub(crate) type Fields = Vec<(String, String)>;

/// A message whose head was received.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) start: String,
    pub(crate) fields: Fields,
    /// The body without its framing, as far as it was received.
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Fields,
    pub(crate) end: End,
    /// Number of bytes on the connection.
    pub(crate) length: usize,
    /// The reason why the fields are malformed.
    error: Option<Error>,
}

impl Message {
    /// Reads the first message of `raw`. Returns `None` while its head is incomplete.
    pub(crate) fn read(raw: &[u8], is_closed: bool) -> Option<Self> {
        let length = find(raw, b"\r\n\r\n")? + 4;
        let line = find(raw, b"\r\n")?;
        let start = String::from_utf8_lossy(&raw[..line]).into_owned();
        let (fields, error) = match fields(&raw[line + 2..length]) {
            Ok(found) => (found.unwrap_or_default().1, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let (body, trailers, end) = (Vec::new(), Vec::new(), End::Cut);
        let mut message = Self { start, fields, body, trailers, end, length, error };
        if error.is_none() {
            message.end = match message.read_body(raw, is_closed) {
                End::Open if is_closed => End::Cut,
                end => end,
            };
        }
        Some(message)
    }

    /// Reads the body (RFC 9112, section 6.3), and returns its end.
    fn read_body(&mut self, raw: &[u8], is_closed: bool) -> End {
        let codings = self.headers("transfer-encoding").join(",").to_lowercase();
        let is_answer = self.start.starts_with("HTTP/");
        let known = self.header("content-length").map(str::parse);
        let length = match known {
            _ if is_answer && (self.status() < 200 || matches!(self.status(), 204 | 304)) => 0,
            _ if codings.ends_with("chunked") => return self.read_chunks(raw),
            Some(Ok(length)) => length,
            Some(Err(_)) => return End::Cut,
            None if is_answer => usize::MAX,
            None => 0,
        };
        let end = self.length.saturating_add(length).min(raw.len());
        self.body = raw[self.length..end].to_vec();
        self.length = end;
        let is_whole = self.body.len() == length || length == usize::MAX && is_closed;
        if is_whole { End::Whole } else { End::Open }
    }

    /// Reads a chunked body (RFC 9112, section 7.1), and returns its end.
    fn read_chunks(&mut self, raw: &[u8]) -> End {
        loop {
            let (line, size) = match httparse::parse_chunk_size(&raw[self.length..]) {
                Ok(Status::Complete((line, size))) => (line, usize::try_from(size).unwrap_or(usize::MAX)),
                Ok(Status::Partial) => return End::Open,
                Err(_) => return End::Cut,
            };
            self.length += line;
            if size == 0 {
                break;
            }
            let end = self.length.saturating_add(size);
            self.body.extend_from_slice(&raw[self.length..end.min(raw.len())]);
            match raw.get(end..end.saturating_add(2)) {
                Some(b"\r\n") => self.length = end + 2,
                Some(_) => return End::Cut,
                None => return End::Open,
            }
        }
        match fields(&raw[self.length..]) {
            Ok(Some((length, trailers))) => {
                self.length += length;
                self.trailers = trailers;
                End::Whole
            }
            Ok(None) => End::Open,
            Err(_) => End::Cut,
        }
    }

    /// Returns the status of a response; 0 if the status line is malformed.
    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        let fields = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        fields.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).first().copied()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn has(&self, part: &str) -> bool {
        find(&self.body, part.as_bytes()).is_some()
    }

    pub(crate) fn ambiguity(&self) -> Option<String> {
        let (lengths, codings) = (self.headers("content-length"), self.headers("transfer-encoding"));
        let is_number = |value: &&str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(error) = self.error {
            return Some(error.to_string());
        }
        if lengths.len() + codings.len() > 1 || !lengths.iter().all(is_number) {
            return Some(format!("lengths {lengths:?} and transfer codings {codings:?}"));
        }
        let other = codings.iter().find(|coding| !coding.eq_ignore_ascii_case("chunked"));
        other.map(|coding| format!("transfer coding {coding}"))
    }
}

/// Returns the fields at the beginning of `raw` and their length with the empty line after them, or `None` if that is missing.
fn fields(raw: &[u8]) -> Result<Option<(usize, Fields)>, Error> {
    let mut found = [EMPTY_HEADER; FIELDS];
    let Status::Complete((length, fields)) = httparse::parse_headers(raw, &mut found)? else {
        return Ok(None);
    };
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    Ok(Some((length, fields.iter().map(|field| (field.name.to_owned(), text(field.value))).collect())))
}

pub(crate) fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_according_to_their_framing() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let long = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcd";
        for (raw, is_closed, body, end) in [
            ("GET / HTTP/1.1\r\n\r\nGET", false, "", End::Whole),
            ("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcd", false, "abc", End::Whole),
            (long, false, "abcd", End::Open),
            (long, true, "abcd", End::Cut),
            ("HTTP/1.1 204 No Content\r\n\r\nabc", false, "", End::Whole),
            ("HTTP/1.0 200 OK\r\n\r\nabc", true, "abc", End::Whole),
            (&format!("{chunked}3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX: 1\r\n\r\n"), false, "abcde", End::Whole),
            (&format!("{chunked}3\r\nabc\r\n2\r\nd"), true, "abcd", End::Cut),
            (&format!("{chunked}3\r\nabcde"), false, "abc", End::Cut),
        ] {
            let message = Message::read(raw.as_bytes(), is_closed).unwrap();
            assert_eq!((message.text().as_str(), message.end), (body, end), "{raw:?}");
        }
        for lines in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Content-Length: +5",
            "A: b\r\n C: 5",
            "A: b\0",
        ] {
            let raw = format!("POST / HTTP/1.1\r\n{lines}\r\n\r\n");
            assert!(Message::read(raw.as_bytes(), false).unwrap().ambiguity().is_some(), "{lines:?}");
        }
    }
}
