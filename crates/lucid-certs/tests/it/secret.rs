//! The authority in a Secret of a real API server

use std::{collections::BTreeMap, time::Duration};

use crate::common::{DAY, chain, names, now};
use futures::future::join_all;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use lucid_certs::{
    BACKDATE, CA_OVERLAP, CaOrigin, CaSecret, CertificateAuthority, SecretError, ServingNames, SharedCa,
    TrustBundle, Unusable,
};
use lucid_testbed::Cluster;

const NAMESPACE: &str = "default";

/// Keys and values of a Secret
type Data<'a> = &'a [(&'a str, &'a str)];

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_one_authority_in_a_secret() {
    let cluster = Cluster::builder().start().await.unwrap();
    let client = cluster.client();
    it_is_created_and_taken_over_by_the_next(&client).await;
    many_at_once_end_in_one(&client).await;
    many_who_find_a_broken_one_end_in_one(&client).await;
    one_made_elsewhere_is_used_and_left_alone(&client).await;
    what_is_unusable_is_replaced_with_the_reason(&client).await;
    what_was_trusted_is_handed_on(&client).await;
    what_is_known_is_handed_on_with_a_new_one(&client).await;
    what_is_known_is_added_to_a_new_one_of_ours_once(&client).await;
    a_retired_authority_does_not_stay_trusted(&client).await;
    an_immutable_secret_is_an_error_that_names_it(&client).await;
}

fn ca_secret(client: &Client, name: &str) -> CaSecret {
    CaSecret::new(client.clone(), NAMESPACE, name)
}

async fn load(client: &Client, name: &str) -> (CertificateAuthority, CaOrigin) {
    let SharedCa { ca, origin, .. } = load_knowing(client, name, None).await;
    (ca, origin)
}

async fn load_knowing(client: &Client, name: &str, known: Option<&TrustBundle>) -> SharedCa {
    ca_secret(client, name).load_or_create(&names(), known, now()).await.unwrap()
}

/// An authority made this long ago
fn aged(age: Duration) -> CertificateAuthority {
    CertificateAuthority::generate(&names(), now() - age).unwrap()
}

fn bundle(cas: &[&CertificateAuthority]) -> TrustBundle {
    let bundles = cas.iter().map(|ca| ca.trust_bundle());
    bundles.reduce(|bundle, next| bundle.merge(&next)).unwrap()
}

async fn read(client: &Client, name: &str) -> Secret {
    Api::namespaced(client.clone(), NAMESPACE).get(name).await.unwrap()
}

/// Creates a Secret as a user may have done
async fn put(client: &Client, name: &str, data: Data<'_>) -> Secret {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString((*value).into()))).collect();
    let labels = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    let secret = Secret { metadata, data: Some(data), ..Secret::default() };
    Api::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &secret).await.unwrap()
}

fn text<'a>(secret: &'a Secret, key: &str) -> &'a str {
    std::str::from_utf8(&secret.data.as_ref().unwrap()[key].0).unwrap()
}

async fn it_is_created_and_taken_over_by_the_next(client: &Client) {
    let (created, origin) = load(client, "fresh").await;
    assert!(matches!(origin, CaOrigin::Created), "{origin:?}");

    let secret = read(client, "fresh").await;
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(secret.metadata.labels.as_ref().unwrap()["app.kubernetes.io/managed-by"], "lucid-certs");
    assert_eq!(text(&secret, "tls.crt"), created.certificate_pem());
    assert_eq!(text(&secret, "ca.crt"), created.certificate_pem());
    assert!(text(&secret, "tls.key").starts_with("-----BEGIN PRIVATE KEY-----"));

    let (loaded, origin) = load(client, "fresh").await;
    assert!(matches!(origin, CaOrigin::Loaded), "{origin:?}");
    assert_eq!(loaded.fingerprint(), created.fingerprint());
    assert_eq!(read(client, "fresh").await.metadata.resource_version, secret.metadata.resource_version);
}

/// How many of 20 replicas wrote, after all of them came to the same authority
async fn writers_of_20(client: &Client, name: &str) -> usize {
    let outcomes = join_all((0..20).map(|_| load(client, name))).await;
    let winner = TrustBundle::from_pem(text(&read(client, name).await, "tls.crt").as_bytes()).unwrap();
    for (ca, _) in &outcomes {
        assert_eq!(ca.trust_bundle(), winner);
    }
    outcomes.iter().filter(|(_, origin)| !matches!(origin, CaOrigin::Loaded)).count()
}

async fn many_at_once_end_in_one(client: &Client) {
    assert_eq!(writers_of_20(client, "many").await, 1);
}

async fn many_who_find_a_broken_one_end_in_one(client: &Client) {
    put(client, "many-broken", &[("tls.crt", "broken")]).await;
    assert_eq!(writers_of_20(client, "many-broken").await, 1);
}

async fn one_made_elsewhere_is_used_and_left_alone(client: &Client) {
    let foreign = CertificateAuthority::generate(&names(), now() - 100 * DAY).unwrap();
    let (certificate, key) = (foreign.certificate_pem(), foreign.private_key_pem());
    let before = put(client, "foreign", &[("tls.crt", &certificate), ("tls.key", &key)]).await;
    let (ca, origin) = load(client, "foreign").await;
    assert!(matches!(origin, CaOrigin::Loaded), "{origin:?}");
    assert_eq!(ca.fingerprint(), foreign.fingerprint());
    assert_eq!(read(client, "foreign").await, before);
}

async fn what_is_unusable_is_replaced_with_the_reason(client: &Client) {
    let now = now();
    let pems = |ca: CertificateAuthority| (ca.certificate_pem(), ca.private_key_pem());
    let (certificate, key) = pems(CertificateAuthority::generate(&names(), now).unwrap());
    let (_, other_key) = pems(CertificateAuthority::generate(&names(), now).unwrap());
    let expired = pems(CertificateAuthority::generate(&names(), now - 400 * DAY).unwrap());
    let due = pems(CertificateAuthority::generate(&names(), now - 340 * DAY).unwrap());
    let other_names = ServingNames::for_services("other", &["service"]).unwrap();
    let narrow = pems(CertificateAuthority::generate(&other_names, now).unwrap());

    let cases: [(&str, Data<'_>, &str); 10] = [
        ("empty", &[], "key tls.crt is missing"),
        ("no-key", &[("tls.crt", &certificate)], "key tls.key is missing"),
        ("no-certificate", &[("tls.key", &key)], "key tls.crt is missing"),
        (
            "certificate-is-text",
            &[("tls.crt", "hello"), ("tls.key", &key)],
            "tls.crt holds no usable certificate authority: failed to read the CA certificate: failed to find",
        ),
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
        (
            "swapped",
            &[("tls.crt", &key), ("tls.key", &certificate)],
            "tls.crt holds no usable certificate authority: failed to read the CA certificate: failed to find",
        ),
        ("expired", &[("tls.crt", &expired.0), ("tls.key", &expired.1)], "expired, it was valid from"),
        ("due", &[("tls.crt", &due.0), ("tls.key", &due.1)], "due for renewal, valid from"),
        (
            "narrow",
            &[("tls.crt", &narrow.0), ("tls.key", &narrow.1)],
            "tls.crt holds a certificate authority that may not serve our names",
        ),
    ];
    for (name, data, expected) in cases {
        let data = [data, &[("mine", "kept")]].concat();
        let before = put(client, name, &data).await;
        let (ca, origin) = load(client, name).await;
        let CaOrigin::Replaced { reason, secret, .. } = origin else { panic!("{name}: {origin:?}") };
        assert!(chain(&reason).contains(expected), "{name}: {}", chain(&reason));
        assert_eq!((secret.name.as_deref(), secret.kind.as_deref()), (Some(name), Some("Secret")));
        assert_eq!(secret.uid, before.metadata.uid);

        let after = read(client, name).await;
        assert_eq!(text(&after, "tls.crt"), ca.certificate_pem());
        assert_eq!(text(&after, "mine"), "kept");
        assert_eq!(after.metadata.labels.as_ref().unwrap()["team"], "blue");
        let (again, origin) = load(client, name).await;
        assert!(matches!(origin, CaOrigin::Loaded), "{name}: {origin:?}");
        assert_eq!(again.fingerprint(), ca.fingerprint());
    }
}

async fn what_was_trusted_is_handed_on(client: &Client) {
    let due = aged(340 * DAY);
    put(client, "hand-on", &[("tls.crt", &due.certificate_pem()), ("tls.key", "lost")]).await;
    let replaced = load_knowing(client, "hand-on", None).await;
    let CaOrigin::Replaced { reason, .. } = replaced.origin else { panic!("{:?}", replaced.origin) };
    assert!(matches!(reason, Unusable::Content { key: "tls.key", .. }), "{reason:?}");
    assert_eq!(replaced.previous, Some(due.trust_bundle()));
    let both = bundle(&[&replaced.ca, &due]);
    assert_eq!(text(&read(client, "hand-on").await, "ca.crt"), both.to_pem());
    let loaded = load_knowing(client, "hand-on", None).await;
    assert_eq!(loaded.previous, Some(due.trust_bundle()));

    let expired = aged(400 * DAY);
    put(client, "hand-on-expired", &[("tls.crt", &expired.certificate_pem())]).await;
    assert_eq!(load_knowing(client, "hand-on-expired", None).await.previous, None);
}

async fn what_is_known_is_handed_on_with_a_new_one(client: &Client) {
    let known = aged(100 * DAY);
    let created = load_knowing(client, "known", Some(&known.trust_bundle())).await;
    assert!(matches!(created.origin, CaOrigin::Created), "{:?}", created.origin);
    assert_eq!(created.previous, Some(known.trust_bundle()));
    assert_eq!(load_knowing(client, "known", None).await.previous, Some(known.trust_bundle()));

    put(client, "known-broken", &[("tls.crt", "broken")]).await;
    let replaced = load_knowing(client, "known-broken", Some(&known.trust_bundle())).await;
    assert_eq!(replaced.previous, Some(known.trust_bundle()));
    assert_eq!(load_knowing(client, "known-broken", None).await.previous, Some(known.trust_bundle()));
}

async fn what_is_known_is_added_to_a_new_one_of_ours_once(client: &Client) {
    let (created, _) = load(client, "added").await;
    let before = aged(DAY);
    let (known, previous) = (bundle(&[&created, &before]), before.trust_bundle());
    for loaded in [
        load_knowing(client, "added", Some(&known)).await,
        load_knowing(client, "added", None).await,
        load_knowing(client, "added", Some(&created.trust_bundle())).await,
    ] {
        assert!(matches!(loaded.origin, CaOrigin::Loaded), "{:?}", loaded.origin);
        assert_eq!(loaded.previous, Some(previous.clone()));
    }
    let version = |secret: Secret| secret.metadata.resource_version;
    let before = version(read(client, "added").await);
    load_knowing(client, "added", Some(&known)).await;
    assert_eq!(version(read(client, "added").await), before);

    let foreign = aged(Duration::ZERO);
    let data: Data<'_> = &[("tls.crt", &foreign.certificate_pem()), ("tls.key", &foreign.private_key_pem())];
    let before = put(client, "foreign-new", data).await;
    assert_eq!(
        load_knowing(client, "foreign-new", Some(&known)).await.previous.unwrap().certificates().count(),
        2
    );
    assert_eq!(read(client, "foreign-new").await, before, "what is not ours is left alone");
}

/// Each authority is trusted until its successor is ten minutes old.
async fn a_retired_authority_does_not_stay_trusted(client: &Client) {
    let minute = Duration::from_mins(1);
    let almost = CA_OVERLAP - minute;
    let cases: [(&str, [Duration; 3], usize); 4] = [
        ("both-young", [minute, 2 * minute, DAY], 2),
        ("one-young", [almost, CA_OVERLAP + minute, DAY], 1),
        ("none-young", [CA_OVERLAP + minute, CA_OVERLAP + 2 * minute, DAY], 0),
        ("old", [100 * DAY, 101 * DAY, 102 * DAY], 0),
    ];
    for (name, ages, expected) in cases {
        let [ca, second, third] = ages.map(aged);
        assert_eq!(ca.validity().not_before, now() - ages[0] - BACKDATE);
        // The order in the Secret does not matter.
        let trusted = bundle(&[&third, &ca, &second]).to_pem();
        let (certificate, key) = (ca.certificate_pem(), ca.private_key_pem());
        put(client, name, &[("tls.crt", &certificate), ("tls.key", &key), ("ca.crt", &trusted)]).await;
        let previous = load_knowing(client, name, None).await.previous;
        let expected: Vec<_> = [&second, &third][..expected].iter().map(|ca| ca.fingerprint()).collect();
        let found: Vec<_> = previous.iter().flat_map(TrustBundle::fingerprints).collect();
        assert_eq!(found, expected, "{name}");
    }
}

async fn an_immutable_secret_is_an_error_that_names_it(client: &Client) {
    let mut secret = put(client, "frozen", &[("tls.crt", "broken")]).await;
    secret.immutable = Some(true);
    let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    api.replace("frozen", &PostParams::default(), &secret).await.unwrap();

    let error = ca_secret(client, "frozen").load_or_create(&names(), None, now()).await.unwrap_err();
    assert!(matches!(error, SecretError::Api { action: "replace", .. }), "{error:?}");
    let text = chain(&error);
    assert!(text.contains("failed to replace Secret default/frozen") && text.contains("immutable"), "{text}");
}
