//! Authorization of break-glass by the cluster's RBAC.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use lucid_policy::Permission;
use lucid_text::with_causes;
use lucid_webhook::UserInfo;
use tokio::sync::Mutex;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout_at};

/// Verb, resource and API group of the permission. The resource is virtual: it only serves this permission, so that no
/// role for pods grants it by accident.
const VERB: &str = "breakglass";
const RESOURCE: &str = "pods";
const GROUP: &str = "lucid.computing";

/// Minimum interval between two reviews for callers without a verified client certificate, since these choose the user
/// themselves.
const PACE: Duration = Duration::from_millis(100);
/// Limits for the name, uid, groups and extras of a user together, far above the output of any authenticator of an API
/// server.
const MOST_BYTES: usize = 64 * 1024;
const MOST_TEXTS: usize = 1024;

/// Authorizes break-glass by a SubjectAccessReview for each pod with a ticket. Results are not cached: revoked
/// permissions take effect at once, and tickets are rare. Callers without a verified client certificate share 10
/// reviews a second.
#[derive(Clone)]
pub struct BreakGlassReview {
    reviews: Api<SubjectAccessReview>,
    pace: Arc<Mutex<Option<Interval>>>,
}

impl fmt::Debug for BreakGlassReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakGlassReview").finish_non_exhaustive()
    }
}

impl BreakGlassReview {
    /// Creates a reviewer that sends its requests with `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { reviews: Api::all(client), pace: Arc::default() }
    }

    /// Denies the permission if there is no response by `deadline`.
    pub(crate) async fn permission(
        &self,
        user: &UserInfo,
        is_authenticated: bool,
        namespace: &str,
        deadline: Instant,
    ) -> Permission {
        if !is_plausible(user) {
            let reason = "userInfo exceeds 64 KiB or 1024 values".to_owned();
            return Permission::Denied { reason };
        }
        let question = question(user, namespace);
        let review = timeout_at(deadline, async {
            if !is_authenticated {
                self.wait_for_turn().await;
            }
            self.reviews.create(&PostParams::default(), &question).await
        })
        .await;
        let name = user.username.escape_debug();
        let reason = match review {
            Ok(Ok(review)) if review.status.as_ref().is_some_and(|status| status.allowed) => {
                return Permission::Granted;
            }
            Ok(Ok(_)) => format!("user {name} may not {VERB} {RESOURCE}.{GROUP} in namespace {namespace}"),
            Ok(Err(error)) => {
                tracing::warn!(error = with_causes(&error), "failed to create a SubjectAccessReview");
                format!("cannot check user {name}: the SubjectAccessReview failed")
            }
            Err(_) => {
                format!("cannot check user {name}: the SubjectAccessReview timed out")
            }
        };
        Permission::Denied { reason }
    }

    async fn wait_for_turn(&self) {
        let mut pace = self.pace.lock().await;
        let pace = pace.get_or_insert_with(|| {
            let mut pace = interval(PACE);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            pace
        });
        pace.tick().await;
    }
}

fn is_plausible(user: &UserInfo) -> bool {
    let extras = user.extra.iter().flat_map(|(key, values)| values.iter().chain([key]));
    let texts = [&user.username, &user.uid].into_iter().chain(&user.groups).chain(extras);
    let (count, bytes) = texts.fold((0, 0), |(count, bytes), text| (count + 1, bytes + text.len()));
    count <= MOST_TEXTS && bytes <= MOST_BYTES
}

fn question(user: &UserInfo, namespace: &str) -> SubjectAccessReview {
    let some = |text: &str| Some(text.to_owned());
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: some(&user.username),
            uid: some(&user.uid),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            resource_attributes: Some(ResourceAttributes {
                verb: some(VERB),
                group: some(GROUP),
                resource: some(RESOURCE),
                namespace: some(namespace),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    fn reviews() -> (BreakGlassReview, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let service = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = r#"{"metadata": {}, "spec": {}, "status": {"allowed": true}}"#;
            std::future::ready(Ok::<_, Infallible>(Response::new(Body::from(answer.as_bytes().to_vec()))))
        });
        (BreakGlassReview::new(Client::new(service, "default")), count)
    }

    fn user(name: &str, groups: usize) -> UserInfo {
        let mut user = UserInfo::default();
        name.clone_into(&mut user.username);
        user.groups = vec!["group".to_owned(); groups];
        user
    }

    #[tokio::test]
    async fn unauthenticated_callers_share_ten_reviews_a_second() {
        for (is_authenticated, expected) in [(true, 100..=100), (false, 1..=5)] {
            let (reviews, count) = reviews();
            let deadline = Instant::now() + Duration::from_millis(450);
            let jane = user("jane", 3);
            let ask = || reviews.permission(&jane, is_authenticated, "shop", deadline);
            let answers = join_all((0..100).map(|_| ask())).await;
            let granted = answers.iter().filter(|it| matches!(it, Permission::Granted)).count();
            assert_eq!(granted, count.load(Ordering::Relaxed));
            assert!(expected.contains(&granted), "{granted} of {expected:?}");
        }
    }

    #[tokio::test]
    async fn a_user_that_no_api_server_sends_is_denied_without_a_review() {
        let (reviews, count) = reviews();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut extras = user("jane", 0);
        extras.extra.insert("key".to_owned(), vec!["x".repeat(1 << 16)]);
        for (user, is_permitted) in [
            (user("jane", 1000), true),
            (user("jane", 2000), false),
            (user(&"x".repeat(1 << 17), 0), false),
            (extras, false),
        ] {
            let permission = reviews.permission(&user, true, "shop", deadline).await;
            assert_eq!(matches!(permission, Permission::Granted), is_permitted, "{permission:?}");
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
