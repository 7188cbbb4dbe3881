//! A certificate in a Secret, watched through a real API server.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use lucid_certs::{
    TrustBundle,
    source::{CertificateSource, Reason, SecretSource, Trust},
};
use lucid_testbed::Cluster;
use serde_json::json;
use tokio::time::timeout;

use crate::common::{
    client_of,
    following::{Following, ask},
    grant,
    pairs::Pair,
};

const NAMESPACE: &str = "default";

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_watched() {
    let cluster = Cluster::builder().start().await.unwrap();
    let client = cluster.client();
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    permissions_for_the_secret_are_sufficient(&cluster, &secrets).await;
    errors_name_missing_or_invalid_keys(&client, &secrets).await;
    other_changes_are_ignored(&client, &secrets).await;
    missing_permissions_are_an_error_until_granted(&cluster, &secrets).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_is_kept_while_the_api_server_is_unreachable() {
    let cluster = Cluster::builder().start().await.unwrap();
    let secrets = Api::<Secret>::namespaced(cluster.client(), NAMESPACE);
    let pair = Pair::new();
    put(&secrets, "kept", pair.files()).await;
    let mut source = Following::new(SecretSource::new(cluster.client(), NAMESPACE, "kept"));
    source.offers(pair.fingerprint).await;
    let mut late = SecretSource::new(cluster.client(), NAMESPACE, "kept");
    drop(cluster);
    // Long enough for the watch to notice the failure.
    drop(timeout(Duration::from_secs(1), source.source.changed()).await);
    source.offers(pair.fingerprint).await;
    let error = ask(&mut late).await.unwrap_err();
    assert_eq!(error.reason, Reason::Unreadable);
    assert!(error.to_string().contains("Secret default/kept"), "{error}");
}

async fn put(secrets: &Api<Secret>, name: &str, data: BTreeMap<String, Vec<u8>>) {
    let data = data.into_iter().map(|(key, value)| (key, ByteString(value))).collect();
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let mut secret = Secret { metadata, data: Some(data), ..Secret::default() };
    match secrets.get_opt(name).await.unwrap() {
        None => drop(secrets.create(&PostParams::default(), &secret).await.unwrap()),
        Some(found) => {
            secret.metadata.resource_version = found.resource_version();
            drop(secrets.replace(name, &PostParams::default(), &secret).await.unwrap());
        }
    }
}

/// Grants the permissions that Lucid's roles contain, a part of those documented for [`SecretSource`].
fn allow(cluster: &Cluster, user: &str, secret: &str) {
    let verbs = ["list", "watch"];
    let rule =
        json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": verbs });
    grant(cluster, "Role", user, &[rule]);
}

async fn permissions_for_the_secret_are_sufficient(cluster: &Cluster, secrets: &Api<Secret>) {
    let [first, second, third, other] = Pair::several();
    allow(cluster, "reader", "followed");
    put(secrets, "other", other.files()).await;
    let mut source =
        Following::new(SecretSource::new(client_of(cluster, "reader").await, NAMESPACE, "followed"));

    let error = source.refuses(Reason::Missing).await;
    assert!(error.to_string().contains("Secret default/followed: it does not exist"), "{error}");
    for pair in [&first, &second] {
        put(secrets, "followed", pair.files()).await;
        source.offers(pair.fingerprint).await;
    }
    secrets.delete("followed", &DeleteParams::default()).await.unwrap();
    source.refuses(Reason::Missing).await;
    put(secrets, "followed", third.files()).await;
    let offer = source.offers(third.fingerprint).await;
    assert_eq!(offer.trust, Trust::External);
}

async fn errors_name_missing_or_invalid_keys(client: &Client, secrets: &Api<Secret>) {
    let [pair, other] = Pair::several();
    let mut source = Following::new(SecretSource::new(client.clone(), NAMESPACE, "wrong"));
    for (key, value, reason, says) in [
        ("tls.crt", None, Reason::Missing, "tls.crt in Secret default/wrong: its keys are ca.crt, tls.key"),
        ("tls.key", None, Reason::Missing, "tls.key in Secret default/wrong: its keys are ca.crt, tls.crt"),
        ("tls.crt", Some("no PEM"), Reason::Malformed, "tls.crt of Secret default/wrong"),
        ("tls.key", Some(""), Reason::Malformed, "tls.key of Secret default/wrong: it is empty"),
        ("tls.key", Some(&*other.key), Reason::Mismatch, "with tls.key of Secret default/wrong"),
        ("ca.crt", Some("no PEM"), Reason::Malformed, "ca.crt of Secret default/wrong"),
        ("ca.crt", Some(&*other.ca), Reason::Untrusted, "ca.crt of Secret default/wrong does not verify"),
    ] {
        put(secrets, "wrong", pair.files()).await;
        source.offers(pair.fingerprint).await;
        let mut data = pair.files();
        data.remove(key);
        data.extend(value.map(|value| (key.to_owned(), value.into())));
        put(secrets, "wrong", data).await;
        let error = source.refuses(reason).await;
        assert!(error.to_string().contains(says), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }

    // As left by issuers that do not know their CA, and by `kubectl create secret tls`.
    let chain = [pair.certificate.as_str(), &pair.ca].concat();
    let mut publishing =
        Following::new(SecretSource::new(client.clone(), NAMESPACE, "wrong").with_publishing());
    let itself = TrustBundle::from_pem(pair.certificate.as_bytes()).unwrap();
    for (ca, certificate, trusted) in [
        (Some(Vec::new()), &pair.certificate, &itself),
        (None, &pair.certificate, &itself),
        (None, &chain, &pair.bundle()),
    ] {
        let mut data = pair.files();
        data.remove("ca.crt");
        data.extend(ca.map(|ca| ("ca.crt".to_owned(), ca)));
        data.insert("tls.crt".to_owned(), certificate.clone().into_bytes());
        put(secrets, "wrong", data).await;
        source.offers(pair.fingerprint).await;
        publishing.publishes(trusted).await;
        put(secrets, "wrong", pair.files()).await;
        publishing.publishes(&pair.bundle()).await;
    }
}

async fn other_changes_are_ignored(client: &Client, secrets: &Api<Secret>) {
    let [first, second] = Pair::several();
    put(secrets, "labelled", first.files()).await;
    let mut source = Following::new(SecretSource::new(client.clone(), NAMESPACE, "labelled"));
    source.offers(first.fingerprint).await;
    for count in 0..3 {
        let label = json!({ "metadata": { "labels": { "count": count.to_string() } } });
        secrets.patch("labelled", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    }
    // These events arrive within milliseconds.
    let changed = timeout(Duration::from_millis(500), source.source.changed()).await;
    assert!(changed.is_err(), "a label is not a change");
    put(secrets, "labelled", second.files()).await;
    source.offers(second.fingerprint).await;
}

async fn missing_permissions_are_an_error_until_granted(cluster: &Cluster, secrets: &Api<Secret>) {
    let pair = Pair::new();
    put(secrets, "forbidden", pair.files()).await;
    let mut source =
        Following::new(SecretSource::new(client_of(cluster, "stranger").await, NAMESPACE, "forbidden"));
    let error = ask(&mut source.source).await.unwrap_err();
    assert_eq!(error.reason, Reason::Unreadable);
    for part in ["Secret default/forbidden", "get, list and watch are needed", "forbidden"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    allow(cluster, "stranger", "forbidden");
    source.offers(pair.fingerprint).await;
}
