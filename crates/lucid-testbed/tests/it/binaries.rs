//! Location of the programs, in processes with a separate environment.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use lucid_e2e::eventually;
use lucid_testbed::{Cluster, binary};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{processes_of, script, test_in_a_process};

#[tokio::test]
#[ignore = "run by the other tests, in a process"]
async fn ensure() {
    match binary("etcd").await {
        Ok(program) => eprintln!("ready in {}", program.parent().unwrap().display()),
        Err(error) => eprintln!("{error:?}"),
    }
}

#[tokio::test]
#[ignore = "run by the other tests, in a process"]
async fn ensure_for_a_moment() {
    tokio::time::timeout(Duration::from_millis(500), binary("etcd")).await.unwrap_err();
    let cache = std::env::var_os("LUCID_TESTBED_CACHE").unwrap();
    let left = fs::read_dir(only_entry(cache.as_ref())).unwrap().map(|entry| entry.unwrap().file_name());
    eprintln!("left {:?}", left.collect::<Vec<_>>());
}

#[tokio::test]
#[ignore = "run by the other tests, in a process"]
async fn start() {
    Cluster::builder().start().await.unwrap();
}

#[test]
#[ignore = "run by the other tests, in a process"]
fn check() {
    eprintln!("{:?}", Cluster::builder().check());
}

fn text(output: Output) -> String {
    String::from_utf8(output.stderr).unwrap()
}

fn with_assets(test: &str, assets: &Path) -> Command {
    let mut command = test_in_a_process(test);
    command.env("KUBEBUILDER_ASSETS", assets);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Takes a second for a build and records the built program.
const BUILDS: &str = r#"
    while [ "$1" != -o ]; do shift; done
    printf half > "$2"; sleep 1; printf whole > "$2"
    echo "$3" >> "$(dirname "$0")/built""#;

/// Builds until it is killed, with a child process, like Go's compilers.
const BUILDS_FOREVER: &str = r#"
    while [ "$1" != -o ]; do shift; done
    printf half > "$2"; tail -f "$2" & wait"#;

fn only_entry(folder: &Path) -> PathBuf {
    let mut entries = fs::read_dir(folder).unwrap();
    let path = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none());
    path
}

/// A cache for programs, and a folder with a `go`.
struct Toolchain {
    cache: TempDir,
    path: TempDir,
}

impl Toolchain {
    fn new(version: &str, build: &str) -> Self {
        let toolchain = Self { cache: TempDir::new().unwrap(), path: TempDir::new().unwrap() };
        toolchain.set_go(version, build);
        toolchain
    }

    fn set_go(&self, version: &str, build: &str) {
        let answer = format!("echo go: downloading; echo {version}; echo hostos; echo hostarch");
        script(self.path.path(), "go", &format!("if [ \"$1\" = env ]; then {answer}; exit; fi\n{build}"));
    }

    fn command(&self, test: &str) -> Command {
        let mut command = test_in_a_process(test);
        command.env_remove("KUBEBUILDER_ASSETS").env_remove("LUCID_TESTBED_KUBERNETES");
        command.env("LUCID_TESTBED_CACHE", self.cache.path());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path.path().display()));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn output(&self, test: &str) -> String {
        text(self.command(test).output().unwrap())
    }

    /// Starts a build, and waits until it has begun.
    async fn start(&self) -> Child {
        let child = self.command("binaries::ensure").spawn().unwrap();
        eventually("a build", async || self.is_building()).await;
        child
    }

    fn programs(&self) -> PathBuf {
        only_entry(self.cache.path())
    }

    /// Returns `true` if a folder of a running build exists.
    fn is_building(&self) -> bool {
        // The folders appear one after the other.
        let folders =
            |path: PathBuf| fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
        folders(self.cache.path().to_owned()).flat_map(folders).any(|build| build.join("etcd").exists())
    }

    /// Ends the compilers of a killed build: those of a real Go end by themselves.
    fn end_all(&self) {
        for (pid, _) in processes_of(self.cache.path()) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

#[test]
fn a_missing_an_old_and_a_failing_go_are_named() {
    let toolchain = Toolchain::new("go1.19.8", BUILDS);
    let go_mod = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/components/go.mod")).unwrap();
    let version = go_mod.lines().find_map(|line| line.strip_prefix("go ")).unwrap();
    for test in ["binaries::check", "binaries::ensure"] {
        let mut command = toolchain.command(test);
        command.env("PATH", toolchain.cache.path());
        let error = text(command.output().unwrap());
        assert!(error.contains(&format!("Go {version} or newer")), "{error}");
        assert!(error.contains("KUBEBUILDER_ASSETS"), "{error}");
    }

    let error = toolchain.output("binaries::ensure");
    assert!(error.contains("its version is go1.19.8"), "{error}");
    assert!(!toolchain.programs().join("etcd").exists());

    toolchain.set_go("go1.99.0", "echo no such module >&2; exit 1");
    let error = toolchain.output("binaries::ensure");
    assert!(error.contains("failed to build etcd") && error.contains("no such module"), "{error}");
}

#[test]
fn concurrent_builds_wait_for_each_other() {
    let toolchain = Toolchain::new("go1.99.0", BUILDS);
    let children = [(); 2].map(|()| toolchain.command("binaries::ensure").spawn().unwrap());
    let outputs = children.map(|child| text(child.wait_with_output().unwrap()));

    let count = |what: &str| outputs.iter().filter(|output| output.contains(what)).count();
    assert_eq!(count("building etcd (1 of 1), 0 s"), 1, "{outputs:?}");
    assert_eq!(count("building etcd from source, once, which takes some five minutes"), 1, "{outputs:?}");
    assert_eq!(count("waiting for another build"), 1, "{outputs:?}");
    assert_eq!(count("ready in"), 2, "{outputs:?}");
    let built = fs::read_to_string(toolchain.path.path().join("built")).unwrap();
    assert_eq!(built, "go.etcd.io/etcd/server/v3\n");
    assert_eq!(fs::read_to_string(toolchain.programs().join("etcd")).unwrap(), "whole");
}

#[tokio::test]
async fn a_killed_build_is_repeated() {
    let toolchain = Toolchain::new("go1.99.0", BUILDS_FOREVER);
    let go_runs = || processes_of(toolchain.cache.path()).iter().any(|(_, line)| line.contains("/go build"));
    // Not SIGINT: background jobs of a shell and their children ignore it.
    for signal in [Signal::TERM, Signal::KILL] {
        fs::read_dir(toolchain.cache.path())
            .unwrap()
            .for_each(|it| fs::remove_dir_all(it.unwrap().path()).unwrap());
        let mut child = toolchain.start().await;
        assert!(go_runs());
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
        eventually("Go ends", async || !go_runs()).await;
        assert!(!toolchain.programs().join("etcd").exists());
        // The kernel has ended Go itself.
        toolchain.end_all();
    }

    toolchain.set_go("go1.99.0", BUILDS);
    let output = toolchain.output("binaries::ensure");
    assert!(output.contains("ready in"), "{output}");
    assert_eq!(fs::read_to_string(toolchain.programs().join("etcd")).unwrap(), "whole");
    assert!(!toolchain.is_building());
}

#[test]
fn a_cancelled_build_ends_with_its_tools_and_leaves_nothing() {
    let toolchain = Toolchain::new("go1.99.0", BUILDS_FOREVER);
    let output = toolchain.output("binaries::ensure_for_a_moment");
    assert!(output.contains("building etcd (1 of 1), 0 s"), "{output}");
    assert!(output.contains("left [\".lock\"]"), "{output}");
    assert_eq!(processes_of(toolchain.cache.path()), []);
}

#[tokio::test]
async fn waiting_for_another_build_can_be_cancelled() {
    let toolchain = Toolchain::new("go1.99.0", BUILDS_FOREVER);
    let mut building = toolchain.start().await;
    let output = toolchain.output("binaries::ensure_for_a_moment");
    assert!(output.contains("waiting for another build"), "{output}");
    assert!(toolchain.is_building(), "the other one goes on");
    building.kill().unwrap();
    building.wait().unwrap();
    toolchain.end_all();
}

#[test]
fn a_build_ignores_go_settings_for_other_platforms_and_modules() {
    let toolchain = Toolchain::new("go1.99.0", "env | grep -E '^(GO|HTTP)'; exit 1");
    let mut command = toolchain.command("binaries::ensure");
    command.envs([("GOOS", "plan9"), ("GOARCH", "mips"), ("GOEXPERIMENT", "none"), ("GOAMD64", "v4")]);
    command.envs([("GOFLAGS", "-mod=vendor"), ("GOWORK", "/elsewhere/go.work"), ("GO111MODULE", "off")]);
    command.envs([("GOPROXY", "https://go.example.com"), ("HTTPS_PROXY", "http://proxy.example.com:3128")]);
    let output = text(command.output().unwrap());
    for line in [
        "GOOS=hostos",
        "GOARCH=hostarch",
        "GOFLAGS=-mod=readonly",
        "GOWORK=off",
        "GO111MODULE=on",
        "GOPROXY=https://go.example.com",
        "HTTPS_PROXY=http://proxy.example.com:3128",
    ] {
        assert!(output.lines().any(|found| found == line), "{line}: {output}");
    }
    assert!(!output.contains("GOEXPERIMENT=") && !output.contains("GOAMD64="), "{output}");
}

#[test]
fn another_version_is_built_from_the_requirements_of_its_release() {
    let release = TempDir::new().unwrap();
    let go_mod = "module k8s.io/kubernetes\n\nreplace k8s.io/api => ./staging/src/k8s.io/api\n";
    fs::write(release.path().join("go.mod"), go_mod).unwrap();
    fs::write(release.path().join("go.sum"), "example.com/other v1.0.0 h1:abc=\n").unwrap();
    let download =
        format!("if [ \"$1\" = mod ]; then echo '{{\"Dir\": \"{}\"}}'; exit; fi\n", release.path().display());
    let build = "echo $GOFLAGS $*; cat go.mod go.sum; [ -n \"${*##*kube-apiserver}\" ]";
    let toolchain = Toolchain::new("go1.99.0", &format!("{download}{build} && {{ {BUILDS}\n}}"));
    let mut command = toolchain.command("binaries::start");
    let output = text(command.env("LUCID_TESTBED_KUBERNETES", "1.30").output().unwrap());
    for part in [
        "-mod=mod build",
        "version.gitVersion=v1.30.",
        "version.gitMinor=30 ",
        "\nrequire k8s.io/kubernetes v1.30.",
        "\nreplace k8s.io/api => k8s.io/api v0.30.",
        "\nk8s.io/kubernetes v1.30.",
        "\nexample.com/other v1.0.0 h1:abc=\n",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    // etcd does not depend on the version.
    let built = fs::read_to_string(toolchain.path.path().join("built")).unwrap();
    assert_eq!(built, "go.etcd.io/etcd/server/v3\n");

    let mut command = toolchain.command("binaries::start");
    let error = text(command.env("LUCID_TESTBED_KUBERNETES", "1.29").output().unwrap());
    assert!(error.contains("expected one of 1.30, 1.31") && error.contains("found \"1.29\""), "{error}");
}

#[test]
fn local_assets_are_used_and_missing_ones_are_named() {
    let assets = TempDir::new().unwrap();
    let error = text(with_assets("binaries::ensure", assets.path()).output().unwrap());
    let folder = assets.path().display();
    assert!(error.contains(&format!("failed to find etcd in {folder}")), "{error}");
    assert!(error.contains("KUBEBUILDER_ASSETS"), "{error}");

    script(assets.path(), "etcd", "");
    let output = text(with_assets("binaries::ensure", assets.path()).output().unwrap());
    assert!(output.contains(&format!("ready in {folder}")), "{output}");
}

#[test]
fn components_that_exit_early_are_reported_with_their_log() {
    let assets = TempDir::new().unwrap();
    script(assets.path(), "etcd", "exec sleep 60");
    script(assets.path(), "kube-apiserver", "echo last words; exit 7");
    let error = text(with_assets("binaries::start", assets.path()).output().unwrap());
    assert!(error.contains("kube-apiserver running: it ended (exit status: 7)"), "{error}");
    assert!(error.contains("\nlast words"), "{error}");
    let (_, folder) = error.split_once("the logs stay in ").unwrap();
    let folder = Path::new(folder.lines().next().unwrap());
    assert_eq!(fs::read_to_string(folder.join("kube-apiserver.log")).unwrap(), "last words\n");
    assert!(processes_of(folder.parent().unwrap()).is_empty());
    fs::remove_dir_all(folder.parent().unwrap()).unwrap();
}

#[test]
fn the_control_plane_and_its_client_see_no_proxy() {
    let assets = TempDir::new().unwrap();
    script(assets.path(), "etcd", "exec sleep 60");
    script(assets.path(), "kube-apiserver", "env | grep -i _proxy=; echo no more; exit 7");
    let mut command = with_assets("binaries::start", assets.path());
    for variable in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env(variable, "not a URL");
    }
    let error = text(command.env("TMPDIR", assets.path()).output().unwrap());
    assert!(error.contains(".log:\nno more"), "{error}");
}

#[tokio::test]
async fn folders_of_killed_processes_are_removed_at_the_next_start() {
    let (assets, parent) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    script(assets.path(), "etcd", "exec sleep 60");
    script(assets.path(), "kube-apiserver", "exec sleep 60");
    let start = |keep: &str| {
        let mut command = with_assets("binaries::start", assets.path());
        command.env("TMPDIR", parent.path()).env("LUCID_TESTBED_KEEP", keep).spawn().unwrap()
    };
    let folders = || fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().path());
    let runs = |folder: &Path| folder.join("logs/kube-apiserver.log").exists();
    for (keep, stays) in [("", false), ("0", false), ("1", true)] {
        let mut first = start(keep);
        let folder = eventually("the first", async || folders().find(|folder| runs(folder))).await;
        let mut second = start("");
        eventually("the second", async || folders().filter(|folder| runs(folder)).count() == 2).await;
        first.kill().unwrap();
        first.wait().unwrap();
        let mut third = start("");
        let others = || folders().filter(|other| *other != folder && runs(other));
        eventually("the third", async || others().count() == 2).await;
        assert_eq!(folder.exists(), stays, "LUCID_TESTBED_KEEP={keep}");
        for process in [&mut second, &mut third] {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        folders().for_each(|folder| fs::remove_dir_all(folder).unwrap());
    }
}
