//! Pages of docs/: runs their commands as written, and compares the output with the pages.
//!
//! [`node`] simulates the node and the controllers of a cluster. `kubectl logs` returns the operator's log.

mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use lucid_e2e::{
    ClusterExt as _, binary, can_use_namespaces, free_port,
    page::{Page, Shell, commands, root},
    program,
};
use lucid_testbed::Cluster;
use regex::Regex;
use tempfile::TempDir;

use crate::cli::{apply_manifest, kubectl};
use crate::common::{PATIENCE, has_cert_manager, prepare};
use node::Node;

/// The cluster's `auditors.yaml`, for pages that assume one.
const CATALOGUE: &str = "chain: [{name: topics, image: 'registry.example/topics:1', port: 8090}]\n";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// A cluster without Lucid.
    Empty,
    /// Lucid's manifests, the namespaces `shop` (enabled) and `other`, and a running operator.
    Installed,
    /// The same with cert-manager.
    CertManager,
}

/// Values that vary between runs: times and fingerprints. Equal fingerprints on the page must be equal here.
struct Differing {
    pattern: Regex,
    fingerprints: BTreeMap<String, String>,
}

impl Differing {
    fn new() -> Self {
        let pattern = r"\b[0-9a-f]{64}\b|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|\b10\.\d+\.\d+\.\d+:\d+|\b\d+\.\d+(ms|s)\b";
        Self { pattern: Regex::new(pattern).unwrap(), fingerprints: BTreeMap::new() }
    }

    /// Returns `true` if the output matches the page.
    fn agree(&mut self, page: &str, printed: &str) -> bool {
        if self.pattern.replace_all(page, "…") != self.pattern.replace_all(printed, "…") {
            return false;
        }
        let mut known = self.fingerprints.clone();
        let pairs = self.pattern.find_iter(page).zip(self.pattern.find_iter(printed));
        for (said, found) in pairs.map(|(said, found)| (said.as_str(), found.as_str())) {
            let is_fingerprint = said.len() == 64;
            if is_fingerprint && known.entry(said.to_owned()).or_insert_with(|| found.to_owned()) != found {
                return false;
            }
        }
        let distinct: BTreeSet<_> = known.values().collect();
        let agree = distinct.len() == known.len();
        if agree {
            self.fingerprints = known;
        }
        agree
    }
}

/// Returns `true` if the command is read-only, so that it can be repeated until its output matches.
fn looks(command: &str) -> bool {
    let parts = [" get ", " logs ", " status", " run probe ", " check", "--dry-run=server", " describe "];
    parts.iter().any(|part| command.contains(part))
}

/// Runs pages in one cluster, from their first block to their last, with these additional objects.
async fn follow(paths: &[&str], begin: Begin, given: &[&str]) {
    if !can_use_namespaces() || begin == Begin::CertManager && !has_cert_manager() {
        return;
    }
    let pages: Vec<_> = paths.iter().map(|path| Page::read(path).unwrap()).filter(Page::can_run).collect();
    if pages.is_empty() {
        return;
    }
    let builder = Cluster::builder().webhooks_by_service();
    let builder = if begin == Begin::CertManager { builder.cert_manager().cainjector() } else { builder };
    let mut cluster = builder.start().await.unwrap();
    if begin != Begin::Empty {
        apply_manifest(&cluster, "lucid.yaml");
        cluster = prepare(cluster).await;
    }
    if begin == Begin::CertManager {
        cluster.create_namespace("cert-manager", &[]).await.unwrap();
    }
    for manifest in given {
        kubectl(&cluster, &["apply", "--server-side", "--filename", "-"], manifest);
    }
    let folder = TempDir::new().unwrap();
    for name in ["charts", "deploy"] {
        std::os::unix::fs::symlink(root().join(name), folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("auditors.yaml"), CATALOGUE).unwrap();
    let shell = shell(&cluster, folder.path());
    let mut node = Node::new(cluster);
    node.follow().await;
    for page in pages {
        let right = play(&page, folder.path(), &shell, &mut node).await;
        compare(&page, &right);
    }
}

async fn play(page: &Page, folder: &Path, shell: &Shell, node: &mut Node) -> String {
    let mut differing = Differing::new();
    let mut right = page.text().to_owned();
    let mut scripts = 0;
    for (info, text) in page.blocks() {
        match info {
            // Named manifests are files.
            "ini" | "yaml" => {
                if let Some((name, _)) = text.strip_prefix("# ").and_then(|text| text.split_once('\n')) {
                    fs::write(folder.join(name), text).unwrap();
                }
            }
            // The second of these commands runs the tests, including the first command.
            "sh" if text.starts_with("cargo xtask demo") => page.ran(text),
            "sh" if text.starts_with("cargo run -p example-") => {
                node.start_example(text);
                page.ran(text);
            }
            "sh" => {
                scripts += 1;
                let (success, printed) = run(shell, node, text).await;
                assert!(success, "{}: {text}prints\n{printed}", page.path());
                page.ran(text);
                node.follow().await;
            }
            "console" => {
                scripts += 1;
                let mut played = String::new();
                for (command, said) in commands(text) {
                    let printed = until(shell, node, &mut differing, &command, &said).await;
                    played += &format!("$ {command}{printed}");
                    node.follow().await;
                }
                right = right.replace(text, &played);
                page.ran(text);
            }
            // Not for a shell.
            "text" | "json" | "mermaid" | "promql" => {}
            other => panic!("{}: what to do with {other}?", page.path()),
        }
    }
    assert!(scripts > 0, "{}: no command was run", page.path());
    right
}

fn compare(page: &Page, right: &str) {
    let instead = Path::new(env!("CARGO_TARGET_TMPDIR")).join(page.path().replace('/', "-"));
    fs::write(&instead, right).unwrap();
    let path = page.path();
    assert!(right == page.text(), "{path} does not say what is printed; {} does", instead.display());
}

/// Runs a command while the simulated node and controllers work.
async fn run(shell: &Shell, node: &mut Node, command: &str) -> (bool, String) {
    let (shell, script) = (shell.clone(), command.to_owned());
    let mut running = tokio::task::spawn_blocking(move || shell.run(&script));
    loop {
        tokio::select! {
            ran = &mut running => return ran.unwrap().unwrap(),
            () = tokio::time::sleep(Duration::from_millis(300)) => node.follow().await,
        }
    }
}

/// Runs a command until its output matches the page, up to a timeout.
async fn until(
    shell: &Shell,
    node: &mut Node,
    differing: &mut Differing,
    command: &str,
    said: &str,
) -> String {
    let begin = Instant::now();
    loop {
        let (_, printed) = run(shell, node, command).await;
        if differing.agree(said, &printed) {
            return said.to_owned();
        }
        // The page has no output yet.
        let in_vain = said.is_empty() || !looks(command) || begin.elapsed() > PATIENCE;
        if in_vain {
            return printed;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Creates a shell with openssl, lucid-operator and kubectl, which has access to the operator's log.
fn shell(cluster: &Cluster, folder: &Path) -> Shell {
    let real = binary("kubectl").unwrap();
    let programs = cluster.folder().join("programs");
    fs::create_dir(&programs).unwrap();
    for name in ["lucid", "lucid-operator"] {
        std::os::unix::fs::symlink(program(name).unwrap(), programs.join(name)).unwrap();
    }
    let kubectl = programs.join("kubectl");
    let log = cluster.folder().join("logs/lucid-operator.log");
    let log = log.display();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in\n*\" logs \"*) exec cat {log};;\n*) exec {} \"$@\";;\nesac\n",
        real.display()
    );
    fs::write(&kubectl, script).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    Shell::new(cluster, &real, folder).with_programs(programs)
}

/// One test per page.
macro_rules! pages {
    ($($test:ident: $page:literal from $begin:ident;)*) => {$(
        #[tokio::test]
        async fn $test() {
            follow(&[$page], Begin::$begin, &[]).await;
        }
    )*};
}

pages! {
    self_signed_certificates: "docs/certificates/self-signed.md" from Installed;
    openssl: "docs/certificates/openssl.md" from Installed;
    cert_manager: "docs/certificates/cert-manager.md" from CertManager;
    the_injector: "docs/certificates/injector.md" from Installed;
    certificate_troubleshooting: "docs/certificates/troubleshooting.md" from Installed;
    the_live_commands: "docs/cli-live.md" from Empty;
    the_canary: "docs/canary.md" from Installed;
    the_quick_start: "README.md" from Empty;
    the_installation: "docs/install.md" from Empty;
    troubleshooting: "docs/troubleshooting.md" from Installed;
}

const WEB: &str = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "model", "image": "registry.example/model:1"}]}}}}"#;

#[tokio::test]
async fn the_shorter_pages_are_correct() {
    let pages = [
        "docs/auditors.md",
        "docs/break-glass.md",
        "docs/decisions.md",
        "docs/certificates/README.md",
        "docs/permissions.md",
        "docs/backstop.md",
    ];
    follow(&pages, Begin::Installed, &[WEB]).await;
}

#[test]
fn the_page_of_the_verifier_is_correct() {
    let page = Page::read("bins/lucid-verifier/README.md").unwrap();
    if !page.can_run() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let programs = program("lucid-verifier").unwrap().parent().unwrap().to_owned();
    let shell = Shell::offline(folder.path()).with_programs(programs);
    let port = free_port(Ipv4Addr::LOCALHOST.into()).unwrap();
    let scripts: Vec<_> = page.blocks().into_iter().filter(|(language, _)| *language == "sh").collect();
    let [(_, written)] = scripts[..] else { panic!("{scripts:?}") };
    let (_, expected) = written.trim_end().rsplit_once("\n# ").unwrap();
    let script = written.replace(":8080", &format!(":{port}"));
    let (success, printed) = shell.run(&format!("{script}\nkill $!\n")).unwrap();
    assert!(success && printed.contains(expected), "{printed}");
    page.ran(written);
}

#[test]
fn the_page_of_the_chart_is_correct() {
    let page = Page::read("charts/lucid/README.md").unwrap();
    let helm = binary("helm").unwrap();
    let folder = TempDir::new().unwrap();
    std::os::unix::fs::symlink(root().join("charts"), folder.path().join("charts")).unwrap();
    let shell = Shell::offline(folder.path()).with_programs(helm.parent().unwrap());
    for (_, text) in page.blocks().into_iter().filter(|(language, _)| *language == "console") {
        for (command, said) in commands(text) {
            let (_, printed) = shell.run(&command).unwrap();
            // Helm leaves a space at the end of a line.
            assert!(printed.lines().map(str::trim_end).eq(said.lines()), "$ {command}prints\n{printed}");
        }
        page.ran(text);
    }
}
