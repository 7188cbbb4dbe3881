//! A replica of the operator with its own disk, log and link to the API server.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lucid_e2e::{ClusterExt as _, Error, Operator, command};
use lucid_testbed::Cluster;
use rustix::process::Signal;

use super::super::call::address;
use super::disk::Disk;
use super::relay::{Endpoint, Link};
use crate::command::output;
use crate::process;

pub(super) const NAMES: [&str; 3] = ["lucid-operator-1", "lucid-operator-2", "lucid-operator-3"];

pub(super) struct Replica {
    pub(super) operator: Operator,
    pub(super) disk: Disk,
    pub(super) link: Link,
    /// File with the key that verifies the log.
    vkey: PathBuf,
}

impl Replica {
    /// Starts the replica, with its webhooks registered by `url`, and waits until it is ready.
    pub(super) async fn start(
        cluster: &Cluster,
        number: usize,
        program: &Path,
        cli: &Path,
        url: &str,
    ) -> Result<Self, Error> {
        let name = *NAMES.get(number).ok_or("there is no such replica")?;
        let folder = cluster.folder().join(name);
        let disk = Disk::create(folder.clone())?;
        let (key, vkey) = (folder.join("decisions.key"), folder.join("decisions.vkey"));
        let origin = format!("lucid.computing/soak/{name}");
        let path = key.display().to_string();
        fs::write(&vkey, output(command(cli).args(["audit", "key", "--origin", &origin, "--out", &path]))?)?;

        let server = address(&cluster.server())?;
        let link = Link::start(cluster.host_address(), server).await?;
        let (before, after) = (
            format!("server: {}", cluster.server()),
            format!("server: https://{}\n    tls-server-name: {}", link.address, server.ip()),
        );
        let kubeconfig = folder.join("kubeconfig");
        fs::write(&kubeconfig, cluster.kubeconfig().replace(&before, &after))?;

        let mut builder = Operator::builder(cluster).authenticated().named(name).kubeconfig(kubeconfig);
        for (variable, value) in [
            ("LUCID_ADMISSION_MODE", "enforce"),
            ("LUCID_CHAIN", "alpha,beta"),
            ("LUCID_DECISION_LOG", &disk.log().display().to_string()),
            ("LUCID_DECISION_LOG_KEY", &path),
            ("LUCID_DECISION_LOG_ON_FAILURE", "deny"),
            ("LUCID_WEBHOOK_URL", url),
        ] {
            builder = builder.env(variable, value);
        }
        builder = builder.flag("--decision-log-origin", &origin).flag("--lame-duck-seconds", "10");
        let operator = builder.command([program]).start().await?;
        Ok(Self { operator, disk, link, vkey })
    }

    pub(super) fn endpoint(&self) -> Result<Endpoint, Error> {
        Ok(Endpoint::new(address(&self.operator.url())?, self.operator.admin_url("/readyz")))
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Error> {
        process::signal(self.operator.pid().ok_or("the replica does not run")?, signal)
    }

    /// Waits until the process has ended, and starts the next one.
    pub(super) async fn succeed(&mut self, patience: Duration) -> Result<(), Error> {
        let ended = super::until(patience, || self.operator.has_ended()).await;
        ended.ok_or("the replica does not end")?;
        self.operator.respawn()
    }

    /// Returns the output of `audit verify` unless the log is intact.
    pub(super) fn verify(&self, cli: &Path) -> Option<String> {
        let (log, key) = (self.disk.log().display().to_string(), self.vkey.display().to_string());
        output(command(cli).args(["audit", "verify", &log, "--key", &key]))
            .err()
            .map(|error| error.to_string())
    }
}
