//! Wire formats.

use lucid_auditor::{Direction, Judge as _, Passage, Span, Verdict};
use serde_json::{Value, json};

use super::{Remote, ask, error};

/// "é" has two bytes, "😀" four.
const TEXT: &str = "é 😀 John Smith, 4111";

async fn verdict(options: Value, answer: Value) -> Verdict {
    ask(&Remote::answering(answer).await.judge(options), TEXT).await.unwrap()
}

async fn fault(options: Value, answer: Value) -> String {
    error(&Remote::answering(answer).await.judge(options), TEXT).await
}

fn mask(part: &str, rule: &'static str, replacement: &'static str) -> Verdict {
    let start = TEXT.find(part).unwrap();
    Verdict::Mask(vec![Span::new(start..start + part.len(), rule, replacement)])
}

#[tokio::test]
async fn presidio_analyzes_and_spans_are_masked() {
    let remote = Remote::answering(json!([
        { "entity_type": "PERSON", "start": 4, "end": 14, "score": 0.85, "analysis_explanation": null },
        { "entity_type": "US_BANK_NUMBER", "start": 16, "end": 20, "score": 0.05 },
    ]))
    .await;
    let judge = remote.judge(json!({ "api": "presidio", "parameters": { "entities": ["PERSON"] } }));
    assert_eq!(ask(&judge, TEXT).await.unwrap(), mask("John Smith", "PERSON", "<PERSON>"));
    let [request] = &remote.requests()[..] else { panic!("one request") };
    assert_eq!(request.path, "/analyze");
    let body = json!({ "text": TEXT, "language": "en", "score_threshold": 0.5, "entities": ["PERSON"] });
    assert_eq!(request.body, body);
}

#[tokio::test]
async fn the_threshold_and_the_language_can_be_chosen() {
    let options = json!({ "api": "presidio", "threshold": 0.9, "parameters": { "language": "de" } });
    let remote =
        Remote::answering(json!([{ "entity_type": "PERSON", "start": 4, "end": 14, "score": 0.85 }])).await;
    assert_eq!(ask(&remote.judge(options), TEXT).await.unwrap(), Verdict::Allow);
    let body = &remote.requests()[0].body;
    assert_eq!((&body["language"], &body["score_threshold"]), (&json!("de"), &json!(0.9)));
}

#[tokio::test]
async fn overlapping_spans_become_one() {
    let answer = json!([
        { "entity_type": "URL", "start": 9, "end": 14, "score": 0.5 },
        { "entity_type": "PERSON", "start": 4, "end": 14, "score": 0.85 },
        { "entity_type": "LOCATION", "start": 12, "end": 15, "score": 0.6 },
    ]);
    assert_eq!(
        verdict(json!({ "api": "presidio" }), answer).await,
        mask("John Smith,", "PERSON", "<PERSON>")
    );
}

#[tokio::test]
async fn spans_deny_if_configured() {
    let answer = json!([{ "entity_type": "PERSON", "start": 4, "end": 14, "score": 0.85 }]);
    let denied = verdict(json!({ "api": "presidio", "action": "deny" }), answer).await;
    assert_eq!(denied, Verdict::deny("PERSON", "the text contains PERSON"));
}

#[tokio::test]
async fn fms_detectors_deny_by_default() {
    let detection = json!({
        "start": 0, "end": 20, "text": TEXT, "detection": "has_HAP", "detection_type": "hap", "score": 0.99, "evidence": [],
    });
    let remote = Remote::answering(json!([[detection]])).await;
    let judge = remote.judge(json!({
        "api": "fms",
        "headers": { "detector-id": "granite" },
        "parameters": { "detector_params": { "sensitivity": 2 } },
    }));
    assert_eq!(
        ask(&judge, TEXT).await.unwrap(),
        Verdict::deny("hap/has_HAP", "the text contains hap/has_HAP")
    );
    let [request] = &remote.requests()[..] else { panic!("one request") };
    assert_eq!(request.path, "/api/v1/text/contents");
    assert_eq!(request.headers["detector-id"], "granite");
    assert_eq!(request.body, json!({ "contents": [TEXT], "detector_params": { "sensitivity": 2 } }));
}

#[tokio::test]
async fn fms_detections_are_masked_if_configured() {
    let options = json!({ "api": "fms", "headers": { "Detector-Id": "pii" }, "action": "mask" });
    let detection = |score: f64| json!([[{ "start": 16, "end": 20, "detection": "Card", "detection_type": "pii", "score": score }]]);
    assert_eq!(verdict(options.clone(), detection(0.5)).await, mask("4111", "pii/Card", "<Card>"));
    assert_eq!(verdict(options.clone(), detection(0.49)).await, Verdict::Allow);
    assert_eq!(verdict(options, json!([[]])).await, Verdict::Allow);
}

#[tokio::test]
async fn nemo_checks_messages_by_direction() {
    let remote = Remote::answering(json!({ "status": "passed", "content": "" })).await;
    let judge = remote.judge(json!({
        "api": "nemo",
        "parameters": { "model": "m", "guardrails": { "config_ids": ["safety"] } },
    }));
    for (direction, role) in [
        (Direction::Prompt, "user"),
        (Direction::ToolResult, "user"),
        (Direction::Completion, "assistant"),
        (Direction::ToolCall, "assistant"),
    ] {
        assert_eq!(judge.judge(&Passage::new(direction, TEXT)).await.unwrap(), Verdict::Allow);
        let request = remote.requests().pop().unwrap();
        assert_eq!(request.path, "/v1/checks");
        let body = json!({
            "model": "m",
            "guardrails": { "config_ids": ["safety"] },
            "messages": [{ "role": role, "content": TEXT }],
        });
        assert_eq!(request.body, body);
    }
}

#[tokio::test]
async fn nemo_statuses_become_verdicts() {
    let options = || json!({ "api": "nemo", "parameters": { "model": "m" } });
    let blocked = json!({ "status": "blocked", "content": "I can't", "rail": "self check input" });
    assert_eq!(
        verdict(options(), blocked).await,
        Verdict::deny("self check input", "the text violates self check input")
    );
    let modified = json!({ "status": "modified", "content": "é 😀 <PERSON>, 4111" });
    assert_eq!(verdict(options(), modified).await, mask("John Smith", "modified", "<PERSON>"));
    // The NeMo microservice.
    let success =
        json!({ "status": "success", "rails_status": { "self check input": { "status": "success" } } });
    assert_eq!(verdict(options(), success).await, Verdict::Allow);
    let blocked = json!({
        "status": "blocked",
        "rails_status": { "a": { "status": "success" }, "jailbreak": { "status": "blocked" } },
        "guardrails_data": { "log": {} },
    });
    assert_eq!(verdict(options(), blocked).await, Verdict::deny("jailbreak", "the text violates jailbreak"));
    for answer in
        [json!({ "status": "error" }), json!({ "status": "modified" }), json!({}), json!(["passed"])]
    {
        assert!(fault(options(), answer.clone()).await.contains("malformed response"), "{answer}");
    }
}

#[tokio::test]
async fn litellm_gets_texts_and_the_input_type() {
    let remote = Remote::answering(json!({ "action": "NONE" })).await;
    let judge = remote.judge(json!({
        "api": "litellm",
        "parameters": { "additional_provider_specific_params": { "level": 3 } },
    }));
    assert_eq!(ask(&judge, TEXT).await.unwrap(), Verdict::Allow);
    assert_eq!(judge.judge(&Passage::new(Direction::Completion, TEXT)).await.unwrap(), Verdict::Allow);
    let [prompt, completion] = &remote.requests()[..] else { panic!("two requests") };
    assert_eq!(prompt.path, "/beta/litellm_basic_guardrail_api");
    assert_eq!(prompt.body["texts"], json!([TEXT]));
    assert_eq!(prompt.body["additional_provider_specific_params"], json!({ "level": 3 }));
    assert_eq!((&prompt.body["images"], &prompt.body["request_data"]), (&Value::Null, &json!({})));
    assert_eq!(prompt.body["input_type"], "request");
    assert_eq!(completion.body["input_type"], "response");
}

#[tokio::test]
async fn litellm_actions_become_verdicts() {
    let options = || json!({ "api": "litellm" });
    let blocked = json!({ "action": "BLOCKED", "blocked_reason": "not here" });
    assert_eq!(verdict(options(), blocked).await, Verdict::deny("blocked", "not here"));
    let intervened = json!({ "action": "GUARDRAIL_INTERVENED", "texts": ["é 😀 John Smith, ****"] });
    assert_eq!(verdict(options(), intervened).await, mask("4111", "modified", "****"));
    let unchanged = json!({ "action": "GUARDRAIL_INTERVENED", "texts": [TEXT] });
    assert_eq!(verdict(options(), unchanged).await, Verdict::Allow);
    for answer in [
        json!({ "action": "GUARDRAIL_INTERVENED" }),
        json!({ "action": "GUARDRAIL_INTERVENED", "texts": ["a", "b"] }),
        json!({ "action": "ALLOW" }),
        json!({ "texts": [TEXT] }),
    ] {
        assert!(fault(options(), answer.clone()).await.contains("malformed response"), "{answer}");
    }
}

#[tokio::test]
async fn plain_services_allow_deny_or_mask() {
    let remote = Remote::answering(json!({ "allowed": true })).await;
    assert_eq!(ask(&remote.judge(json!({})), TEXT).await.unwrap(), Verdict::Allow);
    let [request] = &remote.requests()[..] else { panic!("one request") };
    assert_eq!(
        (request.path.as_str(), &request.body),
        ("/", &json!({ "text": TEXT, "direction": "prompt" }))
    );

    let options = || json!({});
    let denied = verdict(options(), json!({ "allowed": false })).await;
    assert_eq!(denied, Verdict::deny("denied", "the text violates denied"));
    let denied = verdict(options(), json!({ "allowed": false, "rule": "tone", "message": "be kind" })).await;
    assert_eq!(denied, Verdict::deny("tone", "be kind"));
    let spans = json!({ "spans": [{ "start": 16, "end": 20, "rule": "card", "replacement": "****" }] });
    assert_eq!(verdict(options(), spans).await, mask("4111", "card", "****"));
    let spans = json!({ "spans": [{ "start": 16, "end": 20 }] });
    assert_eq!(verdict(options(), spans).await, mask("4111", "found", "<found>"));
    assert_eq!(verdict(options(), json!({ "spans": [] })).await, Verdict::Allow);
}

#[tokio::test]
async fn malformed_responses_are_errors_without_the_text() {
    for answer in [
        json!({}),
        json!([true]),
        json!("allowed"),
        json!(null),
        json!({ "allowed": "John Smith" }),
        json!({ "spans": "John Smith" }),
        json!({ "spans": [{ "start": -1, "end": 2 }] }),
        json!({ "spans": [{ "start": 0.5, "end": 2 }] }),
        json!({ "spans": [{ "start": 0 }] }),
    ] {
        let error = fault(json!({}), answer.clone()).await;
        assert!(error.contains("malformed response of http://127.0.0.1:"), "{answer}: {error}");
        assert!(error.ends_with(r#"expected {"allowed": …} or {"spans": […]}"#), "{answer}: {error}");
        assert!(!error.contains("John"), "{error}");
    }
    let fms = json!({ "api": "fms", "headers": { "detector-id": "d" } });
    for answer in [json!([]), json!([[], []]), json!({}), json!([[{ "score": 1 }]])] {
        assert!(fault(fms.clone(), answer.clone()).await.contains("malformed response"), "{answer}");
    }
}

#[tokio::test]
async fn spans_outside_of_the_text_are_errors() {
    for (start, end) in [(0, 21), (21, 22), (14, 4), (u64::MAX, u64::MAX)] {
        let error = fault(json!({}), json!({ "spans": [{ "start": start, "end": end }] })).await;
        let expected = format!("responded with a span of {start} to {end} in a text of 20 characters");
        assert!(error.ends_with(&expected), "{error}");
    }
    assert_eq!(verdict(json!({}), json!({ "spans": [{ "start": 20, "end": 20 }] })).await, Verdict::Allow);
}

#[tokio::test]
async fn names_of_rules_are_bounded() {
    let names = ["", "x\ny", "é", &"x".repeat(65)];
    for name in names {
        let denied = verdict(json!({}), json!({ "allowed": false, "rule": name, "message": "m" })).await;
        assert_eq!(denied, Verdict::deny("other", "m"), "{name:?}");
    }
    let spans: Vec<_> =
        (0..20).map(|at| json!({ "start": at, "end": at + 1, "rule": format!("r{at}") })).collect();
    let remote = Remote::start(move |index| {
        let mut spans = spans.clone();
        spans.iter_mut().for_each(|span| span["rule"] = json!(format!("{}-{index}", span["rule"])));
        axum::response::IntoResponse::into_response(axum::Json(json!({ "spans": spans })))
    })
    .await;
    let judge = remote.judge(json!({}));
    let mut rules = std::collections::HashSet::new();
    for _ in 0..10 {
        let Verdict::Mask(spans) = ask(&judge, TEXT).await.unwrap() else { panic!("a mask") };
        rules.extend(spans.into_iter().map(|span| span.rule));
    }
    assert_eq!(rules.len(), 65);
    assert!(rules.contains("other"));
}
