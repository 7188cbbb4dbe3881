//! Any bytes as an AdmissionReview: read, or refused with an error that can be shown; never a panic.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use lucid_webhook::AdmissionRequest;
use tokio::time::Instant;

fuzz_target!(|data: &[u8]| {
    match AdmissionRequest::from_json(&Bytes::copy_from_slice(data), Instant::now()) {
        Ok(request) => {
            assert!(!request.uid.is_empty());
            for object in [&request.object, &request.old_object, &request.options].into_iter().flatten() {
                object.decode::<serde_json::Value>().ok();
            }
        }
        Err(error) => drop(error.to_string()),
    }
});
