//! Creation, use, repair and replacement of the Secret.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    ByteString,
    api::{core::v1::Secret, events::v1::Event},
};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use lucid_certs::{CertificateAuthority, ServingNames};
use lucid_e2e::eventually;
use serde_json::json;

use super::replica::{NAMESPACE, Replica, another_signer, published, register, secrets, signer, source};
use crate::common::{DAY, names, now};

type Data<'a> = &'a [(&'a str, &'a str)];

pub(super) async fn changes_of_the_secret(client: &Client) {
    tokio::join!(
        a_created_secret_has_the_keys_of_its_type(client),
        a_foreign_ca_is_used(client),
        an_unusable_secret_is_replaced(client),
        a_corrupt_secret_is_restored_from_memory(client),
        an_expiring_ca_is_rotated(client),
        a_secret_without_rotation_records_keeps_its_bundle(client),
        an_immutable_secret_is_reported(client),
        replicas_with_different_names_do_not_loop(client),
    );
}

async fn put(client: &Client, name: &str, data: Data<'_>) -> Secret {
    let data = data.iter().map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec())));
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([("team".to_owned(), "blue".to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(data.collect()),
        ..Secret::default()
    };
    secrets(client).create(&PostParams::default(), &secret).await.unwrap()
}

fn pems(ca: &CertificateAuthority) -> (String, String) {
    (ca.trust_bundle().to_pem(), ca.private_key_pem().to_string())
}

fn text<'a>(secret: &'a Secret, key: &str) -> &'a str {
    std::str::from_utf8(&secret.data.as_ref().unwrap()[key].0).unwrap()
}

/// Waits for an event whose note begins with `said`, and returns the note.
async fn noted(client: &Client, secret: &str, reason: &str, said: &str) -> String {
    eventually(&format!("{reason} of {secret}: {said}"), async || {
        let events = Api::<Event>::namespaced(client.clone(), NAMESPACE);
        events.list(&ListParams::default()).await.unwrap().into_iter().find_map(|event| {
            let regarding = event.regarding.and_then(|regarding| regarding.name);
            let is_it = regarding.as_deref() == Some(secret) && event.reason.as_deref() == Some(reason);
            event.note.filter(|note| is_it && note.starts_with(said))
        })
    })
    .await
}

async fn a_created_secret_has_the_keys_of_its_type(client: &Client) {
    register(client, "fresh").await;
    let replica = Replica::start(client, "fresh").await;
    let secret = secrets(client).get("fresh").await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(secret.metadata.labels.as_ref().unwrap()["app.kubernetes.io/managed-by"], "lucid-certs");
    assert_eq!(text(&secret, "tls.crt"), text(&secret, "ca.crt"));
    assert!(text(&secret, "tls.key").starts_with("-----BEGIN PRIVATE KEY-----"));
    assert_eq!(secret.data.as_ref().unwrap().len(), 4);
    replica.stop().await;
}

async fn a_foreign_ca_is_used(client: &Client) {
    register(client, "elsewhere").await;
    let foreign = CertificateAuthority::generate(&names(), now() - 100 * DAY).unwrap();
    let (certificate, key) = pems(&foreign);
    let before = put(client, "elsewhere", &[("tls.crt", &certificate), ("tls.key", &key)]).await;
    let replica = Replica::start(client, "elsewhere").await;
    assert!(replica.accepts(&foreign.trust_bundle()));
    assert_eq!(secrets(client).get("elsewhere").await.unwrap(), before);
    replica.stop().await;
}

async fn an_unusable_secret_is_replaced(client: &Client) {
    let now = now();
    let generate = |names: &ServingNames, at| pems(&CertificateAuthority::generate(names, at).unwrap());
    let (certificate, key) = generate(&names(), now);
    let (_, other_key) = generate(&names(), now);
    let expired = generate(&names(), now - 400 * DAY);
    let narrow = generate(&ServingNames::for_services("other", &["service"]).unwrap(), now);

    let cases: [(&str, Data<'_>, &str); 9] = [
        ("empty", &[], "key tls.crt is missing"),
        ("no-key", &[("tls.crt", &certificate)], "key tls.key is missing"),
        ("no-certificate", &[("tls.key", &key)], "key tls.crt is missing"),
        ("certificate-is-text", &[("tls.crt", "hello"), ("tls.key", &key)], "tls.crt holds no certificate"),
        (
            "key-is-cut",
            &[("tls.crt", &certificate), ("tls.key", &key[..80])],
            "tls.key holds no usable certificate authority: failed to read the private key",
        ),
        (
            "key-of-another",
            &[("tls.crt", &certificate), ("tls.key", &other_key)],
            "tls.crt with tls.key holds no usable certificate authority: failed to match",
        ),
        ("swapped", &[("tls.crt", &key), ("tls.key", &certificate)], "tls.crt holds no certificate"),
        ("expired", &[("tls.crt", &expired.0), ("tls.key", &expired.1)], "is expired"),
        (
            "narrow",
            &[("tls.crt", &narrow.0), ("tls.key", &narrow.1)],
            "tls.crt holds a certificate authority that may not serve our names",
        ),
    ];
    for (name, data, expected) in cases {
        register(client, name).await;
        put(client, name, &[data, &[("mine", "kept")]].concat()).await;
        let replica = Replica::start(client, name).await;
        let note = noted(client, name, "CertificateAuthorityReplaced", "").await;
        assert!(note.contains(expected), "{name}: {note}");
        let after = secrets(client).get(name).await.unwrap();
        assert_eq!(text(&after, "mine"), "kept");
        assert_eq!(after.metadata.labels.as_ref().unwrap()["team"], "blue");
        assert!(replica.accepts(&signer(client, name).await.unwrap()));
        replica.stop().await;
    }
}

async fn a_corrupt_secret_is_restored_from_memory(client: &Client) {
    let name = "corrupt";
    register(client, name).await;
    let replica = Replica::start(client, name).await;
    let before = secrets(client).get(name).await.unwrap();
    for key in ["tls.key", "tls.crt", "ca.crt", "rotation.json"] {
        let broken = json!({ "data": { key: "Y3V0IG9mZg==" } });
        secrets(client).patch(name, &PatchParams::default(), &Patch::Merge(broken)).await.unwrap();
        eventually(key, async || secrets(client).get(name).await.unwrap().data == before.data).await;
    }
    for (reason, said) in [
        ("CertificateAuthorityRestored", "tls.key holds no usable certificate authority"),
        ("CertificateAuthorityRestored", "tls.crt holds no certificate"),
        ("CertificateAuthorityMended", "ca.crt: "),
        ("CertificateAuthorityMended", "rotation.json: "),
    ] {
        noted(client, name, reason, said).await;
    }
    assert_eq!(published(client, name).await, signer(client, name).await);
    replica.stop().await;
}

async fn an_expiring_ca_is_rotated(client: &Client) {
    let name = "due";
    register(client, name).await;
    let due = CertificateAuthority::generate(&names(), now() - 340 * DAY).unwrap();
    let (certificate, key) = pems(&due);
    put(client, name, &[("tls.crt", &certificate), ("tls.key", &key)]).await;
    let replica = Replica::start(client, name).await;
    let old = due.trust_bundle();
    let new = another_signer(client, name, &old).await;
    replica.wait_for(&new).await;
    assert_eq!(published(client, name).await, Some(new.merge(&old)));
    replica.stop().await;
}

async fn a_secret_without_rotation_records_keeps_its_bundle(client: &Client) {
    let name = "earlier";
    register(client, name).await;
    let [ca, before] =
        [1, 2].map(|days| CertificateAuthority::generate(&names(), now() - days * DAY).unwrap());
    let trusted = ca.trust_bundle().merge(&before.trust_bundle());
    let (certificate, key) = pems(&ca);
    let data = [("tls.crt", certificate.as_str()), ("tls.key", &key), ("ca.crt", &trusted.to_pem())];
    put(client, name, &data).await;
    let label = json!({ "metadata": { "labels": { "app.kubernetes.io/managed-by": "lucid-certs" } } });
    secrets(client).patch(name, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let replica = Replica::start(client, name).await;
    assert_eq!(published(client, name).await, Some(trusted));
    assert!(replica.accepts(&ca.trust_bundle()));
    let note = noted(client, name, "CertificateAuthorityMended", "").await;
    assert!(note.contains("no retirement time recorded"), "{note}");
    replica.stop().await;
}

async fn an_immutable_secret_is_reported(client: &Client) {
    let name = "frozen";
    register(client, name).await;
    let replica = Replica::start(client, name).await;
    let before = published(client, name).await.unwrap();
    // It can be neither used nor replaced, so there is no CA on which the replicas agree.
    let frozen = json!({ "immutable": true, "data": { "tls.key": "Y3V0IG9mZg==" } });
    secrets(client).patch(name, &PatchParams::default(), &Patch::Merge(frozen)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(replica.accepts(&before) && *replica.ready.borrow());
    assert_eq!(published(client, name).await, Some(before));
    replica.stop().await;
    // A source without a driver writes nothing.
    drop(source(client, name));
}

/// As when an operator is replaced by one in another namespace: neither can use the CA of the other.
async fn replicas_with_different_names_do_not_loop(client: &Client) {
    let name = "two-names";
    register(client, name).await;
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut changes = watcher(secrets(client), config).default_backoff().applied_objects().boxed();
    let others = ServingNames::for_services("other", &["service"]).unwrap();
    let replicas = [Replica::begin(client, name), Replica::begin_for(others, client, name)];
    let mut count = 0;
    let settled = async {
        while tokio::time::timeout(Duration::from_secs(3), changes.next()).await.is_ok() {
            count += 1;
        }
    };
    tokio::time::timeout(Duration::from_secs(40), settled).await.expect("they never let go");
    assert!(count > 4, "they did not meet: {count} changes");
    for replica in replicas {
        replica.stop().await;
    }
}
