//! APIServices with a service backend.

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{Client, api::ApiResource};
use serde_json::Value;

use crate::target::{
    field_path::FieldPath,
    object::{Carrier, ObjectTarget},
};

#[derive(Debug)]
struct Aggregation;

impl Carrier for Aggregation {
    fn slots(&self, object: &Value) -> Result<Vec<String>, String> {
        let spec = &object["spec"];
        if !spec["service"].is_object() {
            return Ok(Vec::new());
        }
        if spec["insecureSkipTLSVerify"] == true {
            return Err(
                "spec.insecureSkipTLSVerify is true, with which the API server accepts no spec.caBundle and \
                        verifies nothing: remove it"
                    .to_owned(),
            );
        }
        Ok(vec!["spec".to_owned()])
    }

    fn path(&self, _slot: &str) -> FieldPath {
        FieldPath::of(["spec", "caBundle"])
    }
}

impl ObjectTarget {
    /// Creates a target for the `spec.caBundle` of an APIService, such as `v1.widgets.example.com`. An
    /// APIService without `spec.service` is served by the API server itself and reads as absent. One with
    /// `spec.insecureSkipTLSVerify` is rejected as [`TargetError::Unfit`](crate::target::TargetError::Unfit).
    #[must_use]
    pub fn api_service(client: Client, field_manager: &str, name: &str) -> Self {
        let resource = ApiResource::erase::<APIService>(&());
        Self::new(client, resource, None, name, field_manager, Aggregation)
    }
}
