//! Where the programs come from, seen by processes with an environment of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use lucid_testbed::{Binaries, Cluster, Component};
use tempfile::TempDir;

mod common;
use common::test_in_a_process;

#[test]
#[ignore = "run by the other tests, in a process"]
fn ensure() {
    let binaries = Binaries::from_env().unwrap();
    match binaries.ensure(&[Component::Etcd, Component::ApiServer]) {
        Ok(()) => eprintln!("ready in {}", binaries.folder().display()),
        Err(error) => eprintln!("{}", snafu::Report::from_error(error)),
    }
}

#[tokio::test]
#[ignore = "run by the other tests, in a process"]
async fn start() {
    Cluster::builder().start().await.unwrap();
}

/// Builds into `cache`; only the folder `path` is searched for programs, and the system's.
fn in_cache(test: &str, cache: &Path, path: &Path) -> Command {
    let mut command = test_in_a_process(test);
    command.env_remove("KUBEBUILDER_ASSETS").env("XDG_CACHE_HOME", cache);
    command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn with_assets(test: &str, assets: &Path) -> Command {
    let mut command = test_in_a_process(test);
    command.env("KUBEBUILDER_ASSETS", assets);
    command
}

fn text(output: Output) -> String {
    String::from_utf8(output.stderr).unwrap()
}

fn script(folder: &Path, name: &str, body: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A `go` that says its version, takes a second for a build and writes down what it built.
fn fake_go(folder: &Path, version: &str) {
    script(
        folder,
        "go",
        &format!(
            r#"
if [ "$1" = env ]; then echo {version}; exit; fi
while [ "$1" != -o ]; do shift; done
printf half > "$2"; sleep 1; printf whole > "$2"
echo "$3" >> {}/built"#,
            folder.display()
        ),
    );
}

/// The one folder in the cache.
fn programs(cache: &Path) -> std::path::PathBuf {
    let mut keys = fs::read_dir(cache.join("lucid/testbed")).unwrap();
    let folder = keys.next().unwrap().unwrap().path();
    assert!(keys.next().is_none());
    folder
}

#[test]
fn without_go_the_error_says_which_version_and_the_alternative() {
    let (cache, path) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut command = in_cache("ensure", cache.path(), path.path());
    command.env("PATH", path.path());
    let error = text(command.output().unwrap());
    let go_mod = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/components/go.mod")).unwrap();
    let version = go_mod.lines().find_map(|line| line.strip_prefix("go ")).unwrap();
    assert!(error.contains(&format!("Go {version} or newer")), "{error}");
    assert!(error.contains("KUBEBUILDER_ASSETS"), "{error}");
}

#[test]
fn a_go_that_is_too_old_is_named() {
    let (cache, path) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fake_go(path.path(), "go1.19.8");
    let error = text(in_cache("ensure", cache.path(), path.path()).output().unwrap());
    assert!(error.contains("its version is go1.19.8"), "{error}");
    assert!(!programs(cache.path()).join("etcd").exists());
}

#[test]
fn of_two_builds_at_once_one_builds_and_one_waits() {
    let (cache, path) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fake_go(path.path(), "go1.99.0");
    let children = [(); 2].map(|()| in_cache("ensure", cache.path(), path.path()).spawn().unwrap());
    let outputs = children.map(|child| text(child.wait_with_output().unwrap()));

    let count = |what: &str| outputs.iter().filter(|output| output.contains(what)).count();
    assert_eq!(count("building kube-apiserver (2 of 2), 0 s"), 1, "{outputs:?}");
    assert_eq!(count("waiting for another build"), 1, "{outputs:?}");
    assert_eq!(count("ready in"), 2, "{outputs:?}");
    let built = fs::read_to_string(path.path().join("built")).unwrap();
    assert_eq!(built, "go.etcd.io/etcd/server/v3\nk8s.io/kubernetes/cmd/kube-apiserver\n");
    assert_eq!(fs::read_to_string(programs(cache.path()).join("etcd")).unwrap(), "whole");
}

#[test]
fn a_killed_build_leaves_no_program_and_the_next_one_makes_it() {
    let (cache, path) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fake_go(path.path(), "go1.99.0");
    let mut child = in_cache("ensure", cache.path(), path.path()).spawn().unwrap();
    common::eventually(|| cache.path().join("lucid").exists(), |made| *made);
    common::eventually(|| staged(cache.path()), |staged| *staged);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!programs(cache.path()).join("etcd").exists());

    let output = text(in_cache("ensure", cache.path(), path.path()).output().unwrap());
    assert!(output.contains("ready in"), "{output}");
    assert_eq!(fs::read_to_string(programs(cache.path()).join("etcd")).unwrap(), "whole");
    assert!(!staged(cache.path()));
}

/// Whether there is a folder of a build under way.
fn staged(cache: &Path) -> bool {
    fs::read_dir(programs(cache)).unwrap().any(|entry| entry.unwrap().path().join("etcd").exists())
}

#[test]
fn a_failed_build_quotes_go() {
    let (cache, path) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    script(path.path(), "go", "[ $1 = env ] && echo go1.99.0 && exit; echo no such module >&2; exit 1");
    let error = text(in_cache("ensure", cache.path(), path.path()).output().unwrap());
    assert!(error.contains("failed to build etcd") && error.contains("no such module"), "{error}");
}

#[test]
fn a_missing_asset_is_named_with_its_folder_and_the_variable() {
    let assets = TempDir::new().unwrap();
    script(assets.path(), "etcd", "");
    let error = text(with_assets("ensure", assets.path()).output().unwrap());
    let folder = assets.path().display();
    assert!(error.contains(&format!("failed to find kube-apiserver in {folder}")), "{error}");
    assert!(error.contains("KUBEBUILDER_ASSETS"), "{error}");
}

#[test]
fn assets_are_used_where_they_are() {
    let assets = TempDir::new().unwrap();
    for name in ["etcd", "kube-apiserver"] {
        script(assets.path(), name, "");
    }
    let output = text(with_assets("ensure", assets.path()).output().unwrap());
    assert!(output.contains(&format!("ready in {}", assets.path().display())), "{output}");
}

#[test]
fn a_component_that_ends_early_is_named_with_its_last_words_and_its_log() {
    let assets = TempDir::new().unwrap();
    script(assets.path(), "etcd", "exec sleep 60");
    script(assets.path(), "kube-apiserver", "echo last words; exit 7");
    let error = text(with_assets("start", assets.path()).output().unwrap());
    assert!(error.contains("kube-apiserver running: it ended (exit status: 7)"), "{error}");
    assert!(error.contains("\nlast words"), "{error}");
    let (_, folder) = error.split_once("the logs stay in ").unwrap();
    let folder = Path::new(folder.lines().next().unwrap());
    assert_eq!(fs::read_to_string(folder.join("kube-apiserver.log")).unwrap(), "last words\n");
    assert!(common::processes_of(folder.parent().unwrap()).is_empty());
    fs::remove_dir_all(folder.parent().unwrap()).unwrap();
}
