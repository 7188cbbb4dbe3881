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
