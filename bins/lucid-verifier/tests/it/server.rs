//! Runs `lucid-verifier serve` as a process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lucid_e2e::eventually;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Verifier {
    pub(crate) child: Child,
    pub(crate) url: String,
    log: Arc<Mutex<String>>,
}

impl Drop for Verifier {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lucid-verifier"));
    command.env_clear();
    command
}

impl Verifier {
    /// Starts `serve` on a free port, read from the first line of its output.
    pub(crate) fn start(registry: &Path) -> Self {
        let mut command = command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--registry"]).arg(registry);
        Self::start_command(command)
    }

    pub(crate) fn start_command(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, sink) = (BufReader::new(child.stderr.take().unwrap()).lines(), log.clone());
        thread::spawn(move || lines.for_each(|line| sink.lock().unwrap().push_str(&(line.unwrap() + "\n"))));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.strip_prefix("listening on ").expect("the address").trim_end().to_owned();
        Self { child, url, log }
    }

    pub(crate) async fn get(&self, path_and_query: &str) -> (StatusCode, Value) {
        let response = reqwest::get(format!("{}{path_and_query}", self.url)).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/json");
        (response.status(), response.json().await.unwrap())
    }

    pub(crate) async fn is_notarized(&self, digest: &str) -> bool {
        let (status, answer) = self.get(&format!("/registry/check?digest={digest}")).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["digest"], digest);
        answer["notarized"].as_bool().unwrap()
    }

    pub(crate) async fn notarizes_soon(&self, digest: &str) {
        eventually(digest, async || self.is_notarized(digest).await.then_some(()).ok_or(self.log())).await;
    }

    pub(crate) async fn logs_soon(&self, text: &str) {
        eventually(text, async || self.log().contains(text).then_some(()).ok_or(self.log())).await;
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

pub(crate) fn sha256(hex_digit: char) -> String {
    format!("sha256:{}", hex_digit.to_string().repeat(64))
}

pub(crate) fn registry_of(digests: &[char]) -> String {
    let entries: Vec<String> = digests.iter().map(|digit| sha256(*digit)).collect();
    json!({ "notarized": entries }).to_string()
}

pub(crate) fn serving(digests: &[char]) -> (TempDir, Verifier) {
    let folder = folder_with(digests);
    let verifier = Verifier::start(&folder.path().join("registry.yaml"));
    (folder, verifier)
}

pub(crate) fn folder_with(digests: &[char]) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("registry.yaml"), registry_of(digests)).unwrap();
    folder
}
