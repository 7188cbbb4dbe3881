//! Pods created while something else happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use lucid_e2e::{Answer, create_pod};
use lucid_testbed::Cluster;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::common::{GUARDRAILS, chain, expected, secured};

/// Minimum number of pods for a meaningful result.
const FEWEST_PODS: usize = 20;

/// Pods created one after another in `shop`, each of which must be admitted.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    pods: JoinHandle<(usize, Vec<String>)>,
}

impl Traffic {
    /// Starts to create pods, and has each one checked as stored.
    pub(crate) fn start(
        cluster: &Cluster,
        manifest: fn(&str) -> Value,
        check: fn(&Pod) -> Result<(), String>,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (client, stopped) = (cluster.client(), Arc::clone(&stop));
        let pods = tokio::spawn(async move {
            let mut failures = Vec::new();
            let mut count = 0;
            // On a busy machine a pod may take seconds.
            while count < FEWEST_PODS || !stopped.load(Ordering::Relaxed) {
                count += 1;
                let response = create_pod(&client, "shop", &manifest(&format!("traffic-{count}"))).await;
                let stored = response.and_then(Answer::stored).map_err(|error| error.to_string());
                if let Err(fault) = stored.and_then(|pod| check(&pod)) {
                    failures.push(format!("pod {count}: {fault}"));
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            (count, failures)
        });
        Self { stop, pods }
    }

    /// Starts to create secured pods, each of which must get the default chain.
    pub(crate) fn of_secured_pods(cluster: &Cluster) -> Self {
        let check = |pod: &Pod| {
            let chain = chain(pod);
            if chain == expected(GUARDRAILS) { Ok(()) } else { Err(format!("{chain:?}")) }
        };
        Self::start(cluster, secured, check)
    }

    /// Stops after the minimum number of pods; panics if a pod was denied.
    pub(crate) async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (count, failures) = self.pods.await.unwrap();
        assert!(failures.is_empty(), "{} of {count} pods failed; the first: {}", failures.len(), failures[0]);
    }
}
