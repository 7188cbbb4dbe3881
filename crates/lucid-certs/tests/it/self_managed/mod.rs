//! Replicas with a self-managed CA on a real API server.

mod replica;
mod secret;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use futures::{
    future::{BoxFuture, join_all},
    stream::BoxStream,
};
use k8s_openapi::ByteString;
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams},
};
use lucid_certs::{
    CaStatus, CertificateAuthority, RotationRequest, TrustBundle,
    target::{ObjectTarget, Reading, TargetError, TrustTarget},
};
use lucid_e2e::eventually;
use lucid_testbed::Cluster;
use serde_json::json;

use self::replica::{
    CalledReplicas, Caller, NAMESPACE, Replica, another_signer, configurations, published, register, secrets,
    signer, source, target,
};
use crate::common::names;

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_one_ca() {
    let cluster = Cluster::builder().start().await.unwrap();
    let client = cluster.client();
    tokio::join!(
        replicas_that_start_together_share_one_ca(&client),
        an_ordinary_rotation_fails_no_call(&client),
        an_urgent_rotation_ends_trust_in_all_former_cas(&client),
        deleting_the_secret_rotates_without_failed_calls(&client),
        a_replica_that_starts_during_a_rotation_fails_no_call(&client),
        a_foreign_ca_is_adopted_without_failed_calls(&client),
        drift_of_the_bundle_is_reverted(&client),
        an_unreadable_target_does_not_end_readiness(&client),
        shutdown_stops_all_writes(&client),
        replicas_can_share_one_certificate(&client),
        secret::changes_of_the_secret(&client),
    );
}

async fn replicas_that_start_together_share_one_ca(client: &Client) {
    register(client, "bootstrap").await;
    let mut replicas = [0; 3].map(|_| Replica::begin(client, "bootstrap"));
    join_all(replicas.iter_mut().map(Replica::readiness)).await;
    let authority = signer(client, "bootstrap").await.unwrap();
    assert_eq!(authority.certificates().count(), 1);
    assert_eq!(published(client, "bootstrap").await.as_ref(), Some(&authority));
    for replica in replicas {
        assert!(replica.accepts(&authority));
        replica.stop().await;
    }

    let restarted = Replica::start(client, "bootstrap").await;
    assert!(restarted.accepts(&authority), "a restart keeps it");
    restarted.stop().await;
}

async fn an_ordinary_rotation_fails_no_call(client: &Client) {
    let name = "ordinary";
    let pair = CalledReplicas::start(client, name).await;
    let requested = RotationRequest::Ordinary.send(client.clone(), NAMESPACE, name).await.unwrap();
    assert_eq!(json!(requested)["rotationRequested"], true);

    let new = pair.rotated(client, name).await;
    assert_eq!(published(client, name).await, Some(new.merge(&pair.old)));
    pair.stop().await;
    let status = CaStatus::read(client.clone(), NAMESPACE, name).await.unwrap();
    assert!(json!(status)["rotationRequested"] == false && status.next().is_none(), "{status:?}");
    assert_eq!(status.previous().count(), 1);
    let retire_at: SystemTime =
        status.previous().next().unwrap().1.parse::<jiff::Timestamp>().unwrap().into();
    assert!(retire_at > SystemTime::now() + Duration::from_secs(60), "beyond the last certificate of it");
}

async fn an_urgent_rotation_ends_trust_in_all_former_cas(client: &Client) {
    let name = "urgent";
    let pair = CalledReplicas::start(client, name).await;
    RotationRequest::Ordinary.send(client.clone(), NAMESPACE, name).await.unwrap();
    let second = another_signer(client, name, &pair.old).await;
    RotationRequest::Urgent.send(client.clone(), NAMESPACE, name).await.unwrap();
    let third = another_signer(client, name, &second).await;
    eventually("trust in it alone", async || published(client, name).await.as_ref() == Some(&third)).await;
    assert!(pair.replicas.iter().all(|replica| replica.accepts(&third)));
    let status = CaStatus::read(client.clone(), NAMESPACE, name).await.unwrap();
    let retired = pair.old.validities().chain(second.validities());
    let retired: Vec<_> = retired.map(|(fingerprint, _)| json!(fingerprint)).collect();
    let json = json!(status);
    let revoked = json["retired"].as_array().unwrap();
    assert!(retired.iter().all(|it| revoked.contains(it)), "{status:?}");
    pair.stop().await;
}

async fn deleting_the_secret_rotates_without_failed_calls(client: &Client) {
    let name = "deleted";
    let pair = CalledReplicas::start(client, name).await;
    secrets(client).delete(name, &DeleteParams::default()).await.unwrap();
    let restored = eventually("the Secret", async || signer(client, name).await).await;
    pair.rotated(client, name).await;
    assert_eq!(restored, pair.old, "the present authority signs until the next one is trusted");
    pair.stop().await;
}

async fn a_replica_that_starts_during_a_rotation_fails_no_call(client: &Client) {
    for (name, pause) in [("amid-0", 0), ("amid-300", 300), ("amid-1500", 1_500)] {
        register(client, name).await;
        let first = Replica::start(client, name).await;
        let old = signer(client, name).await.unwrap();
        let caller = Caller::start(client, name, &[&first]).await;
        secrets(client).delete(name, &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let second = Replica::start(client, name).await;
        for replica in [&first, &second] {
            eventually("one signer, which is another", async || {
                let signer = signer(client, name).await;
                signer.is_some_and(|signer| signer != old && replica.accepts(&signer))
            })
            .await;
        }
        caller.stop().await;
        first.stop().await;
        second.stop().await;
    }
}

async fn a_foreign_ca_is_adopted_without_failed_calls(client: &Client) {
    let name = "foreign";
    let pair = CalledReplicas::start(client, name).await;
    // Older than the current CA, as from a backup.
    let then = SystemTime::now() - Duration::from_hours(24 * 30);
    let foreign = CertificateAuthority::generate(&names(), then).unwrap();
    let certificate = foreign.trust_bundle().to_pem();
    let secret = json!({ "stringData": {
        "tls.crt": certificate, "tls.key": foreign.private_key_pem().as_str(), "ca.crt": certificate,
        "rotation.json": "{}",
    }});
    secrets(client).patch(name, &PatchParams::default(), &Patch::Merge(secret)).await.unwrap();
    let third = Replica::start(client, name).await;
    let new = foreign.trust_bundle();
    // The third replica may have found the previous CA restored, as signer until the new one is trusted.
    for replica in pair.replicas.iter().chain([&third]) {
        replica.wait_for(&new).await;
    }
    assert_eq!(published(client, name).await, Some(new.merge(&pair.old)));
    pair.stop().await;
    third.stop().await;
}

async fn drift_of_the_bundle_is_reverted(client: &Client) {
    let name = "drift";
    register(client, name).await;
    let replica = Replica::start(client, name).await;
    let bundle = published(client, name).await.unwrap();
    let other = CertificateAuthority::generate(&names(), SystemTime::now()).unwrap().trust_bundle();
    // For the first seconds, other CAs are kept because replicas may serve under them.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let added = bundle.merge(&other).to_pem();
    for (what, content) in [
        ("wiped", None),
        ("a placeholder", Some("\n".to_owned())),
        ("foreign bytes", Some("not a certificate".to_owned())),
        ("another authority", Some(other.to_pem())),
        ("an entry more", Some(added)),
    ] {
        overwrite(client, name, content).await;
        let begin = Instant::now();
        eventually(what, async || published(client, name).await.as_ref() == Some(&bundle)).await;
        // The goal is one second, which `cargo xtask soak drift` measures on an idle machine.
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}: {:?}", begin.elapsed());
    }
    replica.stop().await;
}

async fn overwrite(client: &Client, name: &str, content: Option<String>) {
    let path = "/webhooks/0/clientConfig/caBundle";
    let patch = match content.map(|content| ByteString(content.into_bytes())) {
        None => json!([{ "op": "remove", "path": path }]),
        Some(value) => json!([{ "op": "replace", "path": path, "value": value }]),
    };
    let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
    configurations(client).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// A target whose reads fail on demand.
#[derive(Debug)]
struct Unreadable {
    target: ObjectTarget,
    is_cut_off: Arc<AtomicBool>,
}

impl TrustTarget for Unreadable {
    fn name(&self) -> &str {
        self.target.name()
    }

    fn read(&self) -> BoxFuture<'_, Result<Reading, TargetError>> {
        match self.is_cut_off.load(Ordering::Relaxed) {
            true => Box::pin(async {
                let (target, source) = (self.name().to_owned(), "cut off".into());
                Err(TargetError::Api { action: "get", target, source })
            }),
            false => self.target.read(),
        }
    }

    fn write<'a>(
        &'a self,
        bundle: &'a TrustBundle,
        reading: &'a Reading,
    ) -> BoxFuture<'a, Result<Reading, TargetError>> {
        self.target.write(bundle, reading)
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        self.target.changes()
    }
}

async fn an_unreadable_target_does_not_end_readiness(client: &Client) {
    let name = "cut-off";
    register(client, name).await;
    let is_cut_off = Arc::new(AtomicBool::new(true));
    let unreadable = Unreadable { target: target(client, name), is_cut_off: Arc::clone(&is_cut_off) };
    let mut replica = Replica::begin_with(source(client, name), unreadable);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!*replica.ready.borrow(), "it is unknown what callers trust");
    is_cut_off.store(false, Ordering::Relaxed);
    replica.readiness().await;
    is_cut_off.store(true, Ordering::Relaxed);
    // Several rounds: one per second, and one per change of the Secret.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(*replica.ready.borrow(), "callers have the bundle of before");
    replica.stop().await;
}

async fn shutdown_stops_all_writes(client: &Client) {
    let name = "uninstalled";
    register(client, name).await;
    let replicas = [Replica::start(client, name).await, Replica::start(client, name).await];
    for replica in replicas {
        replica.stop().await;
    }
    secrets(client).delete(name, &DeleteParams::default()).await.unwrap();
    overwrite(client, name, None).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(signer(client, name).await, None);
    assert_eq!(published(client, name).await, None);
}

async fn replicas_can_share_one_certificate(client: &Client) {
    let name = "one-leaf";
    register(client, name).await;
    let shared = || source(client, name).with_shared_leaf(client.clone(), NAMESPACE, "one-leaf-tls");
    let mut replicas = [0; 3].map(|_| Replica::begin_with(shared(), target(client, name)));
    join_all(replicas.iter_mut().map(Replica::readiness)).await;
    let secret = secrets(client).get("one-leaf-tls").await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    let leaf = &secret.data.as_ref().unwrap()["tls.crt"].0;
    let leaf = TrustBundle::from_pem(leaf).unwrap().validities().map(|(it, _)| it).next().unwrap();
    let authority = signer(client, name).await.unwrap();
    assert!(replicas.iter().all(|replica| replica.shown(&authority) == leaf));

    // After a deletion it is issued again, and all replicas serve the new one.
    secrets(client).delete("one-leaf-tls", &DeleteParams::default()).await.unwrap();
    let again = eventually("another certificate", async || {
        let secret = secrets(client).get_opt("one-leaf-tls").await.unwrap()?;
        TrustBundle::from_pem(&secret.data?.get("tls.crt")?.0).ok()?.validities().map(|(it, _)| it).next()
    })
    .await;
    assert_ne!(again, leaf);
    eventually("it on all replicas", async || {
        replicas.iter().all(|replica| replica.shown(&authority) == again)
    })
    .await;
    for replica in replicas {
        replica.stop().await;
    }
}
