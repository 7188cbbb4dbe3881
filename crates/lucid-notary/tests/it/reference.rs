//! Image references: tables of edge cases, and properties checked against a regular expression of the grammar.

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

use lucid_notary::ImageReference;
use lucid_notary::reference::Part;
use proptest::prelude::*;
use regex::Regex;

const SHA256: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn sha512() -> String {
    format!("sha512:{}", "0123456789abcdef".repeat(8))
}

/// Expands `S256` and `S512` to digests and `(x)*n` to n times x.
fn expand(case: &str) -> String {
    static REPEAT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\(([^)]*)\)\*([0-9]+)").unwrap());
    let text = case.replace("S256", SHA256).replace("S512", &sha512());
    REPEAT
        .replace_all(&text, |found: &regex::Captures<'_>| found[1].repeat(found[2].parse().unwrap()))
        .into_owned()
}

/// Reference, registry, repository, tag and digest.
type Accepted = (&'static str, &'static str, &'static str, Option<&'static str>, Option<&'static str>);

const ACCEPTED: &[Accepted] = &[
    // Names without a registry belong to Docker Hub.
    ("busybox", "docker.io", "library/busybox", None, None),
    ("busybox:1.36", "docker.io", "library/busybox", Some("1.36"), None),
    ("busybox@S256", "docker.io", "library/busybox", None, Some("S256")),
    ("busybox:1.36@S256", "docker.io", "library/busybox", Some("1.36"), Some("S256")),
    ("busybox@S512", "docker.io", "library/busybox", None, Some("S512")),
    ("team/model", "docker.io", "team/model", None, None),
    ("team/area/model:v2", "docker.io", "team/area/model", Some("v2"), None),
    ("library/busybox", "docker.io", "library/busybox", None, None),
    ("library/area/busybox", "docker.io", "library/area/busybox", None, None),
    ("docker.io/busybox", "docker.io", "library/busybox", None, None),
    ("docker.io/library/busybox", "docker.io", "library/busybox", None, None),
    ("docker.io/team/model", "docker.io", "team/model", None, None),
    ("index.docker.io/busybox", "docker.io", "library/busybox", None, None),
    ("index.docker.io/library/busybox:1", "docker.io", "library/busybox", Some("1"), None),
    ("index.docker.io/team/model", "docker.io", "team/model", None, None),
    // Only the exact name denotes Docker Hub.
    ("docker.io:443/busybox", "docker.io:443", "busybox", None, None),
    ("Docker.io/busybox", "Docker.io", "busybox", None, None),
    ("registry-1.docker.io/busybox", "registry-1.docker.io", "busybox", None, None),
    ("docker.io.example/busybox", "docker.io.example", "busybox", None, None),
    // A single component is never a registry.
    ("localhost", "docker.io", "library/localhost", None, None),
    ("localhost:5000", "docker.io", "library/localhost", Some("5000"), None),
    ("registry.example", "docker.io", "library/registry.example", None, None),
    ("registry.example:5000", "docker.io", "library/registry.example", Some("5000"), None),
    ("10.0.0.1", "docker.io", "library/10.0.0.1", None, None),
    ("10.0.0.1:80", "docker.io", "library/10.0.0.1", Some("80"), None),
    ("docker.io", "docker.io", "library/docker.io", None, None),
    ("under_score.example:8080", "docker.io", "library/under_score.example", Some("8080"), None),
    // First components that are registries.
    ("localhost/model", "localhost", "model", None, None),
    ("localhost:5000/model", "localhost:5000", "model", None, None),
    ("localhosts/model", "docker.io", "localhosts/model", None, None),
    ("registry/model", "docker.io", "registry/model", None, None),
    ("registry:5000/model", "registry:5000", "model", None, None),
    ("registry:5000/model:tag", "registry:5000", "model", Some("tag"), None),
    ("registry:5000/model:5050", "registry:5000", "model", Some("5050"), None),
    ("registry:5000/model:tag@S256", "registry:5000", "model", Some("tag"), Some("S256")),
    ("registry.example/model", "registry.example", "model", None, None),
    ("REGISTRY/model", "REGISTRY", "model", None, None),
    ("rEgistry/team/model", "rEgistry", "team/model", None, None),
    ("Registry.Example/team/model", "Registry.Example", "team/model", None, None),
    ("a.b/c", "a.b", "c", None, None),
    ("0.1/c", "0.1", "c", None, None),
    ("a-b.c--d/e", "a-b.c--d", "e", None, None),
    (
        "xn--bcher-kva.example/model:xn--bcher-kva.example",
        "xn--bcher-kva.example",
        "model",
        Some("xn--bcher-kva.example"),
        None,
    ),
    ("a:0/b", "a:0", "b", None, None),
    ("a:123456789/b", "a:123456789", "b", None, None),
    ("10.0.0.1/model", "10.0.0.1", "model", None, None),
    ("10.0.0.1:5000/team/model", "10.0.0.1:5000", "team/model", None, None),
    // Bracketed IPv6 addresses.
    ("[::1]/model", "[::1]", "model", None, None),
    ("[::1]:5000/model", "[::1]:5000", "model", None, None),
    ("[2001:db8::1]:5000/team/model:tag@S256", "[2001:db8::1]:5000", "team/model", Some("tag"), Some("S256")),
    ("[2001:DB8:0:0:0:0:0:1]/model", "[2001:DB8:0:0:0:0:0:1]", "model", None, None),
    // Separators in a repository.
    ("a.b_c__d-e--f---g", "docker.io", "library/a.b_c__d-e--f---g", None, None),
    ("registry.example/a__b/c-----d", "registry.example", "a__b/c-----d", None, None),
    ("team/under_score.example:8080", "docker.io", "team/under_score.example", Some("8080"), None),
    ("0/1/2", "docker.io", "0/1/2", None, None),
    // Tags.
    ("a:A", "docker.io", "library/a", Some("A"), None),
    ("a:_", "docker.io", "library/a", Some("_"), None),
    ("a:0.-_", "docker.io", "library/a", Some("0.-_"), None),
    ("a:v1..--__", "docker.io", "library/a", Some("v1..--__"), None),
    ("a:(x)*128", "docker.io", "library/a", Some("(x)*128"), None),
    // 64 hexadecimal digits with a registry, path, tag or digest are a name.
    ("docker.io/(a1)*32", "docker.io", "library/(a1)*32", None, None),
    ("(a1)*32:tag", "docker.io", "library/(a1)*32", Some("tag"), None),
    ("(a1)*31a", "docker.io", "library/(a1)*31a", None, None),
    ("(a1)*32a", "docker.io", "library/(a1)*32a", None, None),
    ("(z1)*32", "docker.io", "library/(z1)*32", None, None),
    ("(a1)*32@S256", "docker.io", "library/(a1)*32", None, Some("S256")),
    ("(a1)*32/model", "docker.io", "(a1)*32/model", None, None),
    ("registry.example/(a1)*32", "registry.example", "(a1)*32", None, None),
    // Unusual but valid references.
    ("localhost/localhost:localhost", "localhost", "localhost", Some("localhost"), None),
    ("LOCALHOST/model", "LOCALHOST", "model", None, None),
    ("index.docker.io:443/model", "index.docker.io:443", "model", None, None),
    ("docker.io/index.docker.io/model", "docker.io", "index.docker.io/model", None, None),
    ("[:]/model", "[:]", "model", None, None),
    ("[::]:0/a:0@S512", "[::]:0", "a", Some("0"), Some("S512")),
    ("a:00000/b", "a:00000", "b", None, None),
    ("1.2.3.4.5/a", "1.2.3.4.5", "a", None, None),
    ("registry.example:5000/a/b/c/d/e/f:g", "registry.example:5000", "a/b/c/d/e/f", Some("g"), None),
    // The limit applies to the normalized repository.
    ("registry.example/(a)*255", "registry.example", "(a)*255", None, None),
    ("(a)*247", "docker.io", "library/(a)*247", None, None),
    ("(b/)*127a", "docker.io", "(b/)*127a", None, None),
];

const REFUSED: &[(&str, Part, usize)] = &[
    ("", Part::Repository, 0),
    ("(a1)*32", Part::Repository, 0),
    (" ", Part::Repository, 0),
    ("busybox ", Part::Repository, 7),
    ("\tbusybox", Part::Repository, 0),
    ("busy\nbox", Part::Repository, 4),
    ("busybox\0", Part::Repository, 7),
    ("Busybox", Part::Repository, 0),
    ("Busybox:tag", Part::Repository, 0),
    ("team/Model", Part::Repository, 5),
    ("registry.example/team/modeL", Part::Repository, 26),
    ("REGISTRY/Model", Part::Repository, 9),
    ("bücher", Part::Repository, 1),
    ("büch.example/model", Part::Registry, 1),
    ("team/mоdel", Part::Repository, 6), // a Cyrillic o
    ("/model", Part::Repository, 0),
    ("team/", Part::Repository, 5),
    ("team//model", Part::Repository, 5),
    ("registry.example/", Part::Repository, 17),
    ("registry.example//model", Part::Repository, 17),
    ("registry.example/:tag", Part::Repository, 17),
    ("registry.example/@S256", Part::Repository, 17),
    (":tag", Part::Repository, 0),
    ("@S256", Part::Repository, 0),
    ("@", Part::Repository, 0),
    ("/", Part::Repository, 0),
    ("-model", Part::Repository, 0),
    ("model-", Part::Repository, 5),
    ("model--", Part::Repository, 6),
    ("_model", Part::Repository, 0),
    ("model_", Part::Repository, 5),
    (".model", Part::Repository, 0),
    ("model.", Part::Repository, 5),
    ("team-/model", Part::Repository, 4),
    ("a..b", Part::Repository, 2),
    ("a___b", Part::Repository, 3),
    ("a_.b", Part::Repository, 2),
    ("a-.b", Part::Repository, 2),
    ("a.-b", Part::Repository, 2),
    ("a-_b", Part::Repository, 2),
    ("a$b", Part::Repository, 1),
    ("a%2fb", Part::Repository, 1),
    ("a\\b", Part::Repository, 1),
    ("a?b", Part::Repository, 1),
    ("[::1]", Part::Repository, 0),
    ("[::1]:5000", Part::Repository, 0),
    ("registry.example/(a)*256", Part::Repository, 17),
    ("(a)*248", Part::Repository, 0),
    // Registries.
    ("https://registry.example/model", Part::Port, 6),
    ("registry:http/model", Part::Port, 9),
    ("registry:/model", Part::Port, 9),
    ("registry:50 00/model", Part::Port, 11),
    ("registry:-1/model", Part::Port, 9),
    ("registry:5000:5000/model", Part::Port, 13),
    ("user@registry.example/model", Part::Registry, 4),
    ("user:pass@registry.example/model", Part::Port, 5),
    ("-registry.example/model", Part::Registry, 0),
    ("registry-.example/model", Part::Registry, 8),
    ("registry.-example/model", Part::Registry, 9),
    ("registry.example-/model", Part::Registry, 16),
    (".registry/model", Part::Registry, 0),
    ("registry./model", Part::Registry, 9),
    ("registry..example/model", Part::Registry, 9),
    ("./model", Part::Registry, 0),
    ("../model", Part::Registry, 0),
    (":5000/model", Part::Registry, 0),
    ("under_score:5000/model", Part::Registry, 5),
    // distribution/reference takes this for a path without a registry; containerd contacts the host.
    ("under_score.example/model", Part::Registry, 5),
    ("2001:db8::1:5000/model", Part::Port, 5),
    ("fc00::1:5000/model", Part::Port, 5),
    ("[::1]/", Part::Repository, 6),
    ("[::1]:tag", Part::Repository, 0),
    ("[::1]@S256", Part::Repository, 0),
    ("[::g]/model", Part::Registry, 3),
    ("[::1]]:5000/model", Part::Registry, 5),
    ("[1]/model", Part::Repository, 0),
    ("[]/model", Part::Repository, 0),
    ("[]:5000/model", Part::Registry, 1),
    ("[::1/model", Part::Registry, 0),
    ("[::1]5000/model", Part::Registry, 5),
    ("[::1]::5000/model", Part::Port, 6),
    ("[::1]:/model", Part::Port, 6),
    ("[fe80::1%eth0]:5000/model", Part::Registry, 8),
    ("[2001:db8::192.0.2.33]/model", Part::Registry, 14),
    ("registry.[::1]/model", Part::Registry, 9),
    // Tags.
    ("a:", Part::Tag, 2),
    ("a:@S256", Part::Tag, 2),
    ("a:.tag", Part::Tag, 2),
    ("a:-tag", Part::Tag, 2),
    ("a:t~g", Part::Tag, 3),
    ("a:tag:tag", Part::Tag, 5),
    ("a:tag ", Part::Tag, 5),
    ("a:täg", Part::Tag, 3),
    ("a:(x)*129", Part::Tag, 2),
    ("registry:5000/a:b/c", Part::Tag, 17),
    // Digests.
    ("a@", Part::Digest, 2),
    ("a@sha256", Part::Digest, 2),
    ("a@sha256:", Part::Digest, 2),
    ("a@sha256:(a)*63", Part::Digest, 2),
    ("a@sha256:(a)*65", Part::Digest, 2),
    ("a@sha256:(a)*128", Part::Digest, 2),
    ("a@sha512:(a)*64", Part::Digest, 2),
    ("a@sha256:(A)*64", Part::Digest, 9),
    ("a@sha256:(a)*63g", Part::Digest, 72),
    ("a@SHA256:(a)*64", Part::Digest, 2),
    ("a@sha384:(a)*96", Part::Digest, 2),
    ("a@md5:(a)*32", Part::Digest, 2),
    ("a@sha256+b64:(a)*64", Part::Digest, 2),
    ("a@(a)*64", Part::Digest, 2),
    ("a@ S256", Part::Digest, 2),
    ("a@@S256", Part::Digest, 2),
    ("a@sha256:0x(a)*62", Part::Digest, 10),
    ("a@S256/b", Part::Registry, 1),
    ("a@S256@S256", Part::Digest, 73),
    ("a@S256:tag", Part::Digest, 73),
    ("a@S256 ", Part::Digest, 73),
];

#[test]
fn accepted_references_have_the_expected_parts() {
    for &(text, registry, repository, tag, digest) in ACCEPTED {
        let text = expand(text);
        let reference: ImageReference = text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(reference.registry(), registry, "{text:?}");
        assert_eq!(reference.repository(), expand(repository), "{text:?}");
        assert_eq!(reference.tag(), tag.map(expand).as_deref(), "{text:?}");
        assert_eq!(reference.digest().map(ToString::to_string), digest.map(expand), "{text:?}");
        assert_eq!(reference.name(), format!("{registry}/{}", expand(repository)), "{text:?}");
        assert_eq!(reference.canonical().parse(), Ok(reference), "{text:?}");
    }
}

#[test]
fn errors_name_the_invalid_part_and_its_offset() {
    for &(text, part, offset) in REFUSED {
        let text = expand(text);
        let error = text.parse::<ImageReference>().expect_err(&text);
        assert_eq!((error.part(), error.offset()), (part, offset), "{error}");
    }
}

#[test]
fn the_tables_have_no_duplicates() {
    let cases: Vec<&str> =
        ACCEPTED.iter().map(|case| case.0).chain(REFUSED.iter().map(|case| case.0)).collect();
    assert_eq!(cases.iter().collect::<BTreeSet<_>>().len(), cases.len());
    assert!(cases.len() >= 180, "{} cases", cases.len());
}

#[test]
fn messages_name_expected_and_found_values() {
    for (text, message) in [
        (
            "ghcr.io/Team/model",
            "image reference \"ghcr.io/Team/model\" has 'T' in the repository at byte 8; expected lower-case \
             letters and digits, joined by one '.', one or two '_' or any number of '-', in components joined by '/'",
        ),
        (
            "registry:/model",
            "image reference \"registry:/model\" has an empty port at byte 9; expected decimal digits",
        ),
        (
            "a@sha256:abc",
            "image reference \"a@sha256:abc\" is wrong from byte 2: digest \"sha256:abc\" has 3 hexadecimal digits; \
             expected 64 for sha256",
        ),
        (
            "[::1/model",
            "image reference \"[::1/model\" has a '[' at byte 0 that is not closed; expected [IPV6]",
        ),
    ] {
        assert_eq!(text.parse::<ImageReference>().unwrap_err().to_string(), message);
    }
    let huge = "x".repeat(1_000_000).parse::<ImageReference>().unwrap_err();
    let message = huge.to_string();
    assert!(message.contains("of 1000008 characters") && message.contains("at most 255"), "{message}");
    assert!(huge.to_string().len() < 1_000, "a message does not repeat a huge reference");
}

#[test]
fn serde_accepts_any_form_and_writes_the_canonical_one() {
    let reference: ImageReference = serde_json::from_str("\"busybox:1\"").unwrap();
    assert_eq!(serde_json::to_string(&reference).unwrap(), "\"docker.io/library/busybox:1\"");
    let error = serde_json::from_str::<ImageReference>("\"Busybox\"").unwrap_err();
    assert!(error.to_string().contains("has 'B' in the repository at byte 0"), "{error}");
    assert!(serde_json::from_str::<ImageReference>("7").is_err());
}

#[test]
fn references_to_the_same_image_are_equal_and_hash_alike() {
    let spellings = ["busybox", "library/busybox", "docker.io/busybox", "index.docker.io/library/busybox"];
    let distinct: HashSet<ImageReference> = spellings.iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(distinct.len(), 1);
    assert_ne!("busybox".parse::<ImageReference>(), "busybox:latest".parse());
}

/// The documented grammar of distribution/reference as a regular expression over the normalized name. An oracle that
/// shares no code with the parser.
fn oracle(text: &str) -> Option<(String, String, Option<String>, Option<String>)> {
    static GRAMMAR: LazyLock<Regex> = LazyLock::new(|| {
        let host = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])";
        let component = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
        let tag = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
        let digest = r"sha256:[a-f0-9]{64}|sha512:[a-f0-9]{128}";
        Regex::new(&format!(
            r"\A({host}(?::[0-9]+)?)/({component}(?:/{component})*)(?::({tag}))?(?:@({digest}))?\z"
        ))
        .unwrap()
    });
    if text.len() == 64 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')) {
        return None;
    }
    let (domain, rest) = match text.split_once('/') {
        Some((first, rest))
            if first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first =>
        {
            (if first == "index.docker.io" { "docker.io" } else { first }, rest)
        }
        _ => ("docker.io", text),
    };
    let official = if domain == "docker.io" && !rest.contains('/') { "library/" } else { "" };
    let normalised = format!("{domain}/{official}{rest}");
    let parts = GRAMMAR.captures(&normalised)?;
    let part = |at: usize| parts.get(at).map(|found| found.as_str().to_owned());
    let repository = part(2)?;
    (repository.len() <= 255).then_some((part(1)?, repository, part(3), part(4)))
}

/// Strings that are references, nearly references, or made of the characters significant to the grammar.
fn near_references() -> impl Strategy<Value = String> {
    let first = prop_oneof![
        Just(String::new()),
        "[a-zA-Z0-9._-]{1,8}/",
        "[a-z0-9.-]{1,8}:[0-9]{0,5}/",
        r"\[[0-9a-f:]{0,8}\](:[0-9]{1,4})?/",
        "(index\\.)?docker\\.io/",
        "localhost/",
    ];
    let path = prop_oneof![
        "[a-z0-9]{1,4}((_|__|\\.|-{1,3})[a-z0-9]{1,3}){0,2}(/[a-z0-9]{1,3}){0,3}",
        "[a-zA0-9._/-]{0,9}"
    ];
    let tag = prop_oneof![Just(String::new()), ":[A-Za-z0-9_.-]{0,6}", ":[a:@/ ]{0,3}"];
    let digest = prop_oneof![
        4 => Just(String::new()),
        2 => "@sha256:[0-9a-f]{64}",
        1 => "@sha512:[0-9a-f]{128}",
        1 => "@[a-z0-9:]{0,9}",
        1 => "@sha256:[0-9a-fA-G]{63,65}",
    ];
    prop_oneof![
        8 => (first, path, tag, digest).prop_map(|(a, b, c, d)| a + &b + &c + &d),
        2 => "[aA0./:@_\\[\\]-]{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn the_parser_agrees_with_the_grammar(text in near_references()) {
        let parsed = text.parse::<ImageReference>().ok().map(|reference| (
            reference.registry().to_owned(),
            reference.repository().to_owned(),
            reference.tag().map(ToOwned::to_owned),
            reference.digest().map(ToString::to_string),
        ));
        prop_assert_eq!(parsed, oracle(&text));
    }

    #[test]
    fn parsed_references_round_trip_through_display_and_serde(text in near_references()) {
        if let Ok(reference) = text.parse::<ImageReference>() {
            prop_assert_eq!(&reference.to_string().parse::<ImageReference>().unwrap(), &reference);
            let json = serde_json::to_string(&reference).unwrap();
            prop_assert_eq!(&serde_json::from_str::<ImageReference>(&json).unwrap(), &reference);
        }
    }

    #[test]
    fn an_error_points_into_the_text(text in prop_oneof![near_references(), ".{0,40}"]) {
        if let Err(error) = text.parse::<ImageReference>() {
            prop_assert!(text.is_char_boundary(error.offset()), "{} in {:?}", error.offset(), text);
        }
    }

    #[test]
    fn the_parser_never_panics(text in any::<String>()) {
        prop_assert_eq!(text.parse::<ImageReference>().is_ok(), oracle(&text).is_some());
    }
}
