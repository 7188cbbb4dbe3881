//! Replicas that keep the trust bundles of some objects, on a real API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use lucid_certs::Timing;
use lucid_e2e::{ClusterExt as _, Error};
use lucid_testbed::Cluster;
use tokio::time::timeout;

use super::eventually;
use super::replica::{End, Endpoints, Replica};
use super::subject::{Kind, Subject};

pub(super) struct Scene {
    pub(super) client: Client,
    pub(super) subjects: Arc<[Subject]>,
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) replicas: Vec<Replica>,
    timing: Timing,
    started: usize,
    cluster: Cluster,
}

impl Scene {
    /// Starts a cluster with an object of each kind and name, and `replicas` replicas, and waits until all are ready.
    pub(super) async fn start(
        subjects: &[(Kind, String)],
        replicas: usize,
        timing: Timing,
    ) -> Result<Self, Error> {
        let cluster = Cluster::builder().start().await?;
        let client = cluster.client();
        let mut created = Vec::new();
        for (kind, name) in subjects {
            created.push(Subject::create(&client, *kind, name).await?);
        }
        let mut scene = Self {
            client,
            subjects: created.into(),
            endpoints: Arc::new(Endpoints::new(BTreeMap::new())),
            replicas: Vec::new(),
            timing,
            started: 0,
            cluster,
        };
        for _ in 0..replicas.max(1) {
            let replica = scene.start_replica().await?;
            scene.replicas.push(replica);
        }
        eventually("all replicas are ready", async || {
            Ok(scene.replicas.iter().all(Replica::is_ready).then_some(()))
        })
        .await?;
        Ok(scene)
    }

    async fn start_replica(&mut self) -> Result<Replica, Error> {
        let client = self.new_client().await?;
        let targets = self.subjects.iter().map(|subject| subject.target(&client)).collect();
        self.started += 1;
        Replica::start(self.started, client, targets, self.timing, &self.endpoints).await
    }

    /// Restarts a replica: gracefully as a Deployment does, where it leaves when its successor is ready, or by a kill that
    /// does not wait for the successor.
    pub(super) async fn restart(&mut self, place: usize, end: End) -> Result<(), Error> {
        let mut new = self.start_replica().await?;
        if end == End::Orderly {
            let ready = timeout(Duration::from_secs(60), new.ready.wait_for(|ready| *ready)).await;
            drop(ready.map_err(|_| "a replica that was started is not ready within a minute")??);
        }
        std::mem::replace(&mut self.replicas[place], new).end(end).await
    }

    pub(super) async fn end(self) -> Result<(), Error> {
        for replica in self.replicas {
            replica.end(End::Orderly).await?;
        }
        Ok(())
    }

    /// Creates a client with its own connections, as each replica has one.
    pub(super) async fn new_client(&self) -> Result<Client, Error> {
        let kubeconfig = Kubeconfig::from_yaml(&self.cluster.kubeconfig())?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.proxy_url = None;
        Ok(Client::try_from(config)?)
    }
}
