//! Certificates in files, and all ways in which files change.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use lucid_certs::{
    TrustBundle,
    source::{CertificateSource, FileSource, ObservedTrust, Reason, Trust},
};
use lucid_e2e::AtomicWriter;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::common::{
    DAY, TIMEOUT,
    following::{Following, Watching, ask, by_events, by_polling},
    pairs::Pair,
};

/// Both ways to detect changes, in isolation.
fn both_ways() -> [Watching; 2] {
    [by_events, by_polling]
}

fn by_default(files: FileSource) -> FileSource {
    files
}

struct Scene {
    folder: TempDir,
    source: Following<FileSource>,
}

impl Scene {
    fn new(watching: Watching) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Following::new(watching(FileSource::in_directory(folder.path())));
        Self { folder, source }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, pair: &Pair) {
        pair.write(self.folder.path());
    }

    async fn offers(&mut self, pair: &Pair) {
        self.source.offers(pair.fingerprint).await;
    }

    async fn refuses(&mut self, reason: Reason, says: &str) {
        let error = self.source.refuses_saying(reason, says).await;
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn files_written_in_place_are_offered_once_complete() {
    files_are_offered_once(|scene, name, content| fs::write(scene.path(name), content).unwrap()).await;
}

#[tokio::test]
async fn files_renamed_over_others_are_offered() {
    let rename = |scene: &Scene, name: &str, content: &[u8]| {
        fs::write(scene.path("new"), content).unwrap();
        fs::rename(scene.path("new"), scene.path(name)).unwrap();
    };
    files_are_offered_once(rename).await;
}

async fn files_are_offered_once(put: impl Fn(&Scene, &str, &[u8])) {
    for watching in both_ways() {
        let mut scene = Scene::new(watching);
        for pair in Pair::several::<3>() {
            pair.files().iter().for_each(|(name, content)| put(&scene, name, content));
            scene.offers(&pair).await;
        }
    }
}

#[tokio::test]
async fn a_certificate_is_offered_once_its_key_matches() {
    for watching in both_ways() {
        let [first, second] = Pair::several();
        let mut scene = Scene::new(watching);
        scene.write(&first);
        scene.offers(&first).await;
        fs::write(scene.path("tls.crt"), &second.certificate).unwrap();
        scene.refuses(Reason::Mismatch, "tls.key").await;
        fs::write(scene.path("tls.key"), &second.key).unwrap();
        scene.refuses(Reason::Untrusted, "ca.crt does not verify").await;
        fs::write(scene.path("ca.crt"), &second.ca).unwrap();
        scene.offers(&second).await;
    }
}

#[tokio::test]
async fn truncated_and_empty_files_are_rejected() {
    for watching in both_ways() {
        let pair = Pair::new();
        let mut scene = Scene::new(watching);
        scene.write(&pair);
        scene.offers(&pair).await;
        for (name, content) in pair.files() {
            for length in [content.len() / 2, 0] {
                fs::write(scene.path(&name), &content[..length]).unwrap();
                scene.refuses(Reason::Malformed, &name).await;
                fs::write(scene.path(&name), &content).unwrap();
                scene.offers(&pair).await;
            }
        }
    }
}

#[tokio::test]
async fn a_recreated_directory_is_followed() {
    for watching in both_ways() {
        let [first, second, third] = Pair::several();
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("certificates");
        let mut source = Following::new(watching(FileSource::in_directory(&folder)));
        for pair in [&first, &second, &third] {
            fs::create_dir(&folder).unwrap();
            pair.write(&folder);
            source.offers(pair.fingerprint).await;
            fs::remove_dir_all(&folder).unwrap();
            let error = source.refuses(Reason::Missing).await;
            assert!(error.to_string().contains("tls.crt: there is no such file"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_replaced_directory_is_followed() {
    for watching in both_ways() {
        let [first, second, third] = Pair::several();
        let outer = tempfile::tempdir().unwrap();
        let [folder, next, before] = ["now", "next", "before"].map(|name| outer.path().join(name));
        let mut source = Following::new(watching(FileSource::in_directory(&folder)));
        fs::create_dir(&folder).unwrap();
        first.write(&folder);
        source.offers(first.fingerprint).await;
        for pair in [&second, &third] {
            fs::create_dir(&next).unwrap();
            pair.write(&next);
            fs::rename(&folder, &before).unwrap();
            fs::rename(&next, &folder).unwrap();
            source.offers(pair.fingerprint).await;
            fs::remove_dir_all(&before).unwrap();
        }
        // The watch follows the new directory, not the replaced one.
        first.write(&folder);
        source.offers(first.fingerprint).await;
    }
}

#[tokio::test]
async fn files_created_later_are_picked_up() {
    for watching in both_ways() {
        let pair = Pair::new();
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("not/yet/there");
        let mut source = Following::new(watching(FileSource::in_directory(&folder)));
        source.refuses(Reason::Missing).await;
        // One step at a time, with a read by the source in between.
        let pause = Duration::from_millis(60);
        for ancestor in ["not", "not/yet", "not/yet/there"] {
            fs::create_dir(outer.path().join(ancestor)).unwrap();
            drop(timeout(pause, source.source.changed()).await);
        }
        for (name, content) in pair.files() {
            fs::write(folder.join(name), content).unwrap();
            drop(timeout(pause, source.source.changed()).await);
        }
        source.offers(pair.fingerprint).await;
    }
}

#[tokio::test]
async fn a_volume_is_followed_through_nested_symbolic_links() {
    for watching in both_ways() {
        let [first, second, third] = Pair::several();
        let outer = tempfile::tempdir().unwrap();
        let at = |name: &str| outer.path().join(name);
        for folder in ["volume", "links"] {
            fs::create_dir(at(folder)).unwrap();
        }
        // mount -> links; links/tls.crt -> ../volume/tls.crt -> ..data/tls.crt -> versioned directory
        symlink("links", at("mount")).unwrap();
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(Path::new("../volume").join(name), at("links").join(name)).unwrap();
        }
        let volume = AtomicWriter::new(at("volume"));
        let mut source = Following::new(watching(FileSource::in_directory(at("mount"))));
        let error = source.refuses(Reason::Missing).await;
        assert!(error.to_string().contains("tls.crt: it is a dangling symbolic link"), "{error}");
        for pair in [&first, &second, &third] {
            volume.write(&pair.files()).unwrap();
            source.offers(pair.fingerprint).await;
        }
        // Another volume behind the same links.
        fs::create_dir(at("other")).unwrap();
        AtomicWriter::new(at("other")).write(&first.files()).unwrap();
        fs::remove_file(at("mount")).unwrap();
        symlink("other", at("mount")).unwrap();
        source.offers(first.fingerprint).await;
    }
}

#[tokio::test]
async fn a_symbolic_link_loop_is_an_error_that_names_the_file() {
    let mut scene = Scene::new(by_default);
    scene.write(&Pair::new());
    fs::remove_file(scene.path("tls.crt")).unwrap();
    symlink("tls.crt", scene.path("tls.crt")).unwrap();
    scene.refuses(Reason::Unreadable, "tls.crt: more than 40 links").await;
}

#[tokio::test]
async fn only_regular_files_within_the_size_limit_are_read() {
    for watching in both_ways() {
        let pair = Pair::new();
        let mut scene = Scene::new(watching);
        scene.write(&pair);
        scene.offers(&pair).await;
        let key = scene.path("tls.key");

        fs::remove_file(&key).unwrap();
        fs::create_dir(&key).unwrap();
        scene.refuses(Reason::Unreadable, "tls.key: expected a file, found a directory").await;

        fs::remove_dir(&key).unwrap();
        assert!(Command::new("mkfifo").arg(&key).status().unwrap().success());
        scene.refuses(Reason::Unreadable, "tls.key: it is not a regular file").await;

        fs::remove_file(&key).unwrap();
        fs::write(&key, vec![b'\n'; (1 << 20) + 1]).unwrap();
        scene.refuses(Reason::Unreadable, "tls.key: it is larger than the limit of 1048576 bytes").await;

        fs::write(&key, &pair.key).unwrap();
        scene.offers(&pair).await;
    }
}

#[tokio::test]
async fn errors_name_the_file_and_the_problem() {
    let [pair, other] = Pair::several();
    let mut scene = Scene::new(by_default);
    let joined = pair.ca.trim_end().to_owned() + &other.ca;
    let critical = {
        let mut params = CertificateParams::default();
        let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, 35], vec![0x30, 0]);
        extension.set_criticality(true);
        params.custom_extensions = vec![extension];
        params.self_signed(&KeyPair::from_pem(&pair.key).unwrap()).unwrap().pem()
    };
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let malformed = [
        ("tls.crt", pair.key.as_str(), ": failed to read the certificate: failed to find a certificate"),
        ("tls.crt", "no PEM", ": failed to read the certificate"),
        ("tls.crt", no_certificate, ": failed to parse certificate 1"),
        (
            "tls.crt",
            &critical,
            ": failed to parse certificate 1 of the chain: authorityKeyIdentifier: expected",
        ),
        ("tls.key", &pair.certificate, ": failed to read the private key: failed to find a private key"),
        ("tls.key", no_key, ": failed to use the private key: expected ECDSA P-256 to P-521, Ed25519 or RSA"),
        ("ca.crt", &pair.key, ": failed to read the trust bundle"),
        ("ca.crt", &critical, ": failed to read certificate 1 of the trust bundle: authorityKeyIdentifier"),
        ("ca.crt", &joined, ": failed to read the trust bundle: failed to read PEM: line"),
    ];
    let others = [
        (
            Reason::Mismatch,
            ("tls.key", &*other.key, ": failed to match the private key with the certificate"),
        ),
        (Reason::Untrusted, ("ca.crt", &other.ca, " does not verify")),
    ];
    for (reason, (name, content, says)) in
        malformed.map(|row| (Reason::Malformed, row)).into_iter().chain(others)
    {
        scene.write(&pair);
        scene.offers(&pair).await;
        fs::write(scene.path(name), content).unwrap();
        scene.refuses(reason, &format!("{name}{says}")).await;
    }
}

#[tokio::test]
async fn errors_and_debug_output_contain_no_keys() {
    let pair = Pair::new();
    let mut scene = Scene::new(by_default);
    // As left by an editor or a template engine that drops line breaks.
    let secret = pair.key.replace('\n', "");
    for (name, content) in [("tls.key", &secret), ("tls.crt", &secret), ("ca.crt", &secret)] {
        scene.write(&pair);
        fs::write(scene.path(name), content).unwrap();
        let error = scene.source.refuses(Reason::Malformed).await;
        let shown = format!("{error} {error:?} {:?}", scene.source.source);
        let body: String = pair.key.lines().filter(|line| !line.starts_with("---")).collect();
        for window in body.as_bytes().windows(12) {
            assert!(!shown.contains(std::str::from_utf8(window).unwrap()), "{shown}");
        }
    }
}

#[tokio::test]
async fn the_bundle_is_published_only_on_request() {
    let pair = Pair::new();
    let mut scene = Scene::new(by_default);
    scene.write(&pair);
    assert_eq!(ask(&mut scene.source.source).await.unwrap().trust, Trust::External);

    let mut publishing = Following::new(FileSource::in_directory(scene.folder.path()).with_publishing());
    assert_eq!(ask(&mut publishing.source).await.unwrap().trust, Trust::AtLeast(pair.bundle()));

    fs::remove_file(scene.path("ca.crt")).unwrap();
    scene.offers(&pair).await;
    assert_eq!(ask(&mut scene.source.source).await.unwrap().trust, Trust::External);
    let itself = Trust::AtLeast(TrustBundle::from_pem(pair.certificate.as_bytes()).unwrap());
    let mut alone = FileSource::in_directory(scene.folder.path()).with_publishing();
    assert_eq!(ask(&mut alone).await.unwrap().trust, itself);
}

#[tokio::test]
async fn expired_certificates_are_offered_and_checked_by_the_driver() {
    let mut scene = Scene::new(by_default);
    let pair = Pair::new();
    scene.write(&pair);
    let later = SystemTime::now() + 10_000 * 365 * DAY;
    let offer = scene.source.source.offer(&ObservedTrust::default(), later).await.unwrap();
    assert_eq!(offer.certificate.as_ref().unwrap().fingerprint(), pair.fingerprint);
    assert!(offer.certificate.unwrap().validity().not_after < later);
}

#[tokio::test]
async fn certificate_and_key_may_share_a_file() {
    for watching in both_ways() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("both.pem");
        let mut source = Following::new(watching(FileSource::new(&path, &path)));
        for pair in Pair::several::<2>() {
            fs::write(&path, pair.certificate.clone() + &pair.key).unwrap();
            source.offers(pair.fingerprint).await;
        }
    }
}

#[tokio::test]
async fn waiting_for_a_change_is_cancel_safe() {
    for watching in both_ways() {
        let mut scene = Scene::new(watching);
        let first = Pair::new();
        scene.write(&first);
        scene.offers(&first).await;
        for (pair, pause) in Pair::several::<5>().iter().zip([0, 1, 10, 26, 40]) {
            scene.write(pair);
            // Cancelled early, at a different time in each iteration.
            drop(timeout(Duration::from_millis(pause), scene.source.source.changed()).await);
            // Not preceded by `offer`, which would read the files even without an event.
            timeout(TIMEOUT, scene.source.source.changed()).await.unwrap();
            scene.offers(pair).await;
        }
    }
}
