//! Test kit for admission and conversion webhooks: reviews as sent by kube-apiserver, and a client that behaves like
//! it.
//!
//! - [`Review`] builds an AdmissionReview. [`Review::into_request`] returns the argument of a handler, to test it
//!   without a server.
//! - [`ApiServer`] calls the webhooks of a router that match a request, in process or over TLS, and processes responses
//!   as kube-apiserver does. [`ReviewOutcome`] is the result for its user, with the webhooks that were not called.
//! - [`round_trip`] tests that a conversion is lossless, with objects that [`schema`] generates from the resource's
//!   definition.
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use lucid_webhook::{Changed, Object, Operation, Router, Webhook};
//! use lucid_webhook_test::ApiServer;
//!
//! async fn label(Object(mut pod): Object<Pod>) -> Changed<Pod> {
//!     pod.metadata.labels.get_or_insert_default().insert("seen".into(), "true".into());
//!     Changed::new(pod)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let router = Router::new().webhook("/label", Webhook::defaulting("label.example.com", [Operation::Create], label));
//! let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}});
//! let pod: Pod = ApiServer::registered(&router).create(&pod).await.expect_object();
//! assert_eq!(pod.metadata.labels.unwrap()["seen"], "true");
//! # }
//! ```
//!
//! # Fidelity to kube-apiserver
//!
//! Checks, their order, retries and messages follow the sources of kube-apiserver 1.37
//! (`apiserver/pkg/admission/plugin/webhook`, `client-go/rest`, `apiextensions-apiserver/pkg/apiserver/conversion`).
//! There are these differences:
//!
//! - Messages of Go's libraries, such as JSON and connection errors, are those of Rust.
//! - There are no schemas. Defaults are not set. A patched object has to be an object of the same `apiVersion` and
//!   `kind` with `metadata` that is an object, but is not decoded further; [`ReviewOutcome::expect_object`] decodes it
//!   into a type.
//! - CEL is not evaluated: matchConditions are assumed to be true, and [`Call::assumed_conditions`] lists them.
//! - Webhooks are those of one program. Webhooks of others, and other admission plugins, do not change objects in
//!   between.
//! - Objects are not converted for `matchPolicy: Equivalent`. A review of another version states it by
//!   [`Review::requested_as`].
//! - Reviews are of `admission.k8s.io/v1` and `apiextensions.k8s.io/v1`, not `v1beta1`.
//! - It does not request compression or offer HTTP/2, as for webhooks behind Services.
//! - Redirects fail the call. The API server's client follows those that keep the method and body (307, 308).
//! - Responses have to be JSON. The API server also reads YAML.
//!
//! # Failure
//!
//! The methods `expect_…` panic with the calls and their responses, as assertions do. The others return what the user of the API server would see.
//!
//! # Features
//!
//! None. The program enables a Kubernetes version of k8s-openapi, such as `v1_36`.
//!
//! # Stability
//!
//! Public items follow [Semantic Versioning](https://github.com/lucid/lucid/blob/main/docs/embedding.md#what-stays-and-what-may-change). All
//! crates of Lucid have one version.

mod api_server;
mod call;
mod checks;
mod conversion;
mod decode;
mod difference;
mod https;
mod matching;
mod outcome;
mod patch;
mod recorded;
mod resource;
mod review;
pub mod round_trip;
pub mod schema;
mod webhook;

use std::sync::atomic::{AtomicU64, Ordering};

pub use api_server::ApiServer;
pub use conversion::{ConversionFailed, ConversionWebhook};
pub use https::SetupError;
pub use outcome::{Call, Dropped, Mismatch, NotCalled, RejectedBy, ReviewOutcome, ReviewRejection};
pub use review::Review;

fn new_uid() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("00000000-0000-4000-8000-{:012x}", NEXT.fetch_add(1, Ordering::Relaxed))
}
