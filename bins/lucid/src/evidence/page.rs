//! The page for people. It has no scripts, and all values are escaped.

use lucid_admission::AUDIT_STYLE;
use lucid_shared::is_bidirectional;
use serde_json::Value;

use super::collect::Collected;
use super::{CLAIM, ambiguous};

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
    content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>Evidence</title>\n";
const VERIFY: &str = "Verify the archive before you trust this page: lucid evidence verify ARCHIVE --signer VKEY --key VKEY, \
    with --verifier-log-key VKEY if verdicts have proofs";

pub(super) fn page(collected: &Collected) -> String {
    let Collected { subject, pods, verdicts, bundles, decisions, anchors, unmatched } = collected;
    let decisions: Vec<_> = decisions
        .iter()
        .map(|(file, proof)| {
            let mut decision: Value =
                serde_json::from_slice(proof.record().unwrap_or_default()).unwrap_or_default();
            decision["file"] = file.as_str().into();
            decision
        })
        .collect();
    let is_ambiguous = |decision: &&Value| subject["pod"].is_string() && decision["name"] != subject["pod"];
    let ambiguous = ambiguous(decisions.iter().filter(is_ambiguous).count());
    let ambiguous = ambiguous.map(|text| format!("<p>{text}</p>\n")).unwrap_or_default();
    let counted = format!(
        "{} bundles of signatures; {} anchors of the API server, {unmatched} without a record",
        bundles.len(),
        anchors.len()
    );
    let subject = table("", &["namespace", "pod", "since", "collected"], std::slice::from_ref(subject));
    let pods = table("Pods", &["created", "name", "state", "chain", "reason"], pods);
    let verdicts = table("Verdicts", &["digest", "notarized", "reason", "proof"], verdicts);
    let columns = [
        "time",
        "allowed",
        "wouldDeny",
        "name",
        "webhook",
        "operation",
        "user",
        "message",
        "findings",
        "file",
    ];
    let decisions = table("Sealed decisions", &columns, &decisions);
    format!(
        "{HEAD}<style>\n{AUDIT_STYLE}</style>\n<header><h1>Evidence</h1></header>\n<main>\n<p>{CLAIM}</p>\n<p>{VERIFY}</p>\n\
         {subject}{pods}{verdicts}{decisions}{ambiguous}<p>{counted}</p>\n</main>\n</html>\n"
    )
}

/// Returns a table of these members of each row.
fn table(title: &str, columns: &[&str], rows: &[Value]) -> String {
    let row = |tag: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: String = cells.map(|cell| format!("<{tag}>{cell}</{tag}>")).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = row("th", &mut columns.iter().map(|&column| column.to_owned()));
    let rows: String = rows
        .iter()
        .map(|values| row("td", &mut columns.iter().map(|&column| escape(&text(&values[column])))))
        .collect();
    format!("<h2>{title}</h2>\n<table>\n{head}{rows}</table>\n")
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join("; "),
        Value::Object(members) => members.values().map(text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn escape(text: &str) -> String {
    let escaped = text.chars().map(|character| match character {
        '<' | '>' | '&' | '"' | '\'' => format!("&#{};", u32::from(character)),
        // Bidirectional controls could reorder the text around a name.
        character if character.is_control() || is_bidirectional(character) => {
            character.escape_unicode().to_string()
        }
        character => character.to_string(),
    });
    escaped.collect()
}
