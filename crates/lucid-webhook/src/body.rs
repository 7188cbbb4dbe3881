//! Reading a request's body within a size and a time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::BodyExt;
use hyper::body::Body;

use crate::router::BoxError;

/// Requests with bodies of 3 MiB are what the API server takes; two such objects and the rest of a review stay below.
pub(crate) const DEFAULT_LIMIT: usize = 7 * 1024 * 1024;

/// How much of a body beyond the limit is read and thrown away, so that its sender gets to read the answer instead
/// of a reset connection.
const DISCARDED: usize = 64 * 1024 * 1024;

/// How long a body may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Why there is no body.
#[derive(Debug)]
pub(crate) enum BodyError {
    TooLarge,
    TooSlow,
    Broken(BoxError),
}

/// Reads the whole body, which may have `limit` bytes.
pub(crate) async fn read<B>(headers: &HeaderMap, body: B, limit: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    // A client that waits for "100 Continue" has sent nothing yet and need not begin.
    if body.size_hint().lower() > limit as u64 && headers.contains_key(EXPECT) {
        return Err(BodyError::TooLarge);
    }
    tokio::time::timeout(TIMEOUT, collect(body, limit)).await.unwrap_or(Err(BodyError::TooSlow))
}

async fn collect<B>(body: B, limit: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = std::pin::pin!(body);
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| BodyError::Broken(error.into()))?.into_data() else { continue };
        received += data.len();
        if received > limit + DISCARDED {
            return Err(BodyError::TooLarge);
        } else if received > limit {
            // What was kept is of no use any more.
            (first, rest) = (Bytes::new(), BytesMut::new());
        } else if first.is_empty() && rest.is_empty() {
            // Most bodies arrive in one piece: no copy.
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
    }
    match received {
        _ if received > limit => Err(BodyError::TooLarge),
        _ if rest.is_empty() => Ok(first),
        _ => Ok(rest.freeze()),
    }
}
