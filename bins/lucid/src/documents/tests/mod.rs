//! Comparison of the parser with kubectl's.

use serde_json::Value;

use super::{Document, Format, SyntaxError, parse};

impl Document {
    /// Returns the whole value, or `None` if there are only comments.
    pub(crate) fn value(&self) -> Result<Option<Value>, &SyntaxError> {
        let content = self.content.as_ref()?;
        Ok((!self.is_empty()).then(|| serde_json::to_value(content).unwrap()))
    }

    fn written(&self, format: Option<Format>) -> String {
        let mut text = Vec::new();
        self.write(format, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }
}

fn value(text: &str) -> Value {
    parse(text)[0].value().unwrap().unwrap()
}

/// Returns `true` for equal values, regardless of how numbers are spelled.
fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(ours), Value::Number(theirs)) => ours == theirs || ours.as_f64() == theirs.as_f64(),
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| same(ours, theirs))
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            let equal =
                |(key, ours): (&String, &Value)| theirs.get(key).is_some_and(|theirs| same(ours, theirs));
            ours.len() == theirs.len() && ours.iter().all(equal)
        }
        _ => ours == theirs,
    }
}

#[test]
fn scalars_keys_and_merges_are_parsed_as_by_kubectl() {
    for (yaml, json) in [
        (include_str!("scalars.yaml"), include_str!("scalars.json")),
        (include_str!("keys.yaml"), include_str!("keys.json")),
    ] {
        let (ours, theirs): (Value, Value) = (value(yaml), serde_json::from_str(json).unwrap());
        for (key, theirs) in theirs.as_object().unwrap() {
            assert!(same(&ours[key], theirs), "{key}: {} {theirs}", ours[key]);
        }
        assert_eq!(ours.as_object().unwrap().len(), theirs.as_object().unwrap().len());
    }
}

#[test]
fn documents_joined_are_the_file() {
    for text in [
        "",
        "\n",
        "# only a comment\n",
        "a: 1",
        "\u{feff}a: 1\n---\nb: 2\n",
        "\u{feff}a: 1\n---\n\u{feff}b: 2\n",
        "---\n---\n\n---\na: 1\n...\n# end\n---\n",
        "a: |\n  --- no separator\n  ---x\n---\nb: 1\r\n--- # comment\r\nc: 1\r\n",
        "{\"a\": 1}\n{\"b\": 2}\n",
        "---\n{\"a\": 1}\n---\nb: 1\n---\n{broken",
        "a: b: c\n---\nd: 1\n",
    ] {
        let all: String = parse(text).iter().map(|document| document.written(None)).collect();
        assert_eq!(all, text);
    }
}

#[test]
fn documents_are_separated_as_kubectl_does() {
    let found = |text: &str| -> Vec<Option<Value>> {
        parse(text).iter().map(|document| document.value().unwrap()).collect()
    };
    let some = |text: &str| Some(serde_json::from_str(text).unwrap());
    assert_eq!(
        found("\u{feff}a: 1\n---\n# nothing\n---\nb: 2\n"),
        [some(r#"{"a":1}"#), None, some(r#"{"b":2}"#)]
    );
    assert_eq!(
        found("{\"a\":1}{\"b\":\t2}\n---\nc: 3\n"),
        [some(r#"{"a":1}"#), some(r#"{"b":2}"#), some(r#"{"c":3}"#)]
    );
    assert_eq!(found("\u{feff}a: 1\n--- # b\n\u{feff}b: 2\n"), [some(r#"{"a":1}"#), some(r#"{"b":2}"#)]);
    assert_eq!(found("%YAML 1.2\n---\na: 1\n"), [some(r#"{"a":1}"#)]);
    assert_eq!(found("--- {a: 1}\n---\r\nb: |\r\n  x\r\n"), [some(r#"{"a":1}"#), some(r#"{"b":"x\n"}"#)]);
    assert_eq!(parse("{\n\t\"a\": 1\n}")[0].format(), Format::Json);
    assert_eq!(parse("{a: 1}")[0].format(), Format::Yaml);
}

#[test]
fn an_error_names_the_line_in_the_file() {
    for (text, document, line, says) in [
        ("a: 1\n---\nb: 1\nb: 2\n", 1, 4, "\"b\" twice"),
        ("{\"a\": 1,\n \"a\": 2}", 0, 2, "\"a\" twice"),
        ("x: 1\n---\n{\"a\": 1,\n \"b\": ]", 1, 4, "expected value"),
        ("a: 1\n---\nb: [\n", 1, 0, ""),
        ("a: *b\n", 0, 1, "anchor"),
        ("a: 1\n...\nb: 2\n", 0, 3, "document start"),
        ("a: &a [*a]\n", 0, 1, ""),
        ("a: .inf\n", 0, 1, "infinite"),
        ("? [a]\n: 1\n", 0, 1, "key"),
        ("a: !!binary aGk=\n", 0, 1, "!!binary"),
        ("<<: 1\n", 0, 1, "<<"),
    ] {
        let documents = parse(text);
        let error = documents[document].value().unwrap_err();
        assert!(line == 0 || error.line == line, "{text:?}: {error}");
        assert!(error.to_string().contains(says), "{text:?}: {error}");
    }
}

#[test]
fn aliases_that_double_each_other_are_refused_in_time() {
    let mut text = "a0: &a0 x\n".to_owned();
    for level in 1..60 {
        text += &format!("a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1);
    }
    assert!(parse(&text)[0].value().unwrap_err().to_string().contains("64 MiB"));
    // A long scalar, too.
    let long = format!("a: &a {}\nb:\n{}", "x".repeat(1 << 20), "- *a\n".repeat(100));
    assert!(parse(&long)[0].value().unwrap_err().to_string().contains("64 MiB"));
    for (depth, is_accepted) in [(200, true), (2_000, false)] {
        let nested = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        for text in [format!("a: {nested}"), format!("{{\"a\": {nested}}}")] {
            assert_eq!(parse(&text)[0].value().is_ok(), is_accepted, "{depth}");
        }
    }
}

#[test]
fn json_becomes_yaml_and_yaml_json_without_a_change_of_meaning() {
    let json = r#"{"a": {}, "b": [], "c": [{"d": 1.10, "e": "1.10"}, [1, [2]], "yes"], "f": "a\nb\n", "g": "a\n\n",
        "h": " x\ny", "i": "it's: \"x\"", "": null, "true": true, "j": "\u0007é\u2028", "k": 12345678901234567890123,
        "l\nm": "-", "n": "a #b", "o": "x: y", "p": "\\", "q": "", "r": "\n", "s": "a\r\nb", "t": "\tx\ny", "u": "a\n b\n\nc",
        "v": ["0777", "5_000", "0o17", "1e3", ".5", "~", "off", "=", "<<", "2001-01-01", "0x1_0", "- a", "? a", "*a", "&a", "!a"]}"#;
    let document = &parse(json)[0];
    let yaml = document.written(Some(Format::Yaml));
    assert_eq!(value(&yaml), value(json), "{yaml}");
    assert!(yaml.starts_with("'': null\na: {}\n"), "{yaml}");
    assert_eq!(document.written(Some(Format::Json)), format!("{json}\n"));

    for yaml in [include_str!("scalars.yaml"), include_str!("keys.yaml")] {
        let document = &parse(yaml)[0];
        assert_eq!(document.written(Some(Format::Yaml)), yaml);
        let json = document.written(Some(Format::Json));
        assert!(serde_json::from_str::<Value>(&json).is_ok());
        assert_eq!(Some(value(&json)), document.value().unwrap());
    }
    assert!(
        parse("a: 1.10\nb: 0777\n")[0].written(Some(Format::Json)).contains("\"a\": 1.1,\n    \"b\": 511")
    );
}

#[test]
fn a_quoted_scalar_may_continue_at_the_indentation_of_its_key() {
    let read = value("rules:\n- description: 'one\n  two'\n  name: \"a\n  b\"\nlast: \"x\ny\"\n");
    let expected = serde_json::json!({"rules": [{"description": "one two", "name": "a b"}], "last": "x y"});
    assert_eq!(read, expected);
}

#[test]
fn utf_16_is_read_by_its_byte_order_mark() {
    let text = "a: \u{1f600}é\n";
    let units = || std::iter::once(0xfeff).chain(text.encode_utf16());
    let little = units().flat_map(u16::to_le_bytes).collect();
    let big = units().flat_map(u16::to_be_bytes).collect();
    for bytes in [little, big] {
        let read = super::decode(bytes).unwrap();
        assert_eq!(value(&read), serde_json::json!({"a": "\u{1f600}é"}));
    }
    for broken in [&[0xff, 0xfe, 0][..], &[0xff, 0xfe, 0, 0xd8], &[0x80]] {
        assert!(super::decode(broken.to_vec()).is_none());
    }
}

#[test]
fn a_list_may_have_more_than_a_million_values() {
    let mut text = "kind: List\nitems:\n".to_owned();
    for pod in 0..12_000 {
        text += &format!("- {{kind: Pod, metadata: {{name: p{pod}}}, spec: {{containers: [");
        text += &"{name: a, image: b, env: [{name: c, value: d}, {name: e, value: f}]}, ".repeat(8);
        text += "]}}\n";
    }
    assert_eq!(value(&text)["items"].as_array().unwrap().len(), 12_000);
}

#[test]
fn whole_numbers_are_sent_as_integers() {
    let value = value("a: 1e3\nb: 5000.0\nc: 1.5\nd: -2e0\ne: 1e300\n");
    assert_eq!(value, serde_json::json!({"a": 1000, "b": 5000, "c": 1.5, "d": -2, "e": 1e300}));
}

#[test]
fn crlf_and_a_missing_last_line_break_parse_as_in_kubectl() {
    let script = serde_json::json!({"a": "run \\\n  --x\n", "b": "x y", "c": 1});
    let text = "a: |\n  run \\\n    --x\nb: 'x\n  y'\nc: 1";
    assert_eq!(value(text), script);
    assert_eq!(value(&text.replace('\n', "\r\n")), script);
    assert_eq!(value("a: |\n  x"), serde_json::json!({"a": "x\n"}));
    let error = parse("a: |\r\n  x\r\n  y\r\n  z\r\nb: *u\r\n")[0].value().unwrap_err().clone();
    assert_eq!(error.line, 5);
}

#[test]
fn tags_are_parsed_as_by_kubectl() {
    let read = value("a: !!version 1.10\nb: !!foo yes\nc: !!int 7\nd: !!str 7\ne: !own 7\n");
    assert_eq!(read, serde_json::json!({"a": "1.10", "b": "yes", "c": 7, "d": "7", "e": "7"}));
}

#[test]
fn line_separators_of_unicode_are_escaped() {
    let json = r#"{"a": "x\u2028y\nz", "b\u2029": "\u0085"}"#;
    let yaml = parse(json)[0].written(Some(Format::Yaml));
    assert_eq!(value(&yaml), value(json), "{yaml}");
    assert!(!yaml.contains(['\u{2028}', '\u{2029}', '\u{85}']), "{yaml}");
}
