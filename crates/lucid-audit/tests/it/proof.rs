//! Inclusion proofs of records.

use std::fs;

use lucid_audit::note::SigningKey;
use lucid_audit::proof::Proof;

use crate::support::ORIGIN;
use crate::support::forge;

#[test]
fn every_sealed_record_has_a_proof_that_reads_back() {
    let log = tempfile::tempdir().unwrap();
    let key = SigningKey::generate(ORIGIN).unwrap();
    for count in [1, 2, 255, 256, 257, 700] {
        let lines = forge::lines(count);
        let _ = fs::remove_dir_all(log.path().join("segments"));
        forge::write(log.path(), &lines, 1000, Some(&key));
        for seq in [0, 1, count / 2, count - 1].into_iter().filter(|seq| *seq < count) {
            let proof = Proof::of(log.path(), seq).unwrap();
            let read: Proof = proof.to_string().parse().unwrap();
            assert_eq!(read, proof);
            let proven = read.check(&[key.verifier().clone()], None).unwrap();
            let line = &lines[seq as usize][..];
            let expected = format!("record {seq} of {ORIGIN}, which had {count} then\n");
            assert_eq!(proven.to_string().into_bytes(), [expected.as_bytes(), line].concat());
            assert!(read.check(&[key.verifier().clone()], Some(line)).is_ok());
        }
        let error = Proof::of(log.path(), count).unwrap_err().to_string();
        assert!(error.contains("is not sealed"), "{error}");
    }
}

#[test]
fn invalid_proofs_prove_nothing() {
    let log = tempfile::tempdir().unwrap();
    let key = SigningKey::generate(ORIGIN).unwrap();
    let keys = [key.verifier().clone()];
    let lines = forge::lines(300);
    forge::write(log.path(), &lines, 1000, Some(&key));
    let proof = Proof::of(log.path(), 7).unwrap();
    assert!(proof.check(&keys, Some(&lines[8])).is_err());
    let other = SigningKey::generate(ORIGIN).unwrap();
    assert!(proof.check(&[other.verifier().clone()], None).is_err());
    assert!(proof.check(&[], None).is_err());
    let text = proof.to_string();
    for changed in [text.replace("index 7", "index 6"), text.replace("\n300\n", "\n301\n")] {
        assert!(changed.parse::<Proof>().unwrap().check(&keys, None).is_err());
    }
    for wrong in [
        String::new(),
        text.replace("@v1", "@v2"),
        text.replace("index 7", "index 07"),
        text.replace("index 7\n", ""),
        text.replacen("extra ", "extra %", 1),
        text.replace("\n\n", "\nAAAA\n\n"),
        text.split("\n\n").next().unwrap().to_owned(),
    ] {
        assert!(wrong.parse::<Proof>().is_err(), "{wrong}");
    }
    let tile = log.path().join("tile/0/000");
    let mut bytes = fs::read(&tile).unwrap();
    bytes[0] ^= 1;
    fs::write(tile, bytes).unwrap();
    let error = Proof::of(log.path(), 7).unwrap_err().to_string();
    assert!(error.contains("verify the log"), "{error}");
}
