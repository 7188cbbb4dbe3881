//! Whether somebody may break the glass, by the cluster's authorisation.

use std::fmt;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use lucid_policy::Permission;
use lucid_webhook::UserInfo;
use tokio::time::{Instant, timeout_at};

/// The verb, the resource and its API group. There is no such resource to be read or written: the right to break the glass
/// is its only use, so that nobody has it by a role for pods.
const VERB: &str = "breakglass";
const RESOURCE: &str = "pods";
const GROUP: &str = "lucid.computing";

/// Asks the API server, by a SubjectAccessReview for each pod with a ticket. Nothing is cached: a right that is taken back is
/// gone at once, and tickets are few.
#[derive(Clone)]
pub struct BreakGlassReview(Api<SubjectAccessReview>);

impl fmt::Debug for BreakGlassReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BreakGlassReview").finish_non_exhaustive()
    }
}

impl BreakGlassReview {
    /// Reviews that are asked for with `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(Api::all(client))
    }

    /// Whether `user` may break the glass in `namespace`. Who cannot be asked until `deadline` has not said yes.
    pub(crate) async fn permission(&self, user: &UserInfo, namespace: &str, deadline: Instant) -> Permission {
        let question = question(user, namespace);
        let answer = timeout_at(deadline, self.0.create(&PostParams::default(), &question)).await;
        let name = user.username.escape_debug();
        let reason = match answer {
            Ok(Ok(review)) if review.status.as_ref().is_some_and(|status| status.allowed) => {
                return Permission::Granted;
            }
            Ok(Ok(_)) => format!("user {name} may not {VERB} {RESOURCE}.{GROUP} in namespace {namespace}"),
            Ok(Err(error)) => {
                tracing::warn!(
                    error = lucid_process::with_causes(&error),
                    "failed to ask who may break the glass"
                );
                format!("it cannot be told whether user {name} may: the SubjectAccessReview failed")
            }
            Err(_) => {
                format!("it cannot be told whether user {name} may: the SubjectAccessReview took too long")
            }
        };
        Permission::Denied { reason }
    }
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
