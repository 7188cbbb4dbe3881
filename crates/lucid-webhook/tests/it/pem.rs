//! A certificate in files that somebody else replaces.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lucid_certs::{ClientCertificates, ServerTls};
use lucid_webhook::{PemFiles, Tls};
use rcgen::ExtendedKeyUsagePurpose;
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use crate::handlers::{Written, another_subscriber};
use crate::server::Echo;
use crate::wire::{self, Authority, Http1};

const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";

/// A certificate and its key, also in PEM.
struct Pair {
    der: CertificateDer<'static>,
    chain: String,
    key: String,
}

impl Pair {
    fn new(authority: &Authority) -> Self {
        let identity = authority.issue(ExtendedKeyUsagePurpose::ServerAuth, "server", &["localhost"]);
        let der = identity.chain[0].clone();
        Self { chain: pem("CERTIFICATE", &der), key: pem("PRIVATE KEY", identity.key.secret_der()), der }
    }

    fn write(&self, folder: &Path) {
        fs::write(folder.join(CHAIN), &self.chain).unwrap();
        fs::write(folder.join(KEY), &self.key).unwrap();
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

async fn load(folder: &Path) -> Result<PemFiles, lucid_webhook::PemFilesError> {
    PemFiles::load(folder.join(CHAIN), folder.join(KEY)).await
}

/// A server with the pair in a folder.
struct Scene {
    authority: Authority,
    folder: TempDir,
    echo: Echo,
}

impl Scene {
    /// `lay` puts the first pair into the folder.
    async fn start(lay: impl FnOnce(&Pair, &Path)) -> Self {
        let authority = Authority::new();
        let first = Pair::new(&authority);
        Self::start_with(authority, &first, lay).await
    }

    async fn start_with(authority: Authority, first: &Pair, lay: impl FnOnce(&Pair, &Path)) -> Self {
        let folder = TempDir::new().unwrap();
        lay(first, folder.path());
        let echo = Echo::start(load(folder.path()).await.unwrap(), |server| server).await;
        let scene = Self { authority, folder, echo };
        assert_eq!(scene.shown().await, first.der);
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// That the last that was logged about this folder is `says`, and nothing was logged twice.
    fn assert_said_once(&self, log: &str, says: &str) {
        let folder = self.folder.path().display().to_string();
        let errors = log.lines().filter(|line| line.contains("ERROR") && line.contains(&folder));
        let mut said: Vec<_> =
            errors.map(|line| line.split_once("the certificate in use stays: ").unwrap().1).collect();
        assert!(said.last().is_some_and(|last| last.contains(says)), "{says}: {said:?}");
        let count = said.len();
        said.sort_unstable();
        said.dedup();
        assert_eq!(said.len(), count, "{log}");
    }

    /// What a new connection is shown.
    async fn shown(&self) -> CertificateDer<'static> {
        let stream = wire::connect(self.echo.address, self.authority.client_config("")).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    }

    async fn becomes(&self, pair: &Pair) {
        let shown = async {
            while self.shown().await != pair.der {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), shown).await.expect("the new certificate is not shown");
    }

    /// Long enough for the files to be read twice.
    async fn stays(&self, pair: &Pair) {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(self.shown().await == pair.der, "it is another certificate");
        }
    }
}

#[tokio::test]
async fn files_may_be_written_in_place_and_one_after_the_other() {
    let scene = Scene::start(Pair::write).await;
    let mut standing =
        Http1::connect(scene.echo.address, scene.authority.client_config("http/1.1")).await.unwrap();
    let second = Pair::new(&scene.authority);
    second.write(scene.folder.path());
    scene.becomes(&second).await;
    let third = Pair::new(&scene.authority);
    fs::write(scene.path(KEY), &third.key).unwrap();
    scene.stays(&second).await;
    fs::write(scene.path(CHAIN), &third.chain).unwrap();
    scene.becomes(&third).await;
    assert_eq!(standing.post("/", "1").await.unwrap().status, 200, "a connection that stood was ended");
}

#[tokio::test]
async fn files_may_be_renamed_into_place() {
    let scene = Scene::start(Pair::write).await;
    let second = Pair::new(&scene.authority);
    for (name, text) in [(CHAIN, &second.chain), (KEY, &second.key)] {
        fs::write(scene.path("new"), text).unwrap();
        fs::rename(scene.path("new"), scene.path(name)).unwrap();
    }
    scene.becomes(&second).await;
}

#[tokio::test]
async fn a_mounted_secret_is_replaced_by_its_symlink() {
    fn put(pair: &Pair, folder: &Path, name: &str) {
        fs::create_dir(folder.join(name)).unwrap();
        pair.write(&folder.join(name));
        symlink(name, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    }
    let scene = Scene::start(|first, folder| {
        put(first, folder, "..2026_01_01");
        for name in [CHAIN, KEY] {
            symlink(Path::new("..data").join(name), folder.join(name)).unwrap();
        }
    })
    .await;
    let second = Pair::new(&scene.authority);
    put(&second, scene.folder.path(), "..2026_01_02");
    fs::remove_dir_all(scene.path("..2026_01_01")).unwrap();
    scene.becomes(&second).await;
}

/// Chain and key to write, of the pair in use and another one.
type Breakage = fn(&Pair, &Pair) -> (String, String);

#[tokio::test]
async fn of_what_is_no_pair_the_cause_is_logged_once_and_the_last_good_one_stays() {
    let log = Written::default();
    let writer = {
        let log = log.clone();
        move || log.clone()
    };
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
    let _other = another_subscriber();
    let _logging = tracing::subscriber::set_default(subscriber);

    fn half(text: &str) -> String {
        text[..text.len() / 2].to_owned()
    }
    let cases: [(Breakage, &str); 8] = [
        (|it, _| ("garbage".to_owned(), it.key.clone()), "<chain> holds no certificate"),
        (|it, _| (half(&it.chain), it.key.clone()), "failed to read <chain> as PEM: "),
        (|it, _| (it.chain.clone(), String::new()), "<key> holds no private key"),
        (|it, _| (it.chain.clone(), half(&it.key)), "failed to read <key> as PEM: "),
        (|it, _| (it.chain.clone(), pem("PRIVATE KEY", b"no")), "failed to use the key in <key>: "),
        (|it, _| (pem("CERTIFICATE", b"no"), it.key.clone()), "the key in <key> is not that of "),
        (|it, other| (it.chain.clone(), other.key.clone()), "not that of the certificate in <chain>: "),
        (|_, other| (other.chain.clone(), pem("NOTHING", b"")), "<key> holds no private key"),
    ];
    futures::future::join_all(cases.map(async |(breakage, says)| {
        let authority = Authority::new();
        let (first, other) = (Pair::new(&authority), Pair::new(&authority));
        let scene = Scene::start_with(authority, &first, Pair::write).await;
        let (chain, key) = breakage(&first, &other);
        fs::write(scene.path(KEY), key).unwrap();
        fs::write(scene.path(CHAIN), chain).unwrap();
        scene.stays(&first).await;
        let says = says.replace("<chain>", &scene.path(CHAIN).display().to_string());
        let says = says.replace("<key>", &scene.path(KEY).display().to_string());
        scene.assert_said_once(&log.text(), &says);
        fs::remove_file(scene.path(CHAIN)).unwrap();
        scene.stays(&first).await;
        scene.assert_said_once(&log.text(), &format!("failed to read {}: ", scene.path(CHAIN).display()));
        other.write(scene.folder.path());
        scene.becomes(&other).await;
        assert!(!log.text().contains(&other.key[40..60]), "a key in the log");
    }))
    .await;
}

#[tokio::test]
async fn a_pair_that_cannot_be_used_is_an_error_at_the_start_that_names_the_file() {
    let authority = Authority::new();
    let (pair, other) = (Pair::new(&authority), Pair::new(&authority));
    for (chain, key, says) in [
        (None, Some(&pair.key), "failed to read <chain>: No such file"),
        (Some(&pair.chain), None, "failed to read <key>: No such file"),
        (Some(&pair.key), Some(&pair.key), "<chain> holds no certificate"),
        (Some(&pair.chain), Some(&pair.chain), "<key> holds no private key"),
        (Some(&pair.chain), Some(&other.key), "the key in <key> is not that of the certificate in <chain>: "),
    ] {
        let folder = TempDir::new().unwrap();
        for (name, text) in [(CHAIN, chain), (KEY, key)] {
            if let Some(text) = text {
                fs::write(folder.path().join(name), text).unwrap();
            }
        }
        let error = load(folder.path()).await.unwrap_err().to_string();
        let path = |name| folder.path().join(name).display().to_string();
        let says = says.replace("<chain>", &path(CHAIN)).replace("<key>", &path(KEY));
        assert!(error.starts_with(&says), "{error}, not {says}");
    }
}

#[tokio::test]
async fn the_files_are_read_for_as_long_as_something_uses_them() {
    let (authority, folder) = (Authority::new(), TempDir::new().unwrap());
    Pair::new(&authority).write(folder.path());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let none = tasks();
    let files = load(folder.path()).await.unwrap();
    let resolver = files.resolver();
    let tls = Tls::from(files);
    drop(resolver);
    tokio::task::yield_now().await;
    assert_eq!(tasks(), none + 1, "the server has them");
    drop(tls);
    tokio::task::yield_now().await;
    assert_eq!(tasks(), none);
}

#[tokio::test]
async fn a_server_that_asks_for_certificates_may_have_its_own_in_files() {
    let (authority, folder) = (Authority::new(), TempDir::new().unwrap());
    let pair = Pair::new(&authority);
    pair.write(folder.path());
    let files = load(folder.path()).await.unwrap();
    let clients = ClientCertificates::required(authority.pem.as_bytes()).unwrap();
    let tls = ServerTls::new(files.resolver()).with_clients(&clients).build().unwrap();
    drop(files);
    let echo = Echo::start(tls, |server| server).await;
    let identity = authority.client("jane", &[]);
    let config = authority.client_config_of("http/1.1", rustls::ALL_VERSIONS, Some(&identity));
    let mut client = Http1::connect(echo.address, config).await.unwrap();
    assert_eq!(client.stream.get_ref().1.peer_certificates().unwrap()[0], pair.der);
    assert_eq!(client.post("/", "").await.unwrap().body, b"POST / jane  ");
}
