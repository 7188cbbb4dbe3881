//! `lucid review`.

use std::convert::Infallible;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use lucid_admission::{InjectError, MUTATE_NAME, MUTATE_PATH, pod_of, respond};
use lucid_chain::PodView;
use lucid_webhook::{AdmissionRequest, AdmissionResponse, Operation, Router, Webhook};
use serde_json::Value;
use tower::ServiceExt as _;

use super::planning::{Planner, PlanningArgs};
use crate::documents;
use crate::error::{Result, ResultExt};

/// Options of `lucid review`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReviewArgs {
    /// AdmissionReview (admission.k8s.io/v1) in JSON, as sent by the API server; `-` is standard input.
    #[arg(long = "file", short = 'f', value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    planning: PlanningArgs,
}

/// Writes the webhook's response to `output`, byte for byte, followed by a line break. Returns `true` if the pod is
/// allowed.
pub(crate) async fn review(args: &ReviewArgs, output: &mut impl Write) -> Result<bool> {
    let body = documents::read(&args.file)?;
    let planner = Arc::new(Planner::new(&args.planning, [])?);
    let handler = move |request: AdmissionRequest| {
        let planner = Arc::clone(&planner);
        async move { handle(&planner, &request) }
    };
    let router = Router::new().webhook(MUTATE_PATH, Webhook::mutating(MUTATE_NAME, handler));
    let request = Request::post(MUTATE_PATH)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let response = router.oneshot(request).await.unwrap_or_else(|never: Infallible| match never {});
    let status = response.status();
    let body =
        response.into_body().collect().await.unwrap_or_else(|never: Infallible| match never {}).to_bytes();
    if status != StatusCode::OK {
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        let said = said["message"].as_str().unwrap_or("it is rejected");
        return Err(said).failed_to(format_args!("review {}", args.file.display())).usage();
    }
    output
        .write_all(&body)
        .and_then(|()| output.write_all(b"\n"))
        .and_then(|()| output.flush())
        .failed_to_print()?;
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    Ok(review["response"]["allowed"] == true)
}

/// Responds as `/mutate` does, without recording the decision.
fn handle(planner: &Planner, request: &AdmissionRequest) -> Result<AdmissionResponse, InjectError> {
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let mut context = planner.namespace(namespace);
    let concerned = request.operation == Operation::Create && context.skip_reason.is_none();
    let Some(object) = request.object.as_ref().filter(|_| concerned) else {
        return Ok(AdmissionResponse::allow());
    };
    let pod: PodView<'_> = pod_of(request, object)?;
    // The API server has mounted the token before it calls webhooks.
    if pod.lacks_token() {
        context.automounts_token.insert(pod.service_account().to_owned(), false);
    }
    let outcome = planner.plan(&pod, namespace, &context);
    Ok(respond(&pod, outcome, &context.problems))
}
