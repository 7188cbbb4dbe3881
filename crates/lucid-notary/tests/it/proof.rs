//! Proofs of the Verifier's log.

use std::sync::Arc;

use lucid_audit::Log;
use lucid_audit::log::Options;
use lucid_audit::note::SigningKey;
use lucid_audit::proof::Proof;
use lucid_notary::Digest;
use lucid_notary::client::{Answer, HttpVerifier, VerifierError};
use serde_json::json;
use tower::ServiceExt;

use crate::common::digest;
use crate::server::{Reply, Server};

/// Proofs that `a` is notarized, that `b` is revoked, and of a record that is neither.
async fn proofs(key: &SigningKey) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let key = key.to_secret().parse().unwrap();
    let log = Log::open(folder.path(), Options::new().with_key(key)).unwrap();
    for (event, digit) in [("notarize", 'a'), ("revoke", 'b'), ("recovered", 'a')] {
        let record = json!({"event": event, "digest": digest(digit)});
        log.append(record.to_string().into_bytes()).await.unwrap();
    }
    log.close();
    (0..3).map(|seq| Proof::of(folder.path(), seq).unwrap().to_string()).collect()
}

#[tokio::test]
async fn only_proven_digests_are_notarized() {
    let key = SigningKey::generate("lucid.computing/verifier").unwrap();
    let other = SigningKey::generate("lucid.computing/verifier").unwrap();
    let (ours, theirs) = (proofs(&key).await, proofs(&other).await);
    let changed = ours[0].replace("index 0", "index 1");
    let (a, b): (Digest, Digest) = (digest('a'), digest('b'));
    for (digest, notarized, proof, expected) in [
        (&a, true, Some(&ours[0]), Ok(Answer::Notarized)),
        (
            &a,
            true,
            None,
            Err("expected a proof that the digest is notarized in the Verifier's log, found none"),
        ),
        (
            &a,
            true,
            Some(&theirs[0]),
            Err("the proof from the Verifier's log is not valid: the note is not signed by"),
        ),
        (&a, true, Some(&changed), Err("is not valid: the proof is not one of this record")),
        (&a, true, Some(&"x".to_owned()), Err("is not valid: invalid line 2")),
        (&a, true, Some(&ours[1]), Err("record 1 of lucid.computing/verifier does not say that")),
        (&a, true, Some(&ours[2]), Err("record 2 of lucid.computing/verifier does not say that")),
        (&b, true, Some(&ours[0]), Err("does not say that sha256:bbbb")),
        (&b, true, Some(&ours[1]), Err("is notarized")),
        (&b, false, Some(&ours[1]), Ok(Answer::NotNotarized)),
        (&b, false, None, Ok(Answer::NotNotarized)),
        (&a, false, Some(&ours[0]), Err("is revoked")),
    ] {
        let body = Arc::new(json!({"digest": digest, "notarized": notarized, "proof": proof}).to_string());
        let server = Server::start(move |_| Reply::ok(&**body)).await;
        let verifier =
            HttpVerifier::builder(&server.url()).with_log_keys([key.verifier().clone()]).build().unwrap();
        let found = verifier.oneshot(digest.clone()).await;
        assert_eq!(server.requests(), [format!("/registry/check?digest={digest}&proof=true")]);
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{expected}: {error}");
                assert!(matches!(error, VerifierError::Unproven { .. }) && !error.is_outage(), "{error}");
            }
            (found, expected) => panic!("expected {expected:?}, found {found:?}"),
        }
    }
}
