use std::collections::BTreeMap;
use std::time::Instant;

use futures::{StreamExt, stream};
use tokio::time::timeout_at;
use tower::{BoxError, Service, ServiceExt};

use super::answer::Answer;
use crate::digest::Digest;
use crate::verdict::Verdict;

/// How many digests [`check_all`] asks about at the same time. A pod's author chooses how many digests it has, and
/// each that is in flight may hold a connection.
pub const MAX_IN_FLIGHT: usize = 8;

/// Asks `service` about each distinct digest once, [`MAX_IN_FLIGHT`] at a time, until `deadline`.
///
/// There is always a verdict for each digest: an error of the service becomes [`Verdict::Unknown`] for that digest
/// alone, with the error's own text as the reason; what is not answered at the deadline is unknown as well, whether
/// its turn to be asked came or not. Must be called within a tokio runtime with its timer enabled.
pub async fn check_all<S>(
    service: S,
    digests: impl IntoIterator<Item = Digest>,
    deadline: Instant,
) -> BTreeMap<Digest, Verdict>
where
    S: Service<Digest, Response = Answer> + Clone,
    S::Error: Into<BoxError>,
{
    let late = Verdict::Unknown { reason: "the Verifier did not answer before the deadline".to_owned() };
    let mut verdicts: BTreeMap<_, _> = digests.into_iter().map(|digest| (digest, late.clone())).collect();
    let distinct: Vec<Digest> = verdicts.keys().cloned().collect();
    let mut answers = stream::iter(distinct)
        .map(|digest| {
            let ask = service.clone().oneshot(digest.clone());
            async move { (digest, ask.await) }
        })
        .buffer_unordered(MAX_IN_FLIGHT);
    // One limit for all: at the deadline nothing is begun any more.
    while let Ok(Some((digest, answer))) = timeout_at(deadline.into(), answers.next()).await {
        let verdict = match answer {
            Ok(answer) => answer.into(),
            Err(error) => Verdict::Unknown { reason: error.into().to_string() },
        };
        verdicts.insert(digest, verdict);
    }
    verdicts
}
