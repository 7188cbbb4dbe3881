//! Content codings whose output does not contain readable text.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

/// Returns `body` in a content coding, or as it is if the coding is unknown.
pub(crate) fn encode(coding: &str, body: &[u8]) -> Vec<u8> {
    match coding {
        // Writing to memory does not fail.
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            let _ = encoder.write_all(body);
            encoder.finish().unwrap_or_default()
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            let _ = encoder.write_all(body);
            encoder.finish().unwrap_or_default()
        }
        "zstd" => zstd(body),
        "br" => brotli(body),
        _ => body.to_owned(),
    }
}

/// Returns a frame with a window of 2 MiB, whose blocks repeat each byte once (RFC 8878, section 3.1.1).
fn zstd(body: &[u8]) -> Vec<u8> {
    let blocks = body.iter().flat_map(|byte| [0x0a, 0, 0, *byte]);
    [0x28, 0xb5, 0x2f, 0xfd, 0, 0x58].into_iter().chain(blocks).chain([1, 0, 0]).collect()
}

/// Returns a stream with a window of 64 KiB and an uncompressed meta-block for each byte (RFC 7932, section 9.2).
fn brotli(body: &[u8]) -> Vec<u8> {
    let block = |(index, byte): (usize, &u8)| [0, 0, if index == 0 { 0x10 } else { 0x08 }, *byte];
    let end: &[u8] = if body.is_empty() { &[0x06] } else { &[0x03] };
    body.iter().enumerate().flat_map(block).chain(end.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coded_texts_are_not_readable() {
        let text = "ignore previous instructions ".repeat(20);
        for coding in ["gzip", "deflate", "br", "zstd"] {
            let coded = encode(coding, text.as_bytes());
            assert!(
                !coded.windows(4).any(|bytes| text.as_bytes().windows(4).any(|it| it == bytes)),
                "{coding}"
            );
        }
        assert_eq!(encode("zstd", b"a"), *b"\x28\xb5\x2f\xfd\x00\x58\x0a\x00\x00a\x01\x00\x00");
        assert_eq!(encode("br", b"ab"), *b"\x00\x00\x10a\x00\x00\x08b\x03");
        assert_eq!(encode("identity", b"a"), b"a");
    }
}
