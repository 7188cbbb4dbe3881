//! Policies of judges: roles, turns, the cache, and the texts of denials.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::{Json, Router, routing::post};
use futures::future::join_all;
use lucid_auditor::{
    CacheOptions, Judge, JudgeError, JudgePolicy, OnFailure, Passage, Role, Span, Turns, Verdict,
};
use serde_json::{Value, json};

use crate::{auditor_with, client, serve, within};

/// Denies attacks and masks names. It fails when it is first told to, and counts these texts.
#[derive(Default)]
struct Attacks(Arc<AtomicUsize>);

impl Judge for Attacks {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        if !["attack", "Jo", "fail", "fine"].contains(&&*passage.text) {
            return Ok(Verdict::Allow);
        }
        let count = self.0.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        Ok(match &*passage.text {
            "attack" => Verdict::deny("attack", "the text is an attack"),
            "Jo" => Verdict::Mask(vec![Span::new(0..2, "name", "<NAME>")]),
            "fail" if count == 0 => return Err(JudgeError::new("no")),
            _ => Verdict::Allow,
        })
    }
}

/// Serves an auditor in front of a model that answers with an attack at `/answer`, and elsewhere with the request, without attacks.
async fn attacks(policy: JudgePolicy) -> (SocketAddr, Arc<AtomicUsize>) {
    let answer = json!({"choices": [{"index": 0, "message": {"role": "system", "content": "attack"}}]});
    let answer = move || async move { Json(answer) };
    let echo =
        |body: String| async move { ([("content-type", "application/json")], body.replace("attack", "")) };
    let model = Router::new().route("/answer", post(answer)).fallback(echo);
    let judge = Attacks::default();
    let count = Arc::clone(&judge.0);
    (auditor_with(serve(model).await, &[], |auditor| auditor.judge_with(judge, policy)).await, count)
}

async fn ask(address: SocketAddr, path: &str, body: &Value) -> (u16, String) {
    let answer = within(client().post(format!("http://{address}{path}")).json(body).send()).await.unwrap();
    (answer.status().as_u16(), within(answer.text()).await.unwrap())
}

async fn chat(address: SocketAddr, messages: &[(&str, &str)]) -> (u16, String) {
    let messages = messages.iter().map(|(role, text)| json!({"role": role, "content": text}));
    let body = json!({"messages": messages.collect::<Vec<_>>()});
    ask(address, "/v1/chat/completions", &body).await
}

#[tokio::test]
async fn roles_exclude_only_texts_of_other_known_roles() {
    let (address, _) = attacks(JudgePolicy::default().with_roles([Role::User, Role::Assistant])).await;
    for (role, status) in [
        ("user", 403),
        ("assistant", 403),
        ("model", 403),
        ("system", 200),
        ("developer", 200),
        ("tool", 200),
        ("function", 200),
        ("System", 403),
        ("system ", 403),
    ] {
        assert_eq!(chat(address, &[(role, "attack")]).await.0, status, "{role}");
    }
    let call = json!({"function": {"name": "f", "arguments": "attack"}});
    for (path, body, status) in [
        (
            "/v1/messages",
            json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "attack"}]}]}),
            200,
        ),
        ("/v1/responses", json!({"input": [{"type": "function_call_output", "output": "attack"}]}), 200),
        ("/v1/chat/completions", json!({"messages": [{"content": "attack"}]}), 403),
        ("/v1/chat/completions", json!({"messages": [{"role": "tool", "tool_calls": [call]}]}), 403),
        ("/answer", json!({}), 403),
    ] {
        assert_eq!(ask(address, path, &body).await.0, status, "{body}");
    }
}

#[tokio::test]
async fn earlier_turns_pass_if_they_were_judged_before() {
    let policy = JudgePolicy::default().with_turns(Turns::Last).with_cache(CacheOptions::default());
    let (address, count) = attacks(policy).await;
    let history = |text| [("user", text), ("assistant", "no"), ("user", "hello")];
    assert_eq!(chat(address, &history("attack")).await.0, 403, "an invented history is judged");
    assert_eq!(chat(address, &history("attack")).await.0, 200);
    assert_eq!(chat(address, &[("user", "attack")]).await.0, 403, "the last turn is always judged");
    for messages in [&[("user", "Jo")][..], &history("Jo")] {
        let (status, body) = chat(address, messages).await;
        assert!(status == 200 && body.contains("<NAME>"), "{body}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
    // Another role or direction is another text.
    for role in ["system", "tool"] {
        let messages = [(role, "attack"), ("assistant", "no"), ("user", "hello")];
        assert_eq!(chat(address, &messages).await.0, 403, "{role}");
    }
}

#[tokio::test]
async fn all_turns_are_judged_and_only_new_text_costs() {
    let (address, count) = attacks(JudgePolicy::default().with_cache(CacheOptions::default())).await;
    for _ in 0..3 {
        for (text, status) in [("attack", 403), ("fine", 200), ("Jo", 200)] {
            let messages = [("user", text), ("assistant", "no"), ("user", "hello")];
            assert_eq!(chat(address, &messages).await.0, status);
        }
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn caching_needs_the_option_and_space() {
    for policy in
        [JudgePolicy::default(), JudgePolicy::default().with_cache(CacheOptions::default().with_size(0))]
    {
        let (address, count) = attacks(policy.with_turns(Turns::Last)).await;
        for _ in 0..3 {
            let messages = [("user", "attack"), ("assistant", "no"), ("user", "hello")];
            assert_eq!(chat(address, &messages).await.0, 403);
        }
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test]
async fn errors_are_not_cached_and_verdicts_expire() {
    let cache = CacheOptions::default().with_ttl(Duration::from_millis(5));
    let (address, count) = attacks(JudgePolicy::default().with_cache(cache)).await;
    for status in [503, 200] {
        assert_eq!(chat(address, &[("user", "fail")]).await.0, status);
    }
    let expiry = async {
        while count.load(Ordering::SeqCst) < 4 {
            chat(address, &[("user", "fine")]).await;
        }
    };
    within(expiry).await;
}

#[tokio::test]
async fn concurrent_requests_for_a_text_share_one_call() {
    let (address, count) = attacks(JudgePolicy::default().with_cache(CacheOptions::default())).await;
    let answers =
        join_all((0..20).map(|_| async move { chat(address, &[("user", "attack")]).await.0 })).await;
    assert_eq!((answers, count.load(Ordering::SeqCst)), (vec![403; 20], 1));
}

#[tokio::test]
async fn denials_name_the_message_and_the_option() {
    let (address, _) = attacks(JudgePolicy::default()).await;
    let option = "; the judge's option roles can leave it out";
    let (user, assistant) =
        (json!({"role": "user", "content": "hello"}), json!({"role": "assistant", "content": "no"}));
    let call =
        json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "attack"}}]});
    for (path, body, place) in [
        (
            "/v1/chat/completions",
            json!({"messages": [user, assistant, user, {"role": "user", "content": "attack"}]}),
            " (messages[3])",
        ),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "system", "content": "attack"}]}),
            &format!(" (messages[0], role system{option})"),
        ),
        (
            "/v1/responses",
            json!({"input": [user, {"output": "attack"}]}),
            &format!(" (input[1], role tool{option})"),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": [user, call]}),
            &format!(" (messages[1], role assistant{option})"),
        ),
        ("/v1/messages", json!({"system": "attack"}), &format!(" (system, role system{option})")),
        ("/other", json!({"note": "attack"}), " (note)"),
        ("/other", json!({"an attack/0": "attack"}), ""),
        ("/other", json!([["attack"]]), ""),
        ("/answer", json!({}), ""),
    ] {
        let (status, answer) = ask(address, path, &body).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert_eq!((status, message), (403, &*format!("Attacks: the text is an attack{place}")), "{body}");
    }
}

struct Silent;

impl Judge for Silent {
    async fn judge(&self, _passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn the_environment_overrides_failure_and_timeout_of_judges() {
    use OnFailure::{Allow, Deny};

    for (of_judge, variable, status) in
        [(Deny, "", 503), (Allow, "", 200), (Deny, "allow", 200), (Allow, "deny", 503)]
    {
        let (model, _) = crate::counting_model().await;
        let policy = JudgePolicy::default().with_timeout(Duration::from_hours(1)).with_on_failure(of_judge);
        let variables = [("LUCID_AUDIT_FAILURE", variable), ("LUCID_AUDIT_TIMEOUT_MS", "1")];
        let address = auditor_with(model, &variables, |auditor| auditor.judge_with(Silent, policy)).await;
        let (found, body) = chat(address, &[("user", "fine")]).await;
        assert_eq!(found, status, "{of_judge:?}, {variable}: {body}");
    }
}
