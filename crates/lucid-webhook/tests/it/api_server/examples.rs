//! Runs the commands of the tutorial next to the examples as written.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{env, fs, thread};

use lucid_e2e::{
    binary, eventually,
    page::{Page, Shell, commands},
};
use rcgen::ExtendedKeyUsagePurpose;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use super::{Scene, in_namespace, pod};
use crate::wire::Authority;

const TUTORIAL: &str = "crates/lucid-webhook/examples/README.md";
const DEFINITION: &str = include_str!("../../../examples/crontab-crd.yaml");
/// Addresses of the examples in the tutorial, in order of start.
const ADDRESSES: [&str; 4] = ["127.0.0.1:8443", "127.0.0.1:8444", "127.0.0.1:8445", "127.0.0.1:8446"];

const PATIENCE: Duration = Duration::from_secs(60);
struct Example {
    process: Child,
    address: String,
}

impl Example {
    fn start(command: &str, folder: &Path) -> Self {
        let mut words = command.split_whitespace().skip_while(|word| *word != "--example").skip(1);
        let (name, _address) = (words.next().unwrap(), words.next().unwrap());
        let program = program(name);
        let mut command = lucid_e2e::command(&program);
        command.arg("127.0.0.1:0").args(words).current_dir(folder).stdout(Stdio::piped());
        let mut example = Self { process: command.spawn().unwrap(), address: String::new() };
        let stdout = lines(example.process.stdout.take().unwrap());
        example.address = address(&stdout);
        example
    }

    fn ask_to_end(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn ends_well(mut self) {
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // It has already ended if the test succeeded.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    // Read to the end even without a receiver; otherwise the process would block.
    let read =
        move || BufReader::new(output).lines().map_while(Result::ok).for_each(|it| drop(sender.send(it)));
    thread::spawn(read);
    lines
}

fn address(stdout: &Receiver<String>) -> String {
    let line = stdout.recv_timeout(PATIENCE).expect("it does not listen");
    line.strip_prefix("listening on ").unwrap_or_else(|| panic!("it says {line:?}")).to_owned()
}

/// Path of an example, which Cargo builds next to the tests.
fn program(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    let hint = "cargo leaves the examples out where a target or a test is named before `--`; run `cargo build -p \
                lucid-webhook --examples` first";
    assert!(program.is_file(), "{} is missing: {hint}", program.display());
    // A make rule that lists all sources of the program.
    let sources = fs::read_to_string(program.with_extension("d")).unwrap();
    let (_, sources) = sources.split_once(": ").unwrap();
    let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    for source in sources.split_whitespace().map(Path::new) {
        let stale = modified(source) > modified(&program);
        assert!(!stale, "{} is older than {}: {hint}", program.display(), source.display());
    }
    program
}

fn addressed(text: &str, examples: &[Example]) -> String {
    let addresses = ADDRESSES.iter().zip(examples);
    addresses.fold(text.to_owned(), |text, (address, example)| text.replace(address, &example.address))
}

async fn check_session(scene: &Scene, shell: &Shell, session: &str) {
    for (command, expected) in commands(session) {
        let (_, output) = tokio::task::block_in_place(|| shell.run(&command)).unwrap();
        assert_eq!(output, expected, "$ {command}");
        if command.contains("webhooks.yaml") {
            in_effect(scene).await;
        }
    }
}

async fn in_effect(scene: &Scene) {
    for (namespace, code) in [("validated", 403), ("mutated", 201)] {
        let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
        eventually("the webhook is called", async || {
            let answer =
                scene.send(http::Method::POST, &path, "application/json", &pod("probe", json!(null))).await;
            let mutated = answer.body["metadata"]["labels"] == json!({"example-mutated": "true"});
            (answer.code == code && (code != 201 || mutated)).then_some(()).ok_or(answer)
        })
        .await;
    }
}

#[test]
fn the_tutorial_works_as_written() {
    let tutorial = Page::read(TUTORIAL).unwrap();
    if !tutorial.can_run() {
        return;
    }
    in_namespace("tutorial", async |scene| {
        let kubectl = binary("kubectl").unwrap();
        let folder = TempDir::new().unwrap();
        let shell = Shell::new(&scene.cluster, &kubectl, folder.path());
        let mut examples: Vec<Example> = Vec::new();
        let mut sessions = 0;
        for (language, text) in tutorial.blocks() {
            match language {
                "sh" => {
                    let (success, output) = shell.run(text).unwrap();
                    assert!(success, "{output}");
                    tutorial.ran(text);
                }
                "text" => {
                    examples.extend(text.lines().map(|line| Example::start(line, folder.path())));
                    let definition = addressed(DEFINITION, &examples);
                    fs::write(folder.path().join("crontab-crd.yaml"), definition).unwrap();
                }
                "yaml" => {
                    let (name, _) = text.strip_prefix("# ").unwrap().split_once('\n').unwrap();
                    fs::write(folder.path().join(name), addressed(text, &examples)).unwrap();
                }
                "console" => {
                    sessions += 1;
                    check_session(scene, &shell, text).await;
                    tutorial.ran(text);
                }
                other => panic!("unknown command {other}"),
            }
        }
        assert_eq!((examples.len(), sessions), (ADDRESSES.len(), 6));
        for (example, signal) in examples.iter().zip([Signal::TERM, Signal::INT, Signal::INT, Signal::TERM]) {
            example.ask_to_end(signal);
        }
        examples.into_iter().for_each(Example::ends_well);
    });
}

#[test]
fn examples_wait_for_valid_files_and_log_errors() {
    let (folder, authority) = (TempDir::new().unwrap(), Authority::new());
    let mut command = lucid_e2e::command(program("add_label"));
    command.args(["0.0.0.0:0", "tls.crt", "tls.key", "192.0.2.7"]).current_dir(folder.path());
    let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut example = Example { process, address: String::new() };
    let stdout = lines(example.process.stdout.take().unwrap());
    let stderr = lines(example.process.stderr.take().unwrap());
    let is_told = |says: &str| while !stderr.recv_timeout(PATIENCE).expect(says).contains(says) {};
    let issue = |host| {
        authority.issue(ExtendedKeyUsagePurpose::ServerAuth, "server", &[host]).write(folder.path());
    };

    is_told("failed to read tls.crt: there is no such file; no certificate is in service yet");
    issue("127.0.0.1");
    is_told("is not for 192.0.2.7: it is for 127.0.0.1; no certificate is in service yet");
    assert!(stdout.try_recv().is_err(), "it listens without a certificate");
    issue("192.0.2.7");
    assert!(address(&stdout).starts_with("0.0.0.0:"));
    example.ask_to_end(Signal::TERM);
    example.ends_well();
}
