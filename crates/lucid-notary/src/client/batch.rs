use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use futures::future::join_all;
use tokio::time::timeout_at;
use tower::{BoxError, Service, ServiceExt};

use super::answer::Answer;
use crate::digest::Digest;
use crate::verdict::Verdict;

/// Asks `service` about each distinct digest once, all at the same time, until `deadline`.
///
/// There is always a verdict for each digest: an error of the service and an answer that is not there at the
/// deadline become [`Verdict::Unknown`] for that digest alone, with the error's own text as the reason.
/// Must be called within a tokio runtime with its timer enabled.
pub async fn check_all<S>(
    service: S,
    digests: impl IntoIterator<Item = Digest>,
    deadline: Instant,
) -> BTreeMap<Digest, Verdict>
where
    S: Service<Digest, Response = Answer> + Clone,
    S::Error: Into<BoxError>,
{
    let distinct: BTreeSet<Digest> = digests.into_iter().collect();
    let asks = distinct.into_iter().map(|digest| {
        let ask = timeout_at(deadline.into(), service.clone().oneshot(digest.clone()));
        async move {
            let verdict = match ask.await {
                Ok(Ok(answer)) => answer.into(),
                Ok(Err(error)) => Verdict::Unknown { reason: error.into().to_string() },
                Err(_) => {
                    Verdict::Unknown { reason: "the Verifier did not answer before the deadline".to_owned() }
                }
            };
            (digest, verdict)
        }
    });
    join_all(asks).await.into_iter().collect()
}
