//! Responses to reviews.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::common::*;

fn request(pod: &str) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "web", "namespace": "shop", "operation": "CREATE", "dryRun": false,
        "userInfo": {"username": "jane"},
        "object": values(pod)[0], "oldObject": null,
    }})
}

#[test]
fn responses_carry_the_patch_that_inject_makes() {
    let ran = run(&["review", "-f", "-"], &request(POD).to_string());
    assert_eq!(ran.code, 0, "{}", ran.messages);
    let answer: Value = serde_json::from_str(&ran.output).unwrap();
    let response = &answer["response"];
    assert_eq!((&answer["kind"], &response["allowed"]), (&json!("AdmissionReview"), &json!(true)));
    assert_eq!(response["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
    let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let expected = piped(&["inject", "-o", "patch"], POD);
    let (patch, expected): (Value, Value) =
        (serde_json::from_slice(&patch).unwrap(), serde_json::from_str(&expected).unwrap());
    assert_eq!(patch, expected);
}

#[test]
fn pods_without_room_for_a_chain_are_admitted_with_the_reason() {
    let ran = run(
        &["review", "-f", "-"],
        &request(&POD.replace("spec:", "spec:\n  hostNetwork: true")).to_string(),
    );
    assert_eq!(ran.code, 0, "{}", ran.messages);
    let answer: Value = serde_json::from_str(&ran.output).unwrap();
    assert_eq!((&answer["response"]["allowed"], &answer["response"]["patch"]), (&json!(true), &Value::Null));
    assert!(answer["response"]["warnings"][0].as_str().unwrap().contains("hostNetwork"), "{answer}");
}

#[test]
fn warnings_are_in_the_response() {
    let labels = "pod-security.kubernetes.io/enforce=restricted";
    let ran = run(&["review", "-f", "-", "--namespace-labels", labels], &request(POD).to_string());
    let answer: Value = serde_json::from_str(&ran.output).unwrap();
    assert!(answer["response"]["warnings"][0].as_str().unwrap().contains("restricted"), "{answer}");
}

#[test]
fn input_other_than_a_review_is_a_usage_error() {
    for text in ["", "{", "{}", POD, r#"{"apiVersion": "v1", "kind": "Pod"}"#] {
        let ran = run(&["review", "-f", "-"], text);
        assert_eq!((ran.code, ran.output.as_str()), (2, ""), "{text}");
        assert!(ran.messages.contains("error: failed to review -: "), "{}", ran.messages);
    }
}
