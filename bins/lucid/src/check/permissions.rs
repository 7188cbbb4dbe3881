//! Checks the RBAC permissions that Lucid's settings need.

use kube::Client;
use lucid_shared::serving::rbac::{Needs, Subject, missing};

use super::report::{Check, Status, Unread};

const CHECK: &str = "permissions";

pub(super) async fn check(client: &Client, account: &str, needs: Needs<'_>) -> Vec<Check> {
    let namespace = &needs.serving.namespace;
    let object = format!("ServiceAccount {namespace}/{account}");
    let subject = Subject::ServiceAccount { namespace: namespace.clone(), name: account.to_owned() };
    let missing = match missing(client, needs.permissions(), &subject).await {
        Ok(missing) => missing,
        Err(error) => {
            let unread = Unread::of(&error, "create subjectaccessreviews");
            return vec![Check::unread(CHECK, &unread).of(object)];
        }
    };
    if missing.is_empty() {
        return vec![Check::ok(CHECK, "all permissions that its settings need are granted").of(object)];
    }
    let checks = missing.into_iter().map(|need| {
        let status = if need.is_vital { Status::Failed } else { Status::Warning };
        let found = format!("missing permission to {}: {}", need.permission, need.loss);
        Check::new(CHECK, status, found).of(&object).missing_permission(need.permission.to_string())
    });
    checks.collect()
}
