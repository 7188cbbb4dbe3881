//! Cases of testdata/pii.tsv and testdata/secrets.tsv, and streams.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::{collections::BTreeMap, fmt::Write as _, ops::Range, sync::LazyLock};

use futures::FutureExt as _;
use lucid_auditor::{Direction, Judge, Passage, Verdict};
use lucid_guardrails::{EntityOptions, Pii, Secrets};
use proptest::prelude::*;

struct Case {
    entity: String,
    text: String,
    expected: Vec<Range<usize>>,
}

const PII: &str = include_str!("../testdata/pii.tsv");
const SECRETS: &str = include_str!("../testdata/secrets.tsv");

fn cases(file: &str) -> Vec<Case> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let columns: Vec<_> = line.split('\t').collect();
            let text =
                columns[1].replace("\\|", "").replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\");
            let spans = columns[2].split(' ').filter(|span| *span != "-");
            let expected = spans
                .map(|span| {
                    let (start, end) = span.split_once('-').unwrap();
                    start.parse().unwrap()..end.parse().unwrap()
                })
                .collect();
            assert!(!columns[3].is_empty(), "no source: {line}");
            Case { entity: columns[0].to_owned(), text, expected }
        })
        .collect()
}

fn spans(judge: &impl Judge, text: &str) -> Vec<(Range<usize>, String)> {
    match judge.judge(&Passage::new(Direction::Prompt, text)).now_or_never().unwrap().unwrap() {
        Verdict::Allow => Vec::new(),
        Verdict::Mask(spans) => spans.into_iter().map(|span| (span.range, span.rule.into_owned())).collect(),
        other => panic!("{other:?}"),
    }
}

fn ranges(judge: &impl Judge, text: &str) -> Vec<Range<usize>> {
    spans(judge, text).into_iter().map(|(range, _)| range).collect()
}

fn only(entity: &str) -> EntityOptions {
    EntityOptions::default().with_entities([entity])
}

/// Judges each case for its entity alone. Each of the entities needs a case with a finding.
fn verify<J: Judge>(file: &str, entities: Vec<&str>, judge: impl Fn(&str) -> J) {
    let mut failures = String::new();
    let mut judges: BTreeMap<_, _> =
        entities.into_iter().map(|entity| (entity, (judge(entity), 0))).collect();
    for Case { entity, text, expected } in cases(file) {
        let (judge, findings) =
            judges.get_mut(entity.as_str()).unwrap_or_else(|| panic!("unknown: {entity}"));
        *findings += expected.len();
        let found = ranges(judge, &text);
        if found != expected {
            writeln!(failures, "{entity}\t{text}\texpected {expected:?}\tfound {found:?}").unwrap();
        }
    }
    for (entity, _) in judges.iter().filter(|(_, (_, findings))| *findings == 0) {
        writeln!(failures, "{entity}\tno case with a finding").unwrap();
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn personal_data_with_valid_check_digits_is_found() {
    verify(PII, Pii::entities(), |entity| Pii::new(only(entity)).unwrap());
}

#[test]
fn secrets_in_documented_formats_are_found() {
    verify(SECRETS, Secrets::entities(), |entity| Secrets::new(only(entity)).unwrap());
}

/// Masks a text that arrives in pieces, as an auditor does. Returns the texts it releases.
fn stream(judge: &impl Judge, pieces: &[&str]) -> Vec<String> {
    let (mut text, mut released) = (String::new(), 0_usize);
    let mut outputs = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        text.push_str(piece);
        let start = text.floor_char_boundary(released.saturating_sub(judge.overlap()));
        let window = &text[start..];
        let undecided = judge.undecided(window);
        assert!(undecided <= judge.overlap() && window.is_char_boundary(window.len() - undecided));
        let until =
            if index + 1 == pieces.len() { text.len() } else { (text.len() - undecided).max(released) };
        let mut output = String::new();
        for (range, entity) in spans(judge, window) {
            let range = (range.start + start).max(released)..(range.end + start).min(until);
            if !range.is_empty() {
                output.push_str(&text[released..range.start]);
                write!(output, "<{entity}>").unwrap();
                released = range.end;
            }
        }
        output.push_str(&text[released..until]);
        released = until;
        outputs.push(output);
    }
    outputs
}

#[test]
fn findings_in_two_pieces_are_masked_whole() {
    let pii = Pii::new(EntityOptions::default()).unwrap();
    let secrets = Secrets::new(EntityOptions::default()).unwrap();
    for (before, finding, entity) in [
        ("Your card ", "4111 1111 1111 1111", "CREDIT_CARD"),
        ("Your card ", "4111111111111111", "CREDIT_CARD"),
        ("Your card ", "3782-822463-10005", "CREDIT_CARD"),
        ("Pay to ", "DE89 3704 0044 0532 0130 00", "IBAN_CODE"),
        ("Pay to ", "GB29NWBK60161331926819", "IBAN_CODE"),
        ("My email is ", "john@example.com", "EMAIL_ADDRESS"),
        ("At ", "192.168.100.200", "IP_ADDRESS"),
        ("At ", "2001:db8::8a2e:370:7334", "IP_ADDRESS"),
        ("SSN ", "856-45-6789", "US_SSN"),
        ("SSN ", "856456789", "US_SSN"),
        ("Dial ", "+44 20 7946 0958", "PHONE_NUMBER"),
        ("Dial ", "202-555-0143", "PHONE_NUMBER"),
    ] {
        let text = format!("{before}{finding} today");
        for (at, _) in text.char_indices().skip(1) {
            let masked = stream(&pii, &[&text[..at], &text[at..]]).concat();
            assert_eq!(masked, format!("{before}<{entity}> today"), "{:?}", text.split_at(at));
        }
    }
    for (finding, entity) in [
        (format!("ghp_{}", "a1B2c3".repeat(6)), "GITHUB_TOKEN"),
        (format!("AKIA{}", "ABCD2345".repeat(2)), "AWS_ACCESS_KEY"),
        (format!("eyJ{0}.eyJ{0}.{0}", "a1B2c3".repeat(6)), "JWT"),
        (
            format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", "aB3+".repeat(16)),
            "PRIVATE_KEY",
        ),
    ] {
        let text = format!("The key {finding} leaked");
        for at in 8..text.len() {
            let masked = stream(&secrets, &[&text[..at], &text[at..]]).concat();
            // Up to two characters of the fixed part are not a secret.
            let shown = if at <= 10 { at } else { 8 };
            assert_eq!(
                masked,
                format!("{}<{entity}> leaked", &text[..shown.max(8)]),
                "{:?}",
                text.split_at(at)
            );
        }
    }
}

#[test]
fn card_numbers_in_any_pieces_are_masked_whole() {
    let pii = Pii::new(EntityOptions::default()).unwrap();
    let card = "4111 1111 1111 1111";
    for at in 1..card.len() {
        for then in at + 1..card.len() {
            let pieces = ["Your card ", &card[..at], &card[at..then], &card[then..], ", thanks"];
            assert_eq!(stream(&pii, &pieces).concat(), "Your card <CREDIT_CARD>, thanks", "{pieces:?}");
        }
    }
    let mut pieces: Vec<_> = card.split("").filter(|piece| !piece.is_empty()).collect();
    pieces.push(".");
    assert_eq!(stream(&pii, &pieces).concat(), "<CREDIT_CARD>.");
}

#[test]
fn numbers_are_found_in_any_spelling() {
    let pii = Pii::new(EntityOptions::default()).unwrap();
    for (entity, number) in [
        ("CREDIT_CARD", "4111\u{200b}1111\u{200b}1111\u{200b}1111"),
        ("CREDIT_CARD", "4\u{200d}1\u{ad}1\u{feff}1 1111 1111 1111"),
        ("CREDIT_CARD", "4️⃣1️⃣1️⃣1️⃣1️⃣1️⃣1️⃣1️⃣1️⃣1️⃣1️⃣1️⃣1️⃣1️⃣1️⃣1️⃣"),
        ("CREDIT_CARD", "４１１１１１１１１１１１１１１１"),
        ("CREDIT_CARD", "𝟒𝟏𝟏𝟏　𝟏𝟏𝟏𝟏　𝟏𝟏𝟏𝟏　𝟏𝟏𝟏𝟏"),
        ("CREDIT_CARD", "4111.1111.1111.1111"),
        ("CREDIT_CARD", "4111/1111/1111/1111"),
        ("CREDIT_CARD", "4111．1111．1111．1111"),
        ("CREDIT_CARD", "3782.822463.10005"),
        ("CREDIT_CARD", "4111\n1111\n1111\n1111"),
        ("CREDIT_CARD", "4111\r\n1111\r\n1111\r\n1111"),
        ("CREDIT_CARD", "4111  1111  1111  1111"),
        ("CREDIT_CARD", "4111\t1111\t1111\t1111"),
        ("CREDIT_CARD", "4111 1111\n1111 1111"),
        ("IBAN_CODE", "DE89.3704.0044.0532.0130.00"),
        ("IBAN_CODE", "DE89\n3704\n0044\n0532\n0130\n00"),
        ("IBAN_CODE", "ＤＥ８９３７０４００４４０５３２０１３０００"),
        ("IBAN_CODE", "D\u{200b}E\u{200b}89370400440532013000"),
        ("IN_AADHAAR", "2345.6789.0124"),
        ("IP_ADDRESS", "8.8\u{200b}.8.8"),
        ("EMAIL_ADDRESS", "john＠example\u{200b}.com"),
        ("PHONE_NUMBER", "+４４ ２０ ７９４６ ０９５８"),
        ("PHONE_NUMBER", "+44 \u{200b}20 7946 0958"),
    ] {
        let (before, after) = ("number: ", ", thanks");
        let text = format!("{before}{number}{after}");
        let range = before.len()..before.len() + number.len();
        assert_eq!(spans(&pii, &text), [(range, entity.to_owned())], "{number:?}");
        for (at, _) in text.char_indices().skip(before.len()) {
            let masked = stream(&pii, &[&text[..at], &text[at..]]).concat();
            assert_eq!(masked, format!("{before}<{entity}>{after}"), "{:?}", text.split_at(at));
        }
    }
}

#[test]
fn dates_versions_and_tables_are_not_card_numbers() {
    let pii = Pii::new(EntityOptions::default()).unwrap();
    for text in [
        "2026/11/28 2026.11.28 2026-11-28",
        "1.25.3 and v4.1.1",
        "4111.1111",
        "4111.1111/1111.1111",
        // The lines of a table.
        "10\n4111\n1111\n1111\n1111",
        "4111\n1111\n1111\n1111\n2222",
        "4111\t1111\t1111\t1111\t2222",
        "2345\n6789\n0124",
    ] {
        assert_eq!(spans(&pii, text), [], "{text:?}");
    }
    for text in [
        "card: 4111\n1111\n1111\n1111\n2222",
        "4111 1111 1111 1111²",
        "№4111 1111 1111 1111",
        "4111111111111111™",
        "(415)  555-2671",
        "1.1.1.1",
    ] {
        assert_eq!(spans(&pii, text).len(), 1, "{text:?}");
    }
}

#[test]
fn email_addresses_in_any_pieces_are_masked_whole() {
    let pii = Pii::new(EntityOptions::default()).unwrap();
    let text = "Write to alexander.hamilton@example.com, please";
    for at in 1..text.len() {
        for then in at + 1..text.len() {
            let masked = stream(&pii, &[&text[..at], &text[at..then], &text[then..]]).concat();
            assert_eq!(masked, "Write to <EMAIL_ADDRESS>, please", "{at} {then}");
        }
    }
}

#[test]
fn ordinary_words_are_released_at_once() {
    let pii = Pii::new(EntityOptions::default()).unwrap();
    let secrets = Secrets::new(EntityOptions::default()).unwrap();
    let text = "Sure! A well-known answer (see below) isn't hard: I think, e.g., that it's fine. Ça va? 你好。\n\n- **Bold** and `code`";
    let pieces: Vec<_> = text.split_inclusive(' ').collect();
    assert_eq!(stream(&pii, &pieces), pieces);
    assert_eq!(stream(&secrets, &pieces), pieces);
    for (text, undecided) in [
        // The name of an email address?
        ("Hello", 5),
        ("Hello,", 0),
        ("It was in 2024", 4),
        ("It was in 2024,", 0),
        ("It was in 2024 or ", 0),
        ("card 4111 1111", 9),
        ("john.doe", 8),
        ("mail john", 4),
        ("fe80::", 6),
    ] {
        assert_eq!(pii.undecided(text), undecided, "{text}");
    }
}

#[test]
fn weak_formats_need_context_or_a_name() {
    let all = Pii::new(EntityOptions::default()).unwrap();
    assert!(ranges(&all, "The order 856456789 has 3 items").is_empty());
    // The fourth letter of a permanent account number is that of a kind of holder.
    assert!(ranges(&all, "The order QWZXL4821K has 3 items").is_empty());
    assert_eq!(spans(&all, "The order QWZPL4821K has 3 items"), [(10..20, "IN_PAN".to_owned())]);
    let ssn = "US_SSN".to_owned();
    assert_eq!(spans(&all, "His social security number: 856456789"), [(28..37, ssn.clone())]);
    assert_eq!(spans(&Pii::new(only("US_SSN")).unwrap(), "The order 856456789 has 3 items"), [(10..19, ssn)]);
}

#[test]
fn entities_are_masked_denied_or_left_alone() {
    let options: EntityOptions =
        serde_yaml::from_str("{action: mask, actions: {CREDIT_CARD: deny, EMAIL_ADDRESS: allow}}").unwrap();
    let judge = Pii::new(options).unwrap();
    let verdict = |text| judge.judge(&Passage::new(Direction::Prompt, text)).now_or_never().unwrap().unwrap();
    assert_eq!(
        verdict("4111 1111 1111 1111"),
        Verdict::deny("CREDIT_CARD", "the text contains personal data (CREDIT_CARD)")
    );
    assert_eq!(verdict("a@example.com"), Verdict::Allow);
    let Verdict::Mask(spans) = verdict("at 10.0.0.1") else { panic!() };
    assert_eq!(spans[0].replacement, "<IP_ADDRESS>");

    let error = |yaml| Pii::new(serde_yaml::from_str(yaml).unwrap()).unwrap_err().to_string();
    for (yaml, key, found) in [
        ("entities: [EMAIL]", "entities", "\"EMAIL\""),
        ("actions: {JWT: deny}", "actions", "\"JWT\""),
        ("entities: []", "entities", "none"),
    ] {
        let error = error(yaml);
        assert!(error.starts_with(&format!("{key}: expected one of ABA_ROUTING_NUMBER, ")), "{error}");
        assert!(error.ends_with(&format!("; found {found}")), "{error}");
    }
}

/// With all entities, fewer formats count than for a named one. The floors guard against regressions.
#[test]
fn precision_and_recall_of_the_default_hold() {
    let judge = Pii::new(EntityOptions::default()).unwrap();
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for case in cases(PII) {
        let found = ranges(&judge, &case.text);
        let right = found.iter().filter(|range| case.expected.contains(*range)).count();
        for name in [case.entity.as_str(), "all"] {
            let [right_of, found_of, expected_of] = counts.entry(name.to_owned()).or_default();
            *right_of += right;
            *found_of += found.len();
            *expected_of += case.expected.len();
        }
    }
    for (entity, [right, found, expected]) in &counts {
        println!("{entity}: precision {right}/{found}, recall {right}/{expected}");
    }
    let [right, found, expected] = counts["all"];
    assert!(right * 100 >= found * 95, "precision {right}/{found}");
    assert!(right * 100 >= expected * 90, "recall {right}/{expected}");
}

static ALL_PII: LazyLock<Pii> =
    LazyLock::new(|| Pii::new(EntityOptions::default().with_entities(Pii::entities())).unwrap());
static ALL_SECRETS: LazyLock<Secrets> = LazyLock::new(|| Secrets::new(EntityOptions::default()).unwrap());

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_judged(text in r"([0-9 .:@+()/_-]|[A-Za-z]{1,5}|[0-9a-f]{1,4}:|\PC|AKIA|eyJ|-----BEGIN |sk-|::|[0-9]{3,5}[ -]){0,60}") {
        for found in [spans(&*ALL_PII, &text), spans(&*ALL_SECRETS, &text)] {
            let mut end = 0;
            for (range, _) in found {
                prop_assert!(range.start >= end && text.get(range.clone()).is_some_and(|found| !found.is_empty()));
                end = range.end;
            }
        }
        let undecided = [ALL_PII.undecided(&text), ALL_SECRETS.undecided(&text)];
        prop_assert!(undecided.iter().all(|undecided| text.is_char_boundary(text.len() - undecided)));
    }
}
