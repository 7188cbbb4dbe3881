use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use lucid_testbed::Cluster;
use serde_json::{Value, json};

use crate::{Error, image, images};

/// The folder of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The namespace of the chart.
const NAMESPACE: &str = "lucid-system";
/// The static program for pods that try things out.
const BUSYBOX: &str = "/bin/busybox";

/// How long kube-proxy may take.
const SERVICES_WITHIN: Duration = Duration::from_secs(60);

/// What the injection auditor of [`two_auditors`] refuses.
pub const INJECTION: &str = "ignore previous instructions";
/// What its toxicity auditor refuses.
pub const TOXICITY: &str = "you fool";

/// Values of the chart for a strict cluster with a catalogue of two auditors, which are notarized.
///
/// # Errors
///
/// When the images cannot be made.
pub fn two_auditors() -> Result<Value, Error> {
    let image = image("example-auditor")?;
    let auditor = |name: &str, port: u16, phrase: &str| json!({"name": name, "image": image.pinned(), "port": port, "env": {"BLOCKED_PHRASES": phrase}});
    Ok(json!({
        "catalogue": {"chain": [
            auditor("lucid-injection-auditor", 8090, INJECTION),
            auditor("lucid-toxicity-auditor", 8093, TOXICITY),
        ]},
        "notary": {"strict": true},
        "verifier": {"enabled": true, "notarized": [image.digest]},
    }))
}

/// A cluster with a node that has the [`images`], for Lucid to be installed on by its chart.
#[derive(Debug)]
pub struct Installation {
    /// The cluster with the node.
    pub cluster: Cluster,
}

impl Installation {
    /// An image of a shell and small tools, for pods that try things out: `/busybox` is its entry point.
    pub const BUSYBOX: &str = "example.com/busybox:1";

    /// Starts the cluster and loads the images. Lucid is not installed yet.
    ///
    /// # Errors
    ///
    /// When there can be no node, or the images cannot be made.
    pub async fn prepare() -> Result<Self, Error> {
        Self::prepare_with_nodes(1).await
    }

    /// As [`Installation::prepare`], with this number of nodes.
    ///
    /// # Errors
    ///
    /// As of [`Installation::prepare`].
    pub async fn prepare_with_nodes(count: u8) -> Result<Self, Error> {
        // Before the cluster: it may take minutes.
        let images = images()?;
        let busybox = lucid_testbed::Image::of_program(Self::BUSYBOX, Path::new(BUSYBOX))
            .map_err(|error| format!("failed to read a static busybox (Debian: busybox-static): {error}"))?;
        // API servers authenticate, as profile=production of the chart demands.
        let cluster = Cluster::builder().nodes(count).webhook_client("kube-apiserver").start().await?;
        cluster.load_image(&busybox).await?;
        for image in images {
            cluster.load_archive(&image.archive).await?;
        }
        Ok(Self { cluster })
    }

    /// `helm upgrade --install` of the chart with these values, until all is ready and every node knows the way to it.
    ///
    /// # Errors
    ///
    /// When helm fails; what it said, and what the pods of Lucid said, is the message. When a Service leads nowhere.
    pub async fn install(&self, values: &Value) -> Result<(), Error> {
        let chart = format!("{ROOT}/charts/lucid");
        let arguments = ["upgrade", "--install", "lucid", &chart, "--create-namespace", "-f", "-"];
        self.helm(&arguments, &values.to_string()).await?;
        self.services_lead_somewhere().await
    }

    /// kube-proxy hears later than Helm that a pod is ready, and refuses connections until then.
    async fn services_lead_somewhere(&self) -> Result<(), Error> {
        let addresses = "jsonpath={range .items[*]}{.spec.clusterIP}/{.spec.ports[0].port}{\"\\n\"}{end}";
        let addresses = self.kubectl(&["get", "services", "-n", NAMESPACE, "-o", addresses])?;
        let nodes = self.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"])?;
        let begin = Instant::now();
        for node in nodes.split_whitespace() {
            for address in addresses.lines().filter(|address| !address.starts_with("None/")) {
                let connect = format!("exec 3<>/dev/tcp/{address}");
                let is_open = || {
                    let mut bash = self.cluster.command_on(node, "bash").ok_or("it is not the cluster's")?;
                    Ok::<_, Error>(bash.args(["-c", &connect]).output()?.status.success())
                };
                while !is_open()? {
                    if begin.elapsed() > SERVICES_WITHIN {
                        return Err(format!("Service {address} leads nowhere on node {node}").into());
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        Ok(())
    }

    /// Runs helm in the namespace of the chart, until what it changes is ready.
    ///
    /// # Errors
    ///
    /// When it fails; what it said, and what the pods of Lucid said, is the message.
    pub async fn helm(&self, arguments: &[&str], input: &str) -> Result<String, Error> {
        let mut all = arguments.to_vec();
        all.extend(["--namespace", NAMESPACE, "--wait", "--timeout", "5m"]);
        let output = self.cluster.helm(&all, input)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let mut message =
            format!("helm {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        for look in [&["get", "pods", "-n", NAMESPACE, "-o", "wide"][..], &["get", "events", "-n", NAMESPACE]]
        {
            message += &self.kubectl_says(look);
        }
        for program in ["lucid-operator", "lucid-validator", "lucid-verifier"] {
            let selector = format!("app.kubernetes.io/name={program}");
            message +=
                &self.kubectl_says(&["logs", "-n", NAMESPACE, "-l", &selector, "--tail=20", "--prefix"]);
        }
        Err(message.into())
    }

    /// What kubectl prints on standard output.
    ///
    /// # Errors
    ///
    /// When it cannot be run, or fails; what it said is the message.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, Error> {
        let Output { status, stdout, stderr } = self.cluster.kubectl(arguments, "")?;
        let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if status.success() {
            return Ok(stdout);
        }
        Err(format!("kubectl {}: {status}: {stdout}{stderr}", arguments.join(" ")).into())
    }

    /// What kubectl says, whether it fails or not: for what may fail, and to tell of a failure.
    #[must_use]
    pub fn kubectl_says(&self, arguments: &[&str]) -> String {
        self.kubectl(arguments).unwrap_or_else(|error| error.to_string())
    }
}
