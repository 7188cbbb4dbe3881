use std::collections::BTreeMap;
use std::time::Instant;

use futures::{StreamExt, stream};
use tokio::time::timeout_at;
use tower::{BoxError, Service, ServiceExt};

use super::failure;
use crate::checked::{Checked, Provenance};
use crate::digest::Digest;
use crate::verdict::Verdict;

/// Maximum number of concurrent requests of [`check_all`]. The author of a pod controls the number of digests, and
/// each request may hold a connection.
pub const MAX_IN_FLIGHT: usize = 8;

/// Looks up each distinct digest once, with at most [`MAX_IN_FLIGHT`] concurrent requests, until `deadline`.
///
/// Returns a verdict for every digest. An error of the service becomes [`Verdict::Unknown`] for that digest, with the
/// error's message as the reason. Digests without an answer at the deadline are unknown as well, even if their
/// request had not started.
///
/// # Panics
///
/// Panics outside a tokio runtime with time enabled.
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

/// Like [`check_all`], with the provenance of each verdict.
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
    // The deadline is shared: no request starts after it.
    while let Ok(Some((digest, answer))) = timeout_at(deadline.into(), answers.next()).await {
        let checked = match answer {
            Ok(answer) => answer.into(),
            Err(error) => failure::unknown(&*error.into()),
        };
        all.insert(digest, checked);
    }
    all
}
