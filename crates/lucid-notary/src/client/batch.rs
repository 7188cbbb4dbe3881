use std::collections::BTreeMap;
use std::time::Instant;

use futures::{StreamExt, stream};
use tokio::time::timeout_at;
use tower::{BoxError, Service, ServiceExt};

use super::failure;
use crate::checked::{Checked, Provenance};
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
    S: Service<Digest, Response: Into<Checked>, Error: Into<BoxError>> + Clone,
{
    let checked = checked_all(service, digests, deadline).await;
    checked.into_iter().map(|(digest, checked)| (digest, checked.verdict)).collect()
}

/// The same with the provenance of each verdict.
pub(super) async fn checked_all<S>(
    service: S,
    digests: impl IntoIterator<Item = Digest>,
    deadline: Instant,
) -> BTreeMap<Digest, Checked>
where
    S: Service<Digest, Response: Into<Checked>, Error: Into<BoxError>> + Clone,
{
    let late = Verdict::Unknown { reason: "the Verifier did not answer before the deadline".to_owned() };
    let late = Checked::new(late, Provenance::Asked);
    let mut all: BTreeMap<_, _> = digests.into_iter().map(|digest| (digest, late.clone())).collect();
    let distinct: Vec<Digest> = all.keys().cloned().collect();
    let mut answers = stream::iter(distinct)
        .map(|digest| {
            let ask = service.clone().oneshot(digest.clone());
            async move { (digest, ask.await) }
        })
        .buffer_unordered(MAX_IN_FLIGHT);
    // One limit for all: at the deadline nothing is begun any more.
    while let Ok(Some((digest, answer))) = timeout_at(deadline.into(), answers.next()).await {
        let checked = match answer {
            Ok(answer) => answer.into(),
            Err(error) => failure::unknown(&*error.into()),
        };
        all.insert(digest, checked);
    }
    all
}
