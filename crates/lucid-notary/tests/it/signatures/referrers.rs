//! Bundles are fetched from the registry of an image if its policy says so.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::server::{Reply, Server};

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// Replies by path.
type Layout = BTreeMap<String, Reply>;

fn image_digest() -> Digest {
    sha256(b"{}")
}

fn api() -> String {
    let filter = "application/vnd.dev.sigstore.bundle.v0.3%2Bjson";
    format!("/v2/a/b/referrers/{}?artifactType={filter}", image_digest())
}

fn tag() -> String {
    format!("/v2/a/b/manifests/sha256-{}", image_digest().hex())
}

fn manifest(number: usize) -> String {
    format!("/v2/a/b/manifests/{}", sha256(number.to_string().as_bytes()))
}

fn blob(number: usize) -> String {
    manifest(number).replace("manifests", "blobs")
}

fn status(status: u16) -> Reply {
    Reply::Response { status, header: None, body: String::new() }
}

fn header(status: u16, name: &'static str, value: &str) -> Reply {
    Reply::Response { status, header: Some((name, value.to_owned())), body: String::new() }
}

fn index(artifact_types: &[&str]) -> Reply {
    let descriptor = |(number, kind): (usize, _)| {
        json!({ "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": sha256(number.to_string().as_bytes()), "size": 9, "artifactType": kind })
    };
    let manifests: Vec<_> = artifact_types.iter().enumerate().map(descriptor).collect();
    let header = Some(("content-type", "application/vnd.oci.image.index.v1+json".to_owned()));
    Reply::Response { status: 200, header, body: json!({ "manifests": manifests }).to_string() }
}

/// A registry with the referrers API, or else with the fallback tag, and these bundles.
fn layout(has_api: bool, bundles: &[Value]) -> Layout {
    let list = index(&vec![if has_api { BUNDLE } else { EMPTY }; bundles.len()]);
    let mut layout = Layout::from([(if has_api { api() } else { tag() }, list)]);
    for (number, bundle) in bundles.iter().enumerate() {
        let layer =
            json!({ "mediaType": BUNDLE, "digest": sha256(number.to_string().as_bytes()), "size": 9 });
        layout.insert(manifest(number), Reply::ok(json!({ "layers": [layer] }).to_string()));
        layout.insert(blob(number), Reply::ok(bundle.to_string()));
    }
    layout
}

async fn start(layout: Layout) -> Server {
    Server::start(move |path| layout.get(path).cloned().unwrap_or_else(|| status(404))).await
}

/// A registry that responds to the first request for something it has with `challenge`.
async fn challenging(layout: Layout, challenge: String) -> Server {
    let is_challenged = AtomicBool::new(false);
    Server::start(move |path| match layout.get(path) {
        Some(_) if !is_challenged.swap(true, Ordering::SeqCst) => header(401, "www-authenticate", &challenge),
        found => found.cloned().unwrap_or_else(|| status(404)),
    })
    .await
}

/// Returns a notary that accepts signatures of `key` alone on images at `address`.
fn notary(address: impl std::fmt::Display, key: &Key, referrers: bool) -> Notary {
    notary_with(address, key, referrers, None)
}

fn notary_with(
    address: impl std::fmt::Display,
    key: &Key,
    referrers: bool,
    credentials: Option<Value>,
) -> Notary {
    let policy = json!({ "images": [format!("{address}/*")], "require": "signatures", "keys": [key.pem()],
        "referrers": referrers });
    let mut files = Files::from([file("signatures.yaml", json!({ "policies": [policy] }))]);
    files.extend(credentials.map(|credentials| file("config.json", credentials)));
    let script = Script::new(|_| panic!("the Verifier was asked"));
    Notary::from(script.client().build()).with_signatures(open(&files).unwrap())
}

fn file(name: &str, content: Value) -> (String, Vec<u8>) {
    (name.to_owned(), content.to_string().into_bytes())
}

async fn check(notary: &Notary, image: String) -> NotaryVerdict {
    let image: ImageReference = image.parse().unwrap();
    notary.check_all([image.clone()], in_time()).await.remove(&image).unwrap().verdict
}

/// Returns the verdict on `a/b` in a registry at `address`.
async fn fetched(address: impl std::fmt::Display, key: &Key, referrers: bool) -> NotaryVerdict {
    check(&notary(&address, key, referrers), format!("{address}/a/b@{}", image_digest())).await
}

#[tokio::test]
async fn bundles_are_fetched_by_the_api_or_the_fallback_tag_if_switched_on() {
    let (key, other) = (Key::ecdsa(), Key::ecdsa());
    let bundles = [other.statement(&image_digest(), COSIGN), key.statement(&image_digest(), COSIGN)];
    for has_api in [true, false] {
        let mut layout = layout(has_api, &bundles);
        let content = layout.insert(blob(1), header(307, "location", "/storage")).unwrap();
        layout.insert("/storage".to_owned(), content);
        let server = start(layout).await;
        assert!(!fetched(server.address, &key, false).await.is_notarized());
        assert_eq!(server.requests(), Vec::<String>::new());
        assert_eq!(fetched(server.address, &key, true).await, NotaryVerdict::Notarized, "{has_api}");
    }
}

#[tokio::test]
async fn an_anonymous_token_is_requested_if_the_registry_asks_for_one() {
    let key = Key::ecdsa();
    // A registry may ask for it only at the fallback tag.
    for (has_api, response) in
        [(true, r#"{"token":"t0k","access_token":"t0k"}"#), (false, r#"{"access_token":"t0k"}"#)]
    {
        let path = "/token?scope=repository%3Aa%2Fb%3Apull&service=r.test".to_owned();
        let tokens = start([(path, Reply::ok(response))].into()).await;
        let realm = tokens.url();
        let challenge =
            format!(r#"Bearer realm="{realm}/token",service="r.test",scope="repository:a/b:pull,push""#);
        let layout = layout(has_api, &[key.statement(&image_digest(), COSIGN)]);
        let server = challenging(layout, challenge).await;
        assert_eq!(fetched(server.address, &key, true).await, NotaryVerdict::Notarized, "{has_api}");
        let sent = server.authorizations.lock().unwrap().clone();
        let first = sent.iter().take_while(|sent| sent.is_none()).count();
        assert_eq!(first, if has_api { 1 } else { 2 });
        assert_eq!(sent[first..], vec![Some("Bearer t0k".to_owned()); 3]);
    }
}

#[tokio::test]
async fn private_registries_are_read_with_the_credentials_of_a_docker_config() {
    let key = Key::ecdsa();
    let tokens = Server::start(|_| Reply::ok(r#"{"token":"t0k"}"#)).await;
    let bearer = format!(r#"Bearer realm="{}/token",service="r.test""#, tokens.url());
    for challenge in ["Basic realm=\"r.test\"", &bearer] {
        let layout = layout(true, &[key.statement(&image_digest(), COSIGN)]);
        let server = challenging(layout, challenge.to_owned()).await;
        let registry = server.address;
        // The longest name counts, as a whole segment.
        let auths = json!({ "auths": { format!("http://{registry}/v2/"): { "auth": "b3RoZXI6cHc=" },
            format!("{registry}/a"): { "auth": "dXNlcjpwdw==" }, format!("{registry}/a/bc"): { "auth": "YQ==" },
            "https://index.docker.io/v1/": { "auth": "YTpi" } } });
        let notary = notary_with(registry, &key, true, Some(auths));
        let found = check(&notary, format!("{registry}/a/b@{}", image_digest())).await;
        assert_eq!(found, NotaryVerdict::Notarized, "{challenge}");
        let basic = Some("Basic dXNlcjpwdw==".to_owned());
        let sent = server.authorizations.lock().unwrap().clone();
        if challenge == bearer {
            assert_eq!(*tokens.authorizations.lock().unwrap(), [basic]);
            assert_eq!(sent[1..], vec![Some("Bearer t0k".to_owned()); 3]);
        } else {
            assert_eq!(sent[1..], vec![basic; 3]);
        }
        // Nothing is sent before the registry asks.
        assert_eq!(sent[0], None);
    }
}

#[test]
fn credentials_that_cannot_be_read_are_not_quoted() {
    for credentials in
        [json!({ "auths": "s3cret" }), json!({ "auths": { "r.test": { "auth": ["s3cret"] } } })]
    {
        let files = [file("signatures.yaml", json!({ "policies": [] })), file("config.json", credentials)];
        let error = open(&files.into()).unwrap_err().to_string();
        let expected = r#"config.json: expected {"auths":{"REGISTRY":{"auth":"BASE64"}}}"#;
        assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn credentials_are_those_of_the_image_and_sent_to_its_registry_only() {
    let key = Key::ecdsa();
    let tokens = Server::start(|_| status(404)).await;
    let challenge = format!(r#"BEARER realm="{}/token""#, tokens.url());
    let server = Server::start(move |_| header(401, "www-authenticate", &challenge)).await;
    let registry = server.address;
    let redirecting =
        Server::start(move |path| header(307, "location", &format!("http://{registry}{path}"))).await;
    let user = json!({ "username": "user", "password": "pw" });
    for (asked, name, entry, expected) in [
        (registry, format!("{registry}"), user.clone(), true),
        (registry, format!("{registry}/v2/"), user.clone(), true),
        (registry, format!("{registry}/a/v2"), user.clone(), false),
        (registry, format!("{registry}/a/b"), user.clone(), true),
        (registry, format!("{registry}/a/bc"), user.clone(), false),
        (registry, "other.test".to_owned(), user.clone(), false),
        (registry, format!("{registry}"), json!({}), false),
        (registry, format!("{registry}"), json!({ "auth": "", "username": "user" }), false),
        (redirecting.address, redirecting.address.to_string(), user, false),
    ] {
        let auths = json!({ "auths": { &name: entry } });
        let notary = notary_with(asked, &key, true, Some(auths));
        tokens.authorizations.lock().unwrap().clear();
        check(&notary, format!("{asked}/a/b@{}", image_digest())).await;
        let sent = tokens.authorizations.lock().unwrap().clone();
        let basic = Some("Basic dXNlcjpwdw==".to_owned());
        assert_eq!(sent.contains(&basic), expected, "{name}: {sent:?}");
    }
}

#[tokio::test]
async fn registries_without_an_accepted_bundle_have_no_signature() {
    let (key, other) = (Key::ecdsa(), Key::ecdsa());
    let mut others = layout(false, &[key.statement(&image_digest(), COSIGN)]);
    others.insert(manifest(0), Reply::ok(r#"{"layers":[]}"#));
    let digest = image_digest();
    let none = format!(
        "no signature on {digest}: expected a bundle sha256-{}.json or one in its registry",
        digest.hex()
    );
    for (layout, expected) in [
        (Layout::new(), none.as_str()),
        (layout(true, &[]), &none),
        ([(api(), index(&["application/spdx+json"]))].into(), &none),
        (others, &none),
        (layout(true, &[other.statement(&digest, COSIGN)]), ": expected a signature by a key of the policy"),
        (
            layout(true, &[key.statement(&sha256(b"[]"), COSIGN)]),
            ": expected a statement about the image's digest",
        ),
    ] {
        let server = start(layout).await;
        let found = fetched(server.address, &key, true).await;
        assert!(reason(&found).contains(expected), "{expected}: {found}");
    }
}

#[tokio::test]
async fn registries_that_cannot_be_read_leave_the_digest_unknown() {
    let (key, other) = (Key::ecdsa(), Key::ecdsa());
    let wrong = other.statement(&image_digest(), COSIGN);
    let with = |path: String, reply: Reply| {
        let mut layout = layout(true, std::slice::from_ref(&wrong));
        layout.insert(path, reply);
        layout
    };
    let plain = |realm: &str| header(401, "www-authenticate", &format!(r#"Bearer realm="{realm}""#));
    let challenge =
        "expected a repository for all, credentials, or a challenge for a bearer token over https";
    for (layout, expected) in [
        (with(api(), status(503)), "expected status 200 OK, found 503"),
        (with(api(), status(403)), "expected status 200 OK, found 403"),
        (with(api(), plain("http://r.test/token")), challenge),
        (with(api(), header(401, "www-authenticate", "Basic")), challenge),
        (with(api(), header(307, "location", "http://r.test/")), "expected a redirect to https"),
        (with(api(), header(307, "location", &api())), "expected at most 3 redirects"),
        ([(tag(), Reply::ok("[]"))].into(), "invalid length 0, expected struct Index"),
        (with(manifest(0), status(404)), "expected status 200 OK, found 404"),
        (with(manifest(0), Reply::ok(" ".repeat(64 * 1024 + 1))), "longer than the limit of 65536 bytes"),
        (with(blob(0), status(500)), "expected status 200 OK, found 500"),
        (with(blob(0), Reply::ok(" ".repeat(128 * 1024 + 1))), "longer than the limit of 131072 bytes"),
        (layout(true, &vec![wrong.clone(); 9]), "expected at most 8 bundles for a digest"),
        (with(api(), Reply::Hang), "no response within 2.5s"),
    ] {
        let server = start(layout).await;
        let found = fetched(server.address, &key, true).await.to_string();
        let begin = format!("unknown: failed to fetch signatures from {}/a/b: ", server.address);
        assert!(found.starts_with(&begin) && found.contains(expected), "{expected}: {found}");
        assert!(!server.requests().contains(&blob(8)), "{expected}");
    }
    let closed = start(Layout::new()).await.address;
    let found = fetched(closed, &key, true).await.to_string();
    assert!(found.starts_with("unknown: failed to fetch signatures from "), "{found}");
    // Other registries are asked over https alone.
    let found = fetched("r.invalid", &key, true).await.to_string();
    assert!(found.starts_with("unknown: failed to fetch signatures from r.invalid/a/b: "), "{found}");
}

#[tokio::test]
async fn verdicts_of_one_repository_do_not_count_for_another() {
    let key = Key::ecdsa();
    let server = start(layout(true, &[key.statement(&image_digest(), COSIGN)])).await;
    let notary = notary(server.address, &key, true);
    for (repository, expected) in [("a/c", false), ("a/b", true), ("a/c", false)] {
        let image = format!("{}/{repository}@{}", server.address, image_digest());
        let found = check(&notary, image).await;
        assert_eq!(found.is_notarized(), expected, "{repository}: {found}");
    }
}
