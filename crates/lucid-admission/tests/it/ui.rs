//! `/audit/ui` in a real browser, over TLS.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use lucid_admission::Audit;
use lucid_audit::log::Options;
use lucid_audit::note::SigningKey;
use lucid_audit::{Decision, ImageVerdict, Recorder};
use lucid_certs::{CertificateAuthority, ServerTls, ServingCertificateResolver, ServingNames};
use lucid_e2e::eventually;
use lucid_webhook::{Router, Server, TokenFile};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::{Browser, has_browser, key};

const TOKEN: &str = "a-token-of-tests";
const ALERT_TOKEN: &str = "a-token-of-alerts";

struct Site {
    recorder: Arc<Recorder>,
    url: String,
    client: reqwest::Client,
    browser: Browser,
    folder: TempDir,
}

impl Site {
    async fn open(capacity: usize, theme: &str) -> Self {
        Self::with(capacity, theme, |audit| audit).await
    }

    async fn with(capacity: usize, theme: &str, change: impl FnOnce(Audit) -> Audit) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), TOKEN).unwrap();
        let key = SigningKey::generate("lucid.computing/prod/lucid-operator-0").unwrap();
        let recorder = Arc::new(Recorder::new(capacity));
        recorder.open_log(&folder.path().join("log"), Options::new().with_key(key)).unwrap();
        std::fs::write(folder.path().join("alert-token"), ALERT_TOKEN).unwrap();
        let token = |file| TokenFile::open(folder.path().join(file)).unwrap();
        let audit =
            Audit::new(Arc::clone(&recorder), Some(token("token"))).with_alert_token(token("alert-token"));
        let router = change(audit).mount(Router::new());
        let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let url = format!("https://localhost:{}", server.local_addr().port());
        let names = ServingNames::for_services("lucid-system", &["lucid-validator-webhook"]).unwrap();
        let (now, resolver) = (SystemTime::now(), Arc::new(ServingCertificateResolver::default()));
        resolver.swap(&CertificateAuthority::generate(&names, now).unwrap().issue(&names, now).unwrap());
        let tls = Arc::new(ServerTls::new(resolver).build().unwrap());
        tokio::spawn(server.serve(tls, router, std::future::pending()));

        let browser = Browser::start(folder.path(), theme).await;
        let client =
            reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy().build().unwrap();
        browser.goto(&format!("{url}/audit/ui")).await;
        Self { recorder, url, client, browser, folder }
    }

    async fn enter(&self, token: &str) {
        let field = self.browser.find("#token").await;
        field.send_keys(token).await;
        field.send_keys(key::ENTER).await;
    }

    async fn record(&self, decisions: impl IntoIterator<Item = Decision>) {
        for decision in decisions {
            self.recorder.record(decision).await.unwrap();
        }
    }

    async fn press(&self, keys: &str) {
        self.browser.active_element().await.send_keys(keys).await;
    }

    async fn value(&self, expression: &str) -> Value {
        self.browser.execute(&format!("return ({expression})")).await
    }

    async fn becomes(&self, expression: &str, expected: Value) {
        eventually(&format!("{expression} is {expected}"), async || {
            let value = self.value(expression).await;
            if value == expected { Ok(()) } else { Err(value) }
        })
        .await;
    }

    async fn raise(&self, alert: Value) {
        let request = self.client.post(format!("{}/audit/alerts", self.url)).bearer_auth(ALERT_TOKEN);
        assert_eq!(request.body(json!({"drifts": [alert]}).to_string()).send().await.unwrap().status(), 204);
    }

    /// Saves a screenshot in the directory `LUCID_SCREENSHOTS`, if set.
    async fn picture(&self, name: &str) {
        let picture = self.browser.screenshot().await;
        assert!(picture.len() > 10_000, "an empty picture");
        if let Some(folder) = std::env::var_os("LUCID_SCREENSHOTS") {
            std::fs::write(PathBuf::from(folder).join(name), picture).unwrap();
        }
    }

    /// Closes the browser, and asserts that the page did not violate its policy.
    async fn close(self) {
        let complaints = self.value("window.complaints ?? []").await;
        assert_eq!(complaints, json!([]), "the page broke its policy");
        self.browser.quit().await;
    }
}

fn decision(number: u64) -> Decision {
    let mut decision = Decision::new("validate", format!("705ab4f5-6393-11e8-b7cc-42010a80{number:04}"));
    (decision.operation, decision.kind) = ("CREATE".to_owned(), "Pod".to_owned());
    (decision.namespace, decision.name) = ("shop".to_owned(), format!("web-7d9c5b6f4-{number}"));
    decision.user = "system:serviceaccount:kube-system:replicaset-controller".to_owned();
    decision.mode = "enforce".to_owned();
    decision
}

fn evening() -> Vec<Decision> {
    let image = |name: &str, verdict: &str| {
        let container = format!("lucid-{name}-auditor");
        let digest = "sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752";
        let image = format!("ghcr.io/lucid/{container}:1.4.2@{digest}");
        ImageVerdict::new(container, image, verdict)
    };
    let mut decisions: Vec<_> = (0..14).map(decision).collect();
    for (place, decision) in decisions.iter_mut().enumerate() {
        decision.time -= jiff::SignedDuration::from_secs(37 * (14 - place as i64));
        if place % 2 == 0 {
            decision.webhook = "mutate".to_owned();
            decision.patched = true;
            decision.chain = ["lucid-injection-auditor", "lucid-toxicity-auditor"].map(str::to_owned).into();
        } else {
            decision.images = vec![image("injection", "notarized"), image("toxicity", "notarized")];
        }
    }
    let denied = &mut decisions[11];
    denied.allowed = false;
    (denied.namespace, denied.name) = ("payments".to_owned(), "scoring-5f7c9-x2x8k".to_owned());
    denied.message =
        "container lucid-toxicity-auditor, image ghcr.io/lucid/lucid-toxicity-auditor:1.4.2: not notarized"
            .to_owned();
    denied.findings =
        vec![denied.message.clone(), "container app runs as uid 20001, which is an auditor's".to_owned()];
    denied.images[1].verdict = "not notarized".to_owned();
    let would = &mut decisions[7];
    (would.mode, would.tier, would.would_deny) = ("audit".to_owned(), "missing".to_owned(), true);
    (would.namespace, would.name) = ("research".to_owned(), "notebook-0".to_owned());
    would.findings = vec!["label lucid.computing/tier is missing, expected \"A\" or \"B\"".to_owned()];
    would.warnings = would.findings.clone();
    let glass = &mut decisions[9];
    (glass.mode, glass.ticket, glass.would_deny) = ("break-glass".to_owned(), "INC-4711".to_owned(), true);
    (glass.namespace, glass.name, glass.user) =
        ("payments".to_owned(), "scoring-hotfix".to_owned(), "alice@example.com".to_owned());
    glass.findings = vec!["image ghcr.io/lucid/lucid-pii-auditor:main: missing digest".to_owned()];
    decisions
}

const ROWS: &str = "document.querySelectorAll('tr.decision').length";

#[tokio::test]
async fn the_page_shows_decisions_after_the_token_is_entered() {
    if !has_browser() {
        return;
    }
    let site = Site::open(1000, "light").await;
    site.record(evening()).await;
    site.browser.execute("window.complaints = []; addEventListener('securitypolicyviolation', (it) => complaints.push(it.violatedDirective + ' ' + it.blockedURI))").await;
    site.becomes("document.activeElement.id", json!("token")).await;
    site.picture("audit-ui-login.png").await;
    site.enter("another").await;
    site.becomes("document.getElementById('refused').textContent.length > 0", json!(true)).await;
    assert_eq!(site.value(ROWS).await, json!(0));
    site.enter(TOKEN).await;
    site.becomes(ROWS, json!(14)).await;
    // The browser stores nothing.
    let kept = "[document.cookie, localStorage.length, sessionStorage.length, location.href.includes('token-of'), document.getElementById('token').value]";
    assert_eq!(site.value(kept).await, json!(["", 0, 0, false, ""]));
    assert_eq!(
        site.value("document.querySelector('tr.denied td.object').textContent").await,
        "payments/scoring-5f7c9-x2x8k"
    );

    let tier = "[...document.querySelectorAll('tr.decision')].find((row) => row.textContent.includes('notebook-0')).querySelector('td.tier').textContent";
    assert_eq!(site.value(tier).await, "missing");

    // New decisions appear on top, and open details stay open.
    site.browser.execute("document.querySelector('tr.denied button').click()").await;
    site.becomes(
        "document.querySelector('tr.denied + tr.details').textContent.includes('uid 20001')",
        json!(true),
    )
    .await;
    let mut late = decision(99);
    late.name = "late".to_owned();
    site.record([late]).await;
    site.becomes("document.querySelector('tr.decision td.object').textContent", json!("shop/late")).await;
    assert_eq!(site.value("document.querySelector('tr.denied + tr.details').hidden").await, json!(false));

    let sealed = "/Log lucid.computing.prod.lucid-operator-0.*15 records, all sealed/.test(document.getElementById('facts').textContent)";
    site.becomes(sealed, json!(true)).await;
    assert_eq!(site.value("document.getElementById('drift').hidden").await, json!(true));
    let class = json!({"class": "rewritten", "log": "lucid.computing/prod/lucid-operator-0", "seq": 81_934,
        "detail": "the record differs from the anchor in the API server's audit log"});
    site.raise(class).await;
    site.becomes("document.getElementById('drift').textContent.includes('seq 81934')", json!(true)).await;
    site.becomes("document.title.startsWith('⚠ (1 denied)')", json!(true)).await;
    site.picture("audit-ui.png").await;

    // The token is discarded on demand, and when it is no longer valid.
    site.browser.find("#lock").await.click().await;
    site.becomes(&format!("[{ROWS}, document.getElementById('main').hidden]"), json!([0, true])).await;
    site.enter(TOKEN).await;
    site.becomes(ROWS, json!(15)).await;
    std::fs::write(site.folder.path().join("token"), "the-next-token").unwrap();
    site.becomes(&format!("[{ROWS}, document.getElementById('main').hidden]"), json!([0, true])).await;
    site.close().await;
}

#[tokio::test]
async fn filters_and_pages_work_by_keyboard_alone() {
    if !has_browser() {
        return;
    }
    let site = Site::open(1000, "dark").await;
    for number in 0..150 {
        let mut decision = decision(number);
        decision.namespace = format!("team-{}", number % 3);
        site.record([decision]).await;
    }
    site.record(evening()).await;
    site.enter(TOKEN).await;
    site.becomes(ROWS, json!(100)).await;
    // The field for the token is hidden and has lost the focus.
    site.press("j").await;
    site.becomes(
        "document.activeElement.closest('tr') === document.querySelector('tr.decision')",
        json!(true),
    )
    .await;
    site.press("j").await;
    site.press(key::ENTER).await;
    site.becomes("document.querySelectorAll('tr.details:not([hidden])').length", json!(1)).await;
    site.press("k").await;
    site.becomes(
        "document.activeElement.closest('tr') === document.querySelector('tr.decision')",
        json!(true),
    )
    .await;
    site.picture("audit-ui-dark.png").await;

    site.press("/").await;
    site.becomes("document.activeElement.name", json!("namespace")).await;
    site.press("team-1").await;
    site.becomes(ROWS, json!(50)).await;
    site.press(key::ESCAPE).await;
    site.browser.execute("document.querySelector('[name=namespace]').value = ''; document.querySelector('[name=tier]').focus()").await;
    site.press("missing").await;
    site.becomes(ROWS, json!(1)).await;
    site.press(key::ESCAPE).await;
    site.browser.execute("document.querySelector('[type=reset]').focus()").await;
    site.press(key::ENTER).await;
    site.becomes(ROWS, json!(100)).await;
    site.browser.execute("document.getElementById('older').focus()").await;
    site.press(key::ENTER).await;
    site.becomes(ROWS, json!(164)).await;
    site.becomes("document.getElementById('older').hidden", json!(true)).await;

    site.browser.execute("document.querySelector('[name=decision]').focus()").await;
    site.press(key::RIGHT).await;
    site.becomes(ROWS, json!(1)).await;
    site.press(key::RIGHT).await;
    site.becomes(ROWS, json!(2)).await;
    assert_eq!(site.value("document.querySelectorAll('.badge.break-glass').length").await, json!(1));

    // While paused, the page does not change; missed decisions appear afterwards.
    site.press("p").await;
    site.becomes("document.getElementById('live').dataset.state", json!("paused")).await;
    site.press(key::LEFT).await;
    site.becomes(ROWS, json!(1)).await;
    site.close().await;
}

#[tokio::test]
async fn text_of_pod_authors_is_escaped() {
    if !has_browser() {
        return;
    }
    let site = Site::open(3, "light").await;
    let attack = "</script><img src=x onerror='window.hacked=1'><b onclick=hacked=1>\u{202e}x";
    let mut hostile = decision(1);
    for text in [
        &mut hostile.namespace,
        &mut hostile.name,
        &mut hostile.user,
        &mut hostile.message,
        &mut hostile.ticket,
        &mut hostile.kind,
        &mut hostile.operation,
        &mut hostile.uid,
        &mut hostile.mode,
        &mut hostile.webhook,
    ] {
        *text = attack.to_owned();
    }
    for list in [&mut hostile.findings, &mut hostile.warnings, &mut hostile.chain, &mut hostile.exemptions] {
        *list = vec![attack.to_owned(), "long ".repeat(2000)];
    }
    hostile.images = vec![ImageVerdict::new(attack, attack, attack)];
    site.record([hostile]).await;
    site.raise(json!({"class": attack, "log": attack, "detail": attack})).await;
    site.enter(TOKEN).await;
    site.becomes(ROWS, json!(1)).await;
    site.browser.execute("document.querySelector('tr.decision button').click()").await;
    site.becomes("document.querySelectorAll('tr.details dd').length", json!(12)).await;
    site.becomes("document.getElementById('drift').hidden", json!(false)).await;
    let shown = "[document.querySelector('td.object').textContent.includes('<img src=x'), document.body.textContent.includes('\\u202e'), document.querySelectorAll('main img, main b[onclick], main script').length, window.hacked ?? 0]";
    assert_eq!(site.value(shown).await, json!([true, false, 0, 0]));
    assert_eq!(
        site.value("document.documentElement.scrollWidth <= innerWidth").await,
        json!(true),
        "it is too wide"
    );
    // The policy blocks HTML even if the page wrote it.
    let inject = "(() => { try { document.body.innerHTML = '<img src=x>'; return 'written' } catch { return 'refused' } })()";
    assert_eq!(site.value(inject).await, "refused");

    // The page reports decisions that came and went between two polls.
    site.browser.execute("document.getElementById('pause').click()").await;
    site.record((10..20).map(decision)).await;
    site.browser.execute("document.getElementById('pause').click()").await;
    site.becomes("document.querySelector('tr.gap')?.textContent.startsWith('7 decisions')", json!(true))
        .await;
    site.picture("audit-ui-hostile.png").await;
    site.browser.quit().await;
}

#[tokio::test]
async fn running_pods_are_shown_with_their_states() {
    if !has_browser() {
        return;
    }
    let attack = "<img src=x onerror='window.hacked=1'>\u{202e}x";
    let pod = |name: &str, state: &str, reason: &str| json!({"namespace": "shop", "pod": name, "state": state, "workload": "deployment/web", "reason": reason});
    let pods = json!({"watches": true, "counts": {"Audited": 1200, "Missing": 1, attack: 1}, "more": 1199,
        "pods": [pod(attack, attack, attack), pod("web-0", "Missing", "it has no chain"), pod("web-1", "Audited", "")]});
    let pods = Arc::new(Mutex::new(pods));
    let shown = Arc::clone(&pods);
    let site =
        Site::with(10, "light", |audit| audit.with_running_pods(move || shown.lock().unwrap().clone())).await;
    site.browser.execute("window.complaints = []; addEventListener('securitypolicyviolation', (it) => complaints.push(it.violatedDirective + ' ' + it.blockedURI))").await;
    site.record(evening()).await;
    site.enter(TOKEN).await;
    site.becomes(ROWS, json!(10)).await;
    site.record([decision(99)]).await;
    site.becomes(ROWS, json!(11)).await;
    let running = "document.querySelectorAll('#running tr').length";
    assert_eq!(site.value(running).await, json!(0), "running pods are not polled unseen");
    site.browser.execute("document.querySelector('[name=view]').focus()").await;
    site.press(key::RIGHT).await;
    site.becomes(running, json!(3)).await;
    let hidden = "[document.getElementById('audit').hidden, document.getElementById('pods').hidden]";
    assert_eq!(site.value(hidden).await, json!([true, false]));
    let states = "document.getElementById('states').textContent";
    let summary = site.value(states).await;
    let summary = summary.as_str().unwrap();
    assert!(summary.contains("x, 1,200 Audited, 1 Missing; "), "{summary}");
    assert!(summary.ends_with("; 1,199 of them are not listed"), "{summary}");
    let missing = "document.querySelector('#running .denied').closest('tr').textContent";
    assert_eq!(site.value(missing).await, "Missingshop/web-0deployment/webit has no chain");
    let shown = "[document.querySelectorAll('#running')[0].textContent.includes('<img src=x'), document.body.textContent.includes('\\u202e'), document.querySelectorAll('main img').length, window.hacked ?? 0]";
    assert_eq!(site.value(shown).await, json!([true, false, 0, 0]));
    site.picture("audit-ui-pods.png").await;

    *pods.lock().unwrap() = json!({"watches": false, "counts": {}, "pods": [], "more": 0});
    site.browser.execute("counted = 0").await;
    site.becomes(&format!("{states}.includes('does not watch')"), json!(true)).await;
    site.becomes(running, json!(0)).await;
    site.browser.find("#lock").await.click().await;
    site.becomes(&format!("{states}.length"), json!(0)).await;
    site.close().await;
}
