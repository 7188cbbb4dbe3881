//! Programs run by the tests: kubectl and those of the workspace.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use lucid_e2e::{ClusterExt as _, eventually, program};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

#[track_caller]
pub(crate) fn kubectl(cluster: &Cluster, arguments: &[&str], input: &str) -> String {
    let output = cluster.kubectl(arguments, input).unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Polls until kubectl succeeds and `holds` returns `true` for its output.
pub(crate) async fn kubectl_until(
    cluster: &Cluster,
    arguments: &[&str],
    holds: impl Fn(&str) -> bool,
) -> String {
    eventually(&arguments.join(" "), async || {
        let output = cluster.kubectl(arguments, "").unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && holds(&text) { Ok(text) } else { Err(output) }
    })
    .await
}

#[track_caller]
pub(crate) fn apply(cluster: &Cluster, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    kubectl(cluster, &["apply", "--server-side", "-f", "-"], &list);
}

/// Applies a file of deploy/, except for the binding of the policy that restricts accounts to their own Services: programs
/// outside the cluster register by URL.
#[track_caller]
pub(crate) fn apply_manifest(cluster: &Cluster, name: &str) {
    let text = std::fs::read_to_string(format!("{}/../deploy/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let documents =
        text.split("\n---\n").filter(|it| !it.contains("\nkind: ValidatingAdmissionPolicyBinding\n"));
    let documents = documents.collect::<Vec<_>>().join("\n---\n");
    kubectl(cluster, &["apply", "--server-side", "--filename", "-"], &documents);
}

/// A kubeconfig with the permissions of a user.
pub(crate) fn kubeconfig_for(cluster: &Cluster, user: &str) -> PathBuf {
    let path = cluster.folder().join(format!("{}.kubeconfig", user.replace(':', "-")));
    let group = user.starts_with("system:serviceaccount:").then_some("system:serviceaccounts");
    std::fs::write(&path, cluster.kubeconfig_for(user, group).unwrap()).unwrap();
    path
}

/// A kubeconfig with the permissions of a service account of `lucid-system`.
pub(crate) fn kubeconfig_of(cluster: &Cluster, account: &str) -> PathBuf {
    kubeconfig_for(cluster, &format!("system:serviceaccount:lucid-system:{account}"))
}

/// Grants these rules to a user by a ClusterRole of the same name, in place of earlier ones.
#[track_caller]
pub(crate) fn grant(cluster: &Cluster, user: &str, rules: &Value) {
    let group = "rbac.authorization.k8s.io";
    let object =
        |kind: &str| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": user}});
    let (mut role, mut binding) = (object("ClusterRole"), object("ClusterRoleBinding"));
    role["rules"] = rules.clone();
    binding["roleRef"] = json!({"apiGroup": group, "kind": "ClusterRole", "name": user});
    binding["subjects"] = json!([{"apiGroup": group, "kind": "User", "name": user}]);
    apply(cluster, &[role, binding]);
}

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn printed(self) -> String {
        assert_eq!(self.status, Some(0), "{self:?}");
        self.stdout
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.printed()).unwrap()
    }

    /// Standard output followed by standard error.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

pub(crate) fn run_with(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
    let mut command = lucid_e2e::command(program(name).unwrap());
    command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Ran { status: output.status.code(), stdout, stderr }
}

pub(crate) fn run(name: &str, arguments: &[&str]) -> Ran {
    run_with(name, arguments, &[])
}

/// Runs `lucid` without blocking the other tasks of the test.
pub(crate) async fn lucid_with(arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
    let arguments: Vec<_> = arguments.iter().map(|&it| it.to_owned()).collect();
    let environment: Vec<_> =
        environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let run = move || {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let environment: Vec<_> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
        run_with("lucid", &arguments, &environment)
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

pub(crate) async fn lucid_as(kubeconfig: &Path, arguments: &[&str]) -> Ran {
    lucid_with(arguments, &[("KUBECONFIG", kubeconfig.to_str().unwrap())]).await
}

pub(crate) async fn lucid(cluster: &Cluster, arguments: &[&str]) -> Ran {
    lucid_as(&cluster.kubeconfig_path(), arguments).await
}
