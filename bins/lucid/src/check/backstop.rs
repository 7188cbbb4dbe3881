//! Checks that the API server itself denies pods without their chain where webhook failures are ignored.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::api::ListParams;
use kube::{Api, Client};
use lucid_admission::{ClusterConfiguration, Scope};
use lucid_shared::options::{OperatorArgs, ValidationArgs};

use super::report::{Check, Unread};
use crate::manifests::backstop::{Backstop, NAME};

const CHECK: &str = "backstop";
const PRINT: &str =
    "lucid manifests --backstop, with the options of lucid-operator run, --catalogue and --namespace-config";

/// Returns the expected policy; `validation` are the options of the program that validates.
pub(super) async fn expected(
    args: &OperatorArgs,
    validation: &ValidationArgs,
    cluster: &ClusterConfiguration,
    namespace: &str,
) -> Option<Backstop> {
    Some(Backstop {
        scope: Scope::new(namespace),
        selectors: args.common.selectors.clone(),
        settings: args.common.injection.settings(),
        catalogue: cluster.namespace(namespace).await.ok()?.configuration.catalogue().clone(),
        namespaces: Default::default(),
        strict: validation.strict_notarization,
        exact: true,
        break_glass: Some(validation.policy.break_glass.clone()),
    })
}

/// Compares the installed policy with the expected one, if that is known. Returns `None` if no policy is installed and none
/// is needed.
pub(super) async fn check(
    client: &Client,
    expected: Option<Backstop>,
    ignores_failures: bool,
) -> Option<Check> {
    let installed = match read(client).await {
        Ok(installed) => installed,
        // API servers before 1.30 have no policies. Without a need for the policy, no permission is needed either.
        Err(_) if !ignores_failures => return None,
        Err(unread) => return Some(Check::unread(CHECK, &unread)),
    };
    let Some(policy) = installed else {
        let found = format!(
            "failurePolicy of a webhook is Ignore, and there is no ValidatingAdmissionPolicy {NAME} bound with Deny: \
             pods run without audit while the webhook is unavailable"
        );
        return ignores_failures.then(|| Check::warning(CHECK, found).action(PRINT));
    };
    let differences = expected.and_then(|it| it.differences(&policy).ok()).unwrap_or_default();
    Some(if differences.is_empty() {
        // The API does not tell which admission plugins run.
        let found = format!(
            "{NAME} denies pods without their chain while webhooks are unavailable, if the API server runs the admission \
             plugin ValidatingAdmissionPolicy (the default)"
        );
        Check::ok(CHECK, found)
    } else {
        let found = format!(
            "{NAME} was generated for another configuration: {}; it may deny injected pods",
            differences.join(", ")
        );
        Check::warning(CHECK, found).action(PRINT)
    })
}

/// Returns the policy if a binding enforces it with `Deny`.
async fn read(client: &Client) -> Result<Option<ValidatingAdmissionPolicy>, Unread> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let policy = policies.get_opt(NAME).await;
    let Some(policy) = policy.map_err(|error| Unread::of(&error, "get validatingadmissionpolicies"))? else {
        return Ok(None);
    };
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let bindings = bindings.list(&ListParams::default()).await;
    let bindings = bindings.map_err(|error| Unread::of(&error, "list validatingadmissionpolicybindings"))?;
    let denies = bindings.into_iter().map(|binding| binding.spec).any(|spec| {
        spec.policy_name == NAME
            && spec.validation_actions.iter().any(|action| action == "Deny")
            && spec.match_resources.is_none()
    });
    Ok(denies.then_some(policy))
}
