//! Checks the RBAC permissions that Lucid's settings need.

use kube::Client;
use lucid_shared::serving::rbac::{Needs, Subject, missing};

use super::report::{Check, Status, Unread};

const CHECK: &str = "permissions";

/// Reviews the permissions of the ServiceAccount `account`, which a program with these needs runs as.
pub(super) async fn check(client: &Client, account: &str, needs: Needs<'_>) -> Vec<Check> {
    let namespace = &needs.serving.namespace;
    let object = format!("ServiceAccount {namespace}/{account}");
    let subject = Subject::ServiceAccount { namespace: namespace.clone(), name: account.to_owned() };
    let needs = needs.permissions();
    let missing = match missing(client, needs.iter().map(|need| need.permission.clone()), &subject).await {
        Ok(missing) => missing,
        Err(error) => {
            let unread = Unread::of(&error, "create subjectaccessreviews");
            return vec![Check::unread(CHECK, &unread).of(object)];
        }
    };
    if missing.is_empty() {
        return vec![Check::ok(CHECK, "all permissions that its settings need are granted").of(object)];
    }
    let checks = missing.into_iter().map(|permission| {
        let need = needs.iter().find(|need| need.permission.contains(&permission));
        let status = if need.is_some_and(|need| need.is_vital) { Status::Failed } else { Status::Warning };
        let found = format!("missing permission to {permission}: {}", need.map_or("", |need| need.loss));
        Check::new(CHECK, status, found).of(&object).missing_permission(permission.to_string())
    });
    checks.collect()
}
