//! Settings of Go. `cargo xtask` includes this file: it compiles with Go before the test bed itself is compiled.

use std::{
    env,
    path::{self, Path, PathBuf},
    process::Command,
};

pub(crate) const ASSETS: &str = "KUBEBUILDER_ASSETS";
pub(crate) const CACHE: &str = "LUCID_TESTBED_CACHE";

pub(crate) const ETCD: &str = "go.etcd.io/etcd/server/v3";
pub(crate) const API_SERVER: &str = "k8s.io/kubernetes/cmd/kube-apiserver";

/// Debug information is stripped anyway (-s -w); not generating it saves a fifth of the time.
pub(crate) const FLAGS: [&str; 2] = ["-trimpath", "-gcflags=all=-dwarf=false"];

/// Variables that users may have set for their own work. Settings of the module proxy and the caches are kept.
const UNSET: [&str; 8] =
    ["GOEXPERIMENT", "GOFIPS140", "GO386", "GOAMD64", "GOARM", "GOARM64", "GOPPC64", "GORISCV64"];

/// Sets the environment in which Go compiles the module in `folder`.
pub(crate) fn prepare(go: &mut Command, folder: impl AsRef<Path>) {
    go.current_dir(folder).env("GOWORK", "off").env("GO111MODULE", "on").env("GOFLAGS", "-mod=readonly");
    go.env("CGO_ENABLED", "0");
    for variable in UNSET {
        go.env_remove(variable);
    }
}

/// Returns the folder of built programs: `LUCID_TESTBED_CACHE`, else a folder in `XDG_CACHE_HOME`, else in `~/.cache`.
pub(crate) fn cache() -> Option<PathBuf> {
    if let Some(folder) = env::var_os(CACHE).filter(|folder| !folder.is_empty()) {
        return path::absolute(folder).ok();
    }
    // A relative XDG_CACHE_HOME is invalid and ignored (XDG Base Directory Specification).
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    Some(cache.or_else(|| Some(env::home_dir()?.join(".cache")))?.join("lucid/testbed"))
}
