//! Layouts of PEM text that tools and people produce.

use super::{Certificate, Expected, Role, Vector};

use Expected::{Accepted, Rejected, RejectedByUs};

type Change = fn(&Vector) -> Vec<u8>;
type ChangeOfCa = fn(String) -> Vec<u8>;

fn other() -> String {
    text(&Certificate::vector(Role::Leaf, |_| ()).ca)
}

fn text(pem: &[u8]) -> String {
    String::from_utf8(pem.to_vec()).unwrap()
}

/// The bundle of each layout has the CA, or the chain is changed.
pub(super) fn vectors() -> Vec<(String, Expected, Vector)> {
    let of_ca: Vec<(&str, Expected, ChangeOfCa)> = vec![
        ("nothing changed", Accepted, String::into_bytes),
        ("no final newline", Accepted, |ca| ca.trim_end().into()),
        ("CR LF", Accepted, |ca| ca.replace('\n', "\r\n").into()),
        ("space after lines", Accepted, |ca| ca.replace('\n', " \r\n").into()),
        ("tabs after lines", RejectedByUs("failed to read PEM"), |ca| ca.replace('\n', "\t\n").into()),
        ("space in base64", Accepted, |ca| ca.replace("MII", "M I\tI").into()),
        ("twice", Accepted, |ca| (ca.clone() + &ca).into()),
        ("blank lines", Accepted, |ca| format!("\n\n{}\n\n", ca.replace("-----\n", "-----\n\n")).into()),
        ("comments and Bag Attributes", Accepted, |ca| {
            [b"# ours\nBag Attributes\n    friendlyName: caf\xe9\nsubject=CN = x\n\n", ca.as_bytes()].concat()
        }),
        ("a revocation list between", Accepted, |ca| {
            format!("{}-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n{ca}", other()).into()
        }),
        ("text after", Accepted, |ca| (ca + "the end\n").into()),
        ("joined", Rejected("line 3: expected a line for each BEGIN and END"), |ca| {
            (ca.trim_end().to_owned() + &ca).into()
        }),
        ("joined by a space", Rejected("line 3"), |ca| (ca.trim_end().to_owned() + " " + &ca).into()),
        ("joined with another", Rejected("line 3"), |ca| (other().trim_end().to_owned() + &ca).into()),
        ("text after END", Rejected("line 3"), |ca| (ca.trim_end().to_owned() + " # ours\n").into()),
        ("text before BEGIN", Rejected("line 1"), |ca| ("ca: ".to_owned() + &ca).into()),
        ("CR only", Rejected("CR alone"), |ca| ca.replace('\n', "\r").into()),
        ("CR only after another", Rejected("CR alone"), |ca| (other() + &ca.replace('\n', "\r")).into()),
        ("a byte order mark", Rejected("byte order mark"), |ca| ("\u{feff}".to_owned() + &ca).into()),
        ("a byte order mark between", Rejected("byte order mark"), |ca| {
            (ca.clone() + "\u{feff}" + &ca).into()
        }),
        ("escaped newlines", Rejected("escaped"), |ca| ca.replace('\n', "\\n").into()),
        ("escaped newlines after another", Rejected("escaped"), |ca| {
            (other() + &ca.trim_end().replace('\n', "\\n")).into()
        }),
        ("indented", Rejected("white space"), |ca| format!("  {}", ca.replace('\n', "\n  ")).into()),
        ("on one line", Rejected("line 1"), |ca| ca.replace('\n', "").into()),
        ("on one line after another", Rejected("line 4"), |ca| (ca.clone() + &ca.replace('\n', " ")).into()),
        ("a trusted certificate", Rejected("holds certificates"), |ca| {
            (ca.clone() + &ca.replace("CERTIFICATE", "TRUSTED CERTIFICATE")).into()
        }),
        ("an X509 certificate", Rejected("holds certificates"), |ca| {
            (ca.clone() + &ca.replace("CERTIFICATE", "X509 CERTIFICATE")).into()
        }),
        ("PKCS #7", RejectedByUs("holds certificates"), |ca| {
            (ca + "-----BEGIN PKCS7-----\nMAA=\n-----END PKCS7-----\n").into()
        }),
        ("four dashes", RejectedByUs("line 4"), |ca| (ca.clone() + &ca.replace("-----", "----")).into()),
        ("six dashes", Rejected("line 4"), |ca| (ca.clone() + &ca.replace("-----", "------")).into()),
        ("no END line", Rejected("no END line"), |ca| {
            let first = ca.split("-----END").next().unwrap();
            (ca.clone() + first).into()
        }),
        ("no END line in the first", Rejected("expected the END line"), |ca| {
            let first = ca.split("-----END").next().unwrap();
            (first.to_owned() + &ca).into()
        }),
        ("no BEGIN line", Rejected("expected the BEGIN line"), |ca| {
            (ca.clone() + ca.split_once('\n').unwrap().1).into()
        }),
        ("another END label", Rejected("expected the BEGIN line"), |ca| {
            (ca.clone() + &ca.replace("END CERTIFICATE", "END X CERTIFICATE")).into()
        }),
        ("headers", Rejected("header"), |ca| ca.replace("MII", "A: b\n\nMII").into()),
        ("no base64", Rejected("not base64"), |ca| ca.replace("MII", "M*I").into()),
        ("base64 for URLs", Rejected("not base64"), |ca| (ca.clone() + &ca.replacen("MII", "M_-", 1)).into()),
        ("truncated base64", Rejected("failed to read"), |ca| {
            (ca.clone() + &ca.replacen("MII", "MI", 1)).into()
        }),
        ("padding within base64", Rejected("not base64"), |ca| {
            (ca.clone() + &ca.replacen("MII", "MA==MII", 1)).into()
        }),
        ("an empty section", Rejected("failed to read certificate 2"), |ca| {
            (ca + "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n").into()
        }),
        ("UTF-16 after another", RejectedByUs("zero byte"), |ca| {
            let wide = ca.bytes().flat_map(|byte| [byte, 0]).collect();
            [ca.into_bytes(), wide].concat()
        }),
        ("DER", Rejected("zero byte"), |_| vec![0x30, 0x82, 0, 0]),
        ("nothing", Rejected("failed to find a certificate"), |_| Vec::new()),
        ("base64 of PEM", Rejected("failed to find a certificate"), |ca| {
            use base64::{Engine, prelude::BASE64_STANDARD};
            BASE64_STANDARD.encode(ca).into()
        }),
    ];
    let of_chain: Vec<(&str, Expected, Change)> = vec![
        ("a joined chain", Rejected("two of them on one line"), |it| {
            text(&it.chain).replace("-----END CERTIFICATE-----\n", "-----END CERTIFICATE-----").into()
        }),
        ("the key before the certificate", Accepted, |it| [&*it.key, &*it.chain].concat()),
        ("an intermediate that is trusted", Rejected("holds certificates"), |it| {
            let chain = text(&it.chain);
            let at = chain.rfind("-----BEGIN").unwrap();
            (chain[..at].to_owned() + &chain[at..].replace("CERTIFICATE", "TRUSTED CERTIFICATE")).into()
        }),
        ("a byte order mark", Rejected("byte order mark"), |it| [b"\xef\xbb\xbf", &*it.chain].concat()),
    ];
    let of_key: Vec<(&str, Expected, Change)> = vec![
        ("parameters before the key", Accepted, |it| {
            [b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n", &*it.key]
                .concat()
        }),
        ("an encrypted key", RejectedByUs("without a passphrase"), |it| {
            text(&it.key).replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY").into()
        }),
        ("a byte order mark before the key", Rejected("byte order mark"), |it| {
            [b"\xef\xbb\xbf", &*it.key].concat()
        }),
        ("a key without line breaks", Rejected("line 1"), |it| text(&it.key).replace('\n', "").into()),
    ];
    let base = || Certificate::vector(Role::Leaf, |_| ());
    let mut all = Vec::new();
    for (name, expected, change) in of_ca {
        let ca = change(text(&base().ca));
        all.push((name.to_owned(), expected, Vector { ca, ..base() }));
    }
    for (name, expected, change) in of_chain {
        all.push((name.to_owned(), expected, Vector { chain: change(&base()), ..base() }));
    }
    for (name, expected, change) in of_key {
        all.push((name.to_owned(), expected, Vector { key: change(&base()), ..base() }));
    }
    all
}
