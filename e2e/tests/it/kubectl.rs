//! `kubectl lucid`, run by kubectl.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use lucid_e2e::{
    binary,
    page::{Page, Shell, commands},
    program,
};
use lucid_testbed::Cluster;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{cluster, create, operator, secured, stored, unplanned};

const POD: &str = "apiVersion: v1
kind: Pod
metadata:
  name: web
  labels:
    lucid.io/secured: \"true\"
spec:
  containers:
  - name: model
    image: registry.example/model:1
    ports:
    - containerPort: 5000
";

/// A terminal with kubectl, its plugin, and a separate kubeconfig.
pub(crate) struct Terminal {
    shell: Shell,
    folder: TempDir,
}

impl Terminal {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let kubectl = binary("kubectl").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path().join("programs");
        fs::create_dir(&programs).unwrap();
        for name in ["kubectl-lucid", "kubectl_complete-lucid"] {
            symlink(program("lucid").unwrap(), programs.join(name)).unwrap();
        }
        fs::copy(cluster.kubeconfig_path(), folder.path().join("config")).unwrap();
        fs::write(folder.path().join("pod.yaml"), POD).unwrap();
        let shell = Shell::new(cluster, &kubectl, folder.path()).with_programs(programs);
        Self { shell, folder }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn run(&self, command: &str) -> (bool, String) {
        self.shell.run(&format!("export KUBECONFIG=$HOME/config LUCID_LOG=error\n{command}")).unwrap()
    }

    #[track_caller]
    fn prints(&self, command: &str) -> String {
        let (succeeded, printed) = self.run(command);
        assert!(succeeded, "{command}: {printed}");
        printed
    }

    #[track_caller]
    fn json(&self, command: &str) -> Value {
        let printed = self.prints(command);
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{command}: {error}: {printed}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_works_like_a_command_of_kubectl() {
    let cluster = cluster().await;
    let terminal = Terminal::new(&cluster);
    terminal.prints("kubectl lucid audit key --origin lucid.computing/test/0 --out log.key");
    let path = |name: &str| terminal.folder().join(name).display().to_string();
    let _operator = operator(&cluster, |it| {
        it.env("LUCID_DECISION_LOG", path("log"))
            .env("LUCID_DECISION_LOG_KEY", path("log.key"))
            .flag("--decision-log-origin", "lucid.computing/test/0")
    })
    .await;
    completions(&cluster).await;
    // First: the page leaves a pod without a chain.
    kubectl_finds_the_plugin(&cluster, &terminal).await;
    the_page_of_the_plugin(&cluster).await;
    namespace_context_and_kubeconfig(&cluster).await;
    decisions_are_read_and_verified(&cluster, &terminal).await;
}

async fn kubectl_finds_the_plugin(cluster: &Cluster, terminal: &Terminal) {
    let (_, listed) = terminal.run("kubectl plugin list --name-only");
    assert!(listed.lines().any(|line| line == "kubectl-lucid"), "{listed}");
    let help = terminal.prints("kubectl lucid --help");
    assert!(help.contains("Usage: kubectl lucid"), "{help}");
    let (succeeded, usage) = terminal.run("kubectl lucid explain");
    assert!(!succeeded && usage.contains("Usage: kubectl lucid explain --file <FILE>"), "{usage}");

    let checked = terminal.json("kubectl lucid check -o json");
    assert_eq!(checked["namespace"], "lucid-system");
    assert!(checked["checks"].as_array().unwrap().iter().any(|it| it["check"] == "reachable"), "{checked}");

    let explained = terminal.prints("kubectl lucid explain -f pod.yaml");
    assert!(explained.contains("lucid-guardrails-auditor"), "{explained}");

    // Only the plugin injects in this namespace.
    terminal.prints("kubectl lucid inject -f - < pod.yaml | kubectl apply -n other -f -");
    let web = stored(cluster, "other", "web").await;
    assert_eq!(web.spec.as_ref().unwrap().containers.len(), 3);
    assert_eq!(unplanned(&web), "");
}

async fn namespace_context_and_kubeconfig(cluster: &Cluster) {
    let terminal = Terminal::new(cluster);
    let reason = |command: &str| {
        let explained = terminal.prints(&format!("kubectl lucid explain -f pod.yaml {command}"));
        explained.contains("Lucid never touches pods of namespace kube-system")
    };
    assert!(!reason(""), "a context without a namespace means default");
    terminal.prints("kubectl config set-context --current --namespace=kube-system");
    assert!(reason(""), "the namespace of the context");
    assert!(!reason("-n shop") && !reason("--namespace=shop"), "what is said wins over the context");
    terminal.prints("kubectl config set-context there --namespace=shop --cluster=none --user=none");
    assert!(!reason("--context there"), "the context that is said");
    terminal.prints("cp config config.two && kubectl --kubeconfig config.two config use-context there");
    assert!(!reason("--kubeconfig config.two"), "the kubeconfig that is said");
    assert!(reason("--kubeconfig config"));
    let of_variable = terminal.prints("export KUBECONFIG=config.two; kubectl lucid explain -f pod.yaml");
    assert!(!of_variable.contains("kube-system"), "the kubeconfig of the variable: {of_variable}");

    for (options, said) in [
        ("--context nowhere", "nowhere"),
        ("--kubeconfig no-file", "no-file"),
        // A context whose cluster is not in the file.
        ("--context there", "none"),
    ] {
        let (_, printed) = terminal.run(&format!("kubectl lucid check {options} || echo status=$?"));
        assert!(printed.contains(said) && printed.ends_with("status=2\n"), "{options}: {printed}");
    }
    let (_, printed) = terminal.run("kubectl lucid explain -f pod.yaml --context nowhere || echo status=$?");
    assert!(
        printed.contains("failed to find context \"nowhere\"") && printed.ends_with("status=2\n"),
        "{printed}"
    );
    // Another user without read permissions.
    fs::write(terminal.folder().join("nobody"), cluster.kubeconfig_for("nobody", None).unwrap()).unwrap();
    let (_, printed) = terminal.run("kubectl lucid check --kubeconfig nobody -o json || true");
    assert!(printed.contains("missingPermission"), "{printed}");
    let (_, printed) = terminal.run("kubectl lucid check -o json || true");
    assert!(!printed.contains("missingPermission"), "{printed}");
}

async fn decisions_are_read_and_verified(cluster: &Cluster, terminal: &Terminal) {
    let log = terminal.folder().join("log");
    create(cluster, "shop", &secured("web")).await.stored().unwrap();

    let tail = terminal.prints("kubectl lucid audit tail log -n shop --lines 1");
    assert!(tail.contains("validate CREATE Pod shop/web by"), "{tail}");
    assert_eq!(terminal.prints("kubectl lucid audit tail log -n other"), "");
    let decision = terminal.json("kubectl lucid audit tail log --lines 1 -o json");
    assert_eq!(decision["name"], "web");
    let verified = terminal.prints("kubectl lucid audit verify log");
    assert!(verified.contains("intact"), "{verified}");

    let segment = log.join("segments/00000000000000000000.jsonl");
    let changed = fs::read_to_string(&segment).unwrap().replace("\"web\"", "\"wet\"");
    fs::write(&segment, changed).unwrap();
    let (_, printed) = terminal.run("kubectl lucid audit verify log || echo status=$?");
    assert!(printed.ends_with("status=3\n"), "{printed}");
}

async fn completions(cluster: &Cluster) {
    let terminal = Terminal::new(cluster);
    fs::create_dir(terminal.folder().join("manifests")).unwrap();
    for (words, expected) in [
        (
            "\"\"",
            &[
                "audit\t",
                "auditor\t",
                "certs\t",
                "check\t",
                "evidence\t",
                "explain\t",
                "help\t",
                "image\t",
                "inject\t",
                "keeper\t",
                "manifests\t",
                "review\t",
                "uninject\t",
                "uninstall\t",
                "validate\t",
                ":4",
            ][..],
        ),
        ("ex", &["explain\t", ":4"]),
        ("check -o \"\"", &["json", "table", ":4"]),
        ("check --output j", &["json", ":4"]),
        ("explain --cont", &["--context\t", ":4"]),
        ("explain -f po", &["pod.yaml", ":4"]),
        ("inject -f mani", &["manifests/", ":6"]),
        ("audit v", &["verify\t", ":4"]),
        ("nothing-like-it", &[":4"]),
    ] {
        let printed = terminal.prints(&format!("kubectl __complete lucid {words} 2>/dev/null"));
        let mut printed: Vec<_> = printed.lines().collect();
        printed.sort_by_key(|line| line.starts_with(':'));
        let mut expected = expected.to_vec();
        expected.sort_unstable_by_key(|line| (line.starts_with(':'), *line));
        let (flags, mut words_of) = printed.split_last().map(|(last, rest)| (*last, rest.to_vec())).unwrap();
        words_of.sort_unstable();
        words_of.push(flags);
        assert_eq!(words_of.len(), expected.len(), "{words}: {words_of:?}");
        for (word, expected) in words_of.iter().zip(expected) {
            assert!(word.starts_with(expected), "{words}: {word} for {expected}");
        }
    }
}

async fn the_page_of_the_plugin(cluster: &Cluster) {
    let terminal = Terminal::new(cluster);
    let page = Page::read("docs/kubectl.md").unwrap();
    let mut ran = 0;
    for (language, block) in page.blocks() {
        match language {
            "yaml" => fs::write(terminal.folder().join("pod.yaml"), block).unwrap(),
            "console" => {
                for (command, printed) in commands(block) {
                    assert_eq!(terminal.prints(&command), printed, "{command}");
                    ran += 1;
                }
                page.ran(block);
            }
            _ => {}
        }
    }
    assert_eq!(ran, 3);
}
