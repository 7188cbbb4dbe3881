//! Minimal W3C WebDriver client for Chromium. The available crates enable `serde_json/preserve_order` in the whole
//! workspace, or add second versions of its dependencies.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lucid_e2e::{Process, eventually, has_program};
use reqwest::Method;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// Key of an element's reference in JSON (WebDriver, "web element identifier").
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys without a character (WebDriver, "Keyboard actions").
pub(crate) mod key {
    pub(crate) const ENTER: &str = "\u{e007}";
    pub(crate) const ESCAPE: &str = "\u{e00c}";
    pub(crate) const LEFT: &str = "\u{e012}";
    pub(crate) const RIGHT: &str = "\u{e014}";
}

pub(crate) fn has_browser() -> bool {
    has_program("chromium") && has_program("chromedriver")
}

pub(crate) struct Browser {
    client: reqwest::Client,
    session: String,
    _driver: Process,
}

pub(crate) struct Element<'a> {
    browser: &'a Browser,
    path: String,
}

impl Browser {
    /// Starts a browser with its profile and logs in `folder` and a light or dark theme. It accepts all certificates.
    pub(crate) async fn start(folder: &Path, theme: &str) -> Self {
        let log = folder.join("chromedriver.log");
        let mut command = lucid_e2e::command("chromedriver");
        command.arg("--port=0");
        let driver = Process::start("chromedriver", command, log.clone()).unwrap();
        let port = started_on(&log).await;
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        let url = format!("http://127.0.0.1:{port}/session");
        let mut browser = Self { client, session: url, _driver: driver };
        let profile = format!("--user-data-dir={}", folder.join("profile").display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1360,900",
            &profile,
        ];
        let wanted = json!({"browserName": "chrome", "acceptInsecureCerts": true,
            "goog:chromeOptions": {"args": arguments}});
        let session = browser.post("", json!({"capabilities": {"alwaysMatch": wanted}})).await;
        browser.session = format!("{}/{}", browser.session, session["sessionId"].as_str().unwrap());
        let emulated = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        let emulate = json!({"cmd": "Emulation.setEmulatedMedia", "params": emulated});
        browser.post("/goog/cdp/execute", emulate).await;
        browser
    }

    pub(crate) async fn goto(&self, url: &str) {
        self.post("/url", json!({"url": url})).await;
    }

    /// Runs a function with this body in the page and returns its result.
    pub(crate) async fn execute(&self, body: &str) -> Value {
        self.post("/execute/sync", json!({"script": body, "args": []})).await
    }

    pub(crate) async fn find(&self, selector: &str) -> Element<'_> {
        self.element(&self.post("/element", json!({"using": "css selector", "value": selector})).await)
    }

    pub(crate) async fn active_element(&self) -> Element<'_> {
        self.element(&self.call(Method::GET, "/element/active", None).await)
    }

    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        STANDARD.decode(self.call(Method::GET, "/screenshot", None).await.as_str().unwrap()).unwrap()
    }

    pub(crate) async fn quit(self) {
        self.call(Method::DELETE, "", None).await;
    }

    fn element(&self, reference: &Value) -> Element<'_> {
        Element { browser: self, path: format!("/element/{}", reference[ELEMENT].as_str().unwrap()) }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Runs a command and returns its `value`. Panics if the driver returns an error.
    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let mut request = self.client.request(method, format!("{}{path}", self.session));
        if let Some(body) = &body {
            request = request.json(body);
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        let value = response.json::<Value>().await.unwrap()["value"].take();
        let sent = body.unwrap_or_default();
        assert!(status.is_success(), "{path} {sent}: {}: {}", value["error"], value["message"]);
        value
    }
}

impl Element<'_> {
    pub(crate) async fn send_keys(&self, text: &str) {
        self.browser.post(&format!("{}/value", self.path), json!({"text": text})).await;
    }

    pub(crate) async fn click(&self) {
        self.browser.post(&format!("{}/click", self.path), json!({})).await;
    }
}

async fn started_on(log: &Path) -> u16 {
    eventually("chromedriver starts", async || {
        let written = std::fs::read_to_string(log).unwrap_or_default();
        let rest = written.split_once("started successfully on port ").map(|(_, rest)| rest);
        let port = rest.and_then(|rest| rest.split_once('.')).map(|(port, _)| port.parse().unwrap());
        port.ok_or(written)
    })
    .await
}
