//! Content codings (RFC 9110, section 8.4): compressed bodies.

use std::{io, pin::Pin};

use async_compression::{
    tokio::bufread::{BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder},
    zstd::DParameter,
};
use bytes::Bytes;
use futures::{StreamExt as _, TryFutureExt as _, TryStreamExt as _, stream::BoxStream};
use http_body_util::{BodyDataStream, BodyExt as _, StreamBody};
use hyper::{
    body::Frame,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap},
};
use snafu::Snafu;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio_util::io::{ReaderStream, StreamReader};
use tower::BoxError;

use crate::body::Body;

pub(crate) const SUPPORTED: &str = "gzip, deflate, br, zstd";

pub(crate) const MAX_CODINGS: usize = 3;

/// Maximum size of a decoded piece.
const PIECE: usize = 16 << 10;

/// Binary logarithm of the maximum window of zstd, 8 MB (RFC 9659). Those of the other codings have at most 16 MB.
const ZSTD_WINDOW: u32 = 23;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

#[derive(Debug, Snafu)]
#[snafu(display("failed to decode the body: {cause}"))]
pub(crate) struct DecodeError {
    cause: io::Error,
}

/// An error of the encoded body, such as a broken connection.
#[derive(Debug, Snafu)]
#[snafu(display("{cause}"))]
struct Transfer {
    cause: BoxError,
}

/// Returns the codings of a body, in the order in which they were applied, or the reason why it cannot be decoded.
pub(crate) fn codings(headers: &HeaderMap) -> Result<Vec<Coding>, String> {
    let values = headers.get_all(CONTENT_ENCODING).into_iter();
    let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let names = values.iter().flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase());
    let codings = names.filter(|name| !matches!(&**name, "" | "identity")).map(|name| match &*name {
        "gzip" | "x-gzip" => Ok(Coding::Gzip),
        "deflate" => Ok(Coding::Deflate),
        "br" => Ok(Coding::Brotli),
        "zstd" => Ok(Coding::Zstd),
        _ => Err(format!("encoded as {name}")),
    });
    let codings: Vec<_> = codings.collect::<Result<_, _>>()?;
    match codings.len() {
        ..=MAX_CODINGS => Ok(codings),
        count => Err(format!("encoded {count} times")),
    }
}

pub(crate) fn remove_headers(headers: &mut HeaderMap) {
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
}

type Reader<'a> = Pin<Box<dyn AsyncBufRead + Send + 'a>>;
type Decoded<'a> = StreamBody<BoxStream<'a, Result<Frame<Bytes>, BoxError>>>;

/// Returns a body without its codings.
pub(crate) fn decoded(body: Body, codings: Vec<Coding>) -> Body {
    if codings.is_empty() { body } else { decode(body, codings).boxed_unsync() }
}

/// Decodes a body piece by piece, as far as the received part allows. Pieces have a limited size, and there are no trailers.
pub(crate) fn decode<'a>(
    body: impl hyper::body::Body<Data = Bytes, Error = BoxError> + Send + 'a,
    codings: Vec<Coding>,
) -> Decoded<'a> {
    let data = BodyDataStream::new(body).map_err(|cause| io::Error::other(Transfer { cause }));
    let mut reader: Reader<'a> = Box::pin(StreamReader::new(data));
    let pieces = async move {
        for coding in codings.into_iter().rev() {
            reader = Box::pin(BufReader::with_capacity(PIECE, coding.decoder(reader).await?));
        }
        Ok(ReaderStream::with_capacity(reader, PIECE))
    };
    let frames = pieces.try_flatten_stream().map_ok(Frame::data);
    let frames = frames.map_err(|error: io::Error| match error.downcast::<Transfer>() {
        Ok(transfer) => transfer.cause,
        Err(cause) => DecodeError { cause }.into(),
    });
    StreamBody::new(frames.boxed())
}

impl Coding {
    async fn decoder(self, mut reader: Reader<'_>) -> io::Result<Pin<Box<dyn AsyncRead + Send + '_>>> {
        // A decoder of several members reads to the end of the body: whatever follows the first one is decoded, or an error.
        macro_rules! read_to_end {
            ($decoder:expr) => {{
                let mut decoder = $decoder;
                decoder.multiple_members(true);
                Box::pin(decoder)
            }};
        }
        let first = reader.fill_buf().await?.first().copied().unwrap_or_default();
        Ok(match self {
            Self::Gzip => read_to_end!(GzipDecoder::new(reader)),
            // Some senders omit the frame of zlib, whose first byte cannot begin a sensible block of deflate.
            Self::Deflate if first & 0x8f == 0x08 => read_to_end!(ZlibDecoder::new(reader)),
            Self::Deflate => read_to_end!(DeflateDecoder::new(reader)),
            // An extension of brotli, with windows of up to 1 GB.
            Self::Brotli if first & 0x7f == 0x11 => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the window is too large"));
            }
            Self::Brotli => read_to_end!(BrotliDecoder::new(reader)),
            Self::Zstd => {
                let limit = DParameter::window_log_max(ZSTD_WINDOW);
                read_to_end!(ZstdDecoder::with_params(reader, &[limit]))
            }
        })
    }
}
