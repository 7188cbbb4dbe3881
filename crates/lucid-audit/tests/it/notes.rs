//! Notes and checkpoints compared with a third-party implementation.

use std::fs;

use lucid_audit::note::{Note, SigningKey, VerifierKey};
use signed_note::{Signer, StandardSigner, StandardVerifier, VerifierList};

use crate::support::format::CHECKPOINT;
use crate::support::{self, ORIGIN};

#[test]
fn signed_note_reads_our_keys_and_checkpoints() {
    let key = SigningKey::generate(ORIGIN).unwrap();
    let folder = tempfile::tempdir().unwrap();
    drop(support::open(folder.path(), &key));
    let note = fs::read_to_string(folder.path().join(CHECKPOINT)).unwrap();
    let verifier = StandardVerifier::new(&key.verifier().to_string()).unwrap();
    let verifiers = VerifierList::new(vec![Box::new(verifier)]);
    let read = signed_note::Note::from_bytes(note.as_bytes()).unwrap();
    let (verified, unverified) = read.verify(&verifiers).unwrap();
    assert_eq!((verified.len(), unverified.len()), (1, 0));
    let theirs = tlog_tiles::Checkpoint::from_bytes(read.text()).unwrap();
    assert_eq!((theirs.origin(), theirs.size(), theirs.hash().0), (ORIGIN, 0, tlog_tiles::EMPTY_HASH.0));
}

#[test]
fn keys_and_notes_of_signed_note_are_read() {
    let ours = SigningKey::generate(ORIGIN).unwrap();
    let signer = StandardSigner::new(&ours.to_secret()).unwrap();
    let id = format!("{ORIGIN}+{:08x}+", signer.key_id());
    assert!(signer.name() == ORIGIN && ours.verifier().to_string().starts_with(&id), "{id}");
    let mut note = signed_note::Note::new(b"text\n\nmore\n", &[]).unwrap();
    note.add_sigs(&[&signer]).unwrap();
    let read: Note = String::from_utf8(note.to_bytes()).unwrap().parse().unwrap();
    assert_eq!(read.text(), "text\n\nmore\n");
    read.verify(ours.verifier()).unwrap();
    let vkey: VerifierKey = ours.verifier().to_string().parse().unwrap();
    read.verify(&vkey).unwrap();
}
