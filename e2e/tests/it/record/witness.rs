//! A witness of a log, built from third-party notes, trees and signatures.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::Signer;
use lucid_e2e::eventually;
use serde_json::Value;
use sha2::{Digest, Sha256};
use signed_note::{StandardVerifier, VerifierList};

use super::{authorities, decide, key, sealed, status};
use crate::common::{cluster, metric, operator};
use crate::correlation::audit;

const ORIGIN: &str = "lucid.computing/test/0";

/// A witness according to C2SP tlog-witness.
struct Witness {
    name: String,
    key: ed25519_dalek::SigningKey,
    /// Key of the watched log.
    log: String,
    /// Latest state of the log: size, root, and the cosigned checkpoint.
    seen: Mutex<Option<(u64, [u8; 32], String)>>,
}

type Answer = (&'static str, String);

impl Witness {
    /// Starts the witness; returns it and the submission prefix.
    fn serve(name: &str, seed: u8, log: &str) -> (Arc<Self>, String) {
        let key = ed25519_dalek::SigningKey::from_bytes(&[seed; 32]);
        let (name, log) = (name.to_owned(), log.to_owned());
        let witness = Arc::new(Self { name, key, log, seen: Mutex::default() });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let prefix = format!("http://{}/{}/", listener.local_addr().unwrap(), witness.name);
        let serving = Arc::clone(&witness);
        std::thread::spawn(move || listener.incoming().for_each(|stream| serving.respond(stream.unwrap())));
        (witness, prefix)
    }

    fn public(&self) -> Vec<u8> {
        [&[4], &self.key.verifying_key().to_bytes()[..]].concat()
    }

    fn id(&self) -> [u8; 4] {
        let hash =
            Sha256::new().chain_update(&self.name).chain_update("\n").chain_update(self.public()).finalize();
        hash[..4].try_into().unwrap()
    }

    fn vkey(&self) -> String {
        format!("{}+{:08x}+{}", self.name, u32::from_be_bytes(self.id()), STANDARD.encode(self.public()))
    }

    fn respond(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut head = Vec::new();
        while !head.ends_with(&["\r\n".to_owned()]) {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            head.push(line);
        }
        let header = |name: &str| {
            head.iter().find_map(|line| line.to_lowercase().strip_prefix(name).map(str::to_owned))
        };
        let length = header("content-length: ").map_or(0, |text| text.trim().parse().unwrap());
        let mut body = vec![0; length];
        lines.read_exact(&mut body).unwrap();
        let (status, text) = if head[0].starts_with(&format!("POST /{}/add-checkpoint HTTP", self.name)) {
            self.add(str::from_utf8(&body).unwrap())
        } else {
            ("404 Not Found", String::new())
        };
        let length = text.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        stream.write_all((head + &text).as_bytes()).unwrap();
    }

    fn add(&self, body: &str) -> Answer {
        let (head, note) = body.split_once("\n\n").unwrap();
        let mut lines = head.lines();
        let old: u64 = lines.next().unwrap().strip_prefix("old ").unwrap().parse().unwrap();
        let decode = |line: &str| tlog_tiles::Hash(STANDARD.decode(line).unwrap().try_into().unwrap());
        let proof: Vec<_> = lines.map(decode).collect();
        let trusted = VerifierList::new(vec![Box::new(StandardVerifier::new(&self.log).unwrap())]);
        let read = signed_note::Note::from_bytes(note.as_bytes()).unwrap();
        if read.verify(&trusted).is_err() {
            return ("403 Forbidden", String::new());
        }
        let checkpoint = tlog_tiles::Checkpoint::from_bytes(read.text()).unwrap();
        let (size, root) = (checkpoint.size(), checkpoint.hash());
        let mut seen = self.seen.lock().unwrap();
        let (latest, known) = seen.as_ref().map_or((0, [0; 32]), |(size, root, _)| (*size, *root));
        if old != latest {
            return ("409 Conflict", format!("{latest}\n"));
        }
        let known = tlog_tiles::Hash(known);
        let grown = match old {
            0 => proof.is_empty(),
            _ if old == size => proof.is_empty() && known == *root,
            _ => tlog_tiles::check_tree(&proof, size, *root, old, known).is_ok(),
        };
        if !grown {
            return ("422 Unprocessable Entity", String::new());
        }
        let time = 1_800_000_000_u64;
        let text = str::from_utf8(read.text()).unwrap();
        let signature = self.key.sign(format!("cosignature/v1\ntime {time}\n{text}").as_bytes());
        let bytes = [&self.id()[..], &time.to_be_bytes(), &signature.to_bytes()].concat();
        let line = format!("\u{2014} {} {}\n", self.name, STANDARD.encode(bytes));
        *seen = Some((size, root.0, format!("{note}{line}")));
        ("200 OK", line)
    }

    fn latest(&self) -> String {
        self.seen.lock().unwrap().as_ref().unwrap().2.clone()
    }
}

fn run(arguments: &[&str]) -> (i32, String) {
    let ran = audit(arguments);
    (ran.status.unwrap(), ran.all())
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

#[tokio::test]
async fn logs_are_cosigned_and_rollbacks_are_detected() {
    let cluster = cluster().await;
    let log = cluster.folder().join("decisions");
    let vkey = key(&log, ORIGIN);
    let (one, one_url) = Witness::serve("witness.example/w1", 1, &vkey);
    let (other, other_url) = Witness::serve("witness.example/w2", 2, &vkey);
    let both = format!("{},{}", one.vkey(), other.vkey());
    let begin = |operator| sealed(operator, &log, ORIGIN).flag("--decision-log-witnesses", both.clone());
    let mut operator = operator(&cluster, begin).await;
    let ca = authorities(&cluster, "lucid-operator").await;
    let (path, token) = (log.display().to_string(), super::token(cluster.folder()));
    decide(&cluster, (0..3).map(|number| format!("web-{number}"))).await;
    let sealed = |size: u64| {
        let (operator, ca) = (&operator, &ca);
        eventually("all records are sealed", async move || {
            let log = status(operator, ca).await["log"].clone();
            if log["sealed"] == size { Ok(()) } else { Err(format!("{log}, not {size}")) }
        })
    };
    sealed(6).await;

    // To the writing process, through its own /audit.
    let url = format!("{}/audit/cosignatures", operator.url());
    let hand_over = ["--url", &url, "--token-file", &token, "--ca", &ca];
    let cosign = ["cosign", "--log", &path, "--witness", &both];
    let (code, said) = run(&[&cosign[..], &["--ask", &one_url, "--ask", &other_url], &hand_over].concat());
    let expected = "6 records are cosigned by witness.example/w1\n6 records are cosigned by witness.example/w1, witness.example/w2\n";
    assert_eq!((code, &said[..]), (0, expected));
    assert_eq!(status(&operator, &ca).await["log"]["cosigned"], 6);
    assert_eq!(metric(&operator, "lucid_audit_cosigned_size ").await, 6);
    let (code, said) = run(&[&cosign[..], &["--ask", &one_url], &hand_over[..2], &hand_over[4..]].concat());
    assert!(code == 1 && said.contains("responded with 401"), "{said}");
    let earlier = cluster.folder().join("earlier");
    copy(&log, &earlier);

    // As the log grows, each witness continues from its own state.
    decide(&cluster, (3..6).map(|number| format!("web-{number}"))).await;
    sealed(12).await;
    let (code, said) = run(&[&cosign[..], &["-ojson", "--ask", &one_url], &hand_over].concat());
    let cosigned: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &cosigned["cosigned"]["size"]), (0, &12.into()), "{said}");
    assert!(operator.terminate().unwrap().success());
    let (code, said) = run(&[&cosign[..], &["--ask", &other_url]].concat());
    let expected = "12 records are cosigned by witness.example/w1, witness.example/w2\n";
    assert_eq!((code, &said[..]), (0, expected), "offline");
    let witnesses = ["--witness", &one.vkey(), "--witness", &other.vkey()].map(str::to_owned);
    let witnesses = witnesses.each_ref().map(String::as_str);
    let verify = |log: &Path, more: &[&str]| {
        let log = log.display().to_string();
        run(&[&["verify", &log, "--key", &vkey], &witnesses[..], more].concat())
    };
    let (code, said) = verify(&log, &[]);
    assert!(code == 0 && said.contains("12 sealed, 0 not yet, 12 cosigned by witnesses"), "{said}");
    let stranger = Witness::serve("witness.example/w3", 3, &vkey).0.vkey();
    let (code, said) = verify(&log, &["--witness", &stranger]);
    assert!(
        code == 3 && said.contains("witness: checkpoint.cosigned: ") && said.contains("2 of the 3"),
        "{said}"
    );
    assert!(said.contains("not signed by witness.example/w3"), "{said}");
    assert_eq!(verify(&log, &["--witness", &stranger, "--quorum", "2"]).0, 0);

    // A complete rollback: consistent in itself, but not with the state of the witnesses.
    assert_eq!(verify(&earlier, &[]).0, 0);
    let seen = cluster.folder().join("seen");
    fs::write(&seen, one.latest()).unwrap();
    let seen = ["--quorum", "1", "--cosigned", seen.to_str().unwrap()];
    let (code, said) = verify(&earlier, &seen);
    assert_eq!(code, 3, "{said}");
    assert!(
        said.contains("shrink: seq 6 to 11, ") && said.contains("witness.example/w1 cosigned signs 12"),
        "{said}"
    );
    let earlier_path = earlier.display().to_string();
    let ask = |log: &str| run(&["cosign", "--log", log, "--witness", &both, "--ask", &one_url]);
    let (code, said) = ask(&earlier_path);
    assert_eq!(code, 3, "{said}");
    assert!(
        said.starts_with("shrink: ") && said.contains("has seen 12 records") && said.contains("rolled back"),
        "{said}"
    );

    // Another history signed by the log's own key.
    fs::remove_dir_all(&log).unwrap();
    operator.restart().await.unwrap();
    decide(&cluster, (6..14).map(|number| format!("web-{number}"))).await;
    assert!(operator.terminate().unwrap().success());
    assert_eq!(run(&["verify", &path, "--key", &vkey, "--sealed"]).0, 0);
    let (code, said) = ask(&path);
    assert!(code == 3 && said.starts_with("fork: the first 12 records of lucid.computing/test/0"), "{said}");
    let (code, said) = verify(&log, &seen);
    assert!(
        code == 3 && said.contains("fork: ") && said.contains("witness.example/w1 cosigned signs 12"),
        "{said}"
    );
    let (code, said) = verify(&log, &[]);
    assert!(code == 3 && said.contains("cosigned by 0 of the 2"), "{said}");

    // The cosigned checkpoint stays beside a replaced log: its writer does not continue that log.
    copy(&log.join("checkpoint"), &earlier.join("checkpoint.cosigned"));
    fs::remove_dir_all(&log).unwrap();
    copy(&earlier, &log);
    assert!(operator.restart().await.unwrap_err().to_string().contains("witnesses have cosigned 16 records"));
}
