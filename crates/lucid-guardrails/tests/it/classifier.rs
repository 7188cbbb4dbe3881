//! The judge `classifier` with small models.

use std::fs;
use std::path::{Path, PathBuf};

use lucid_auditor::{Direction, Judge as _, Passage, Verdict};
use lucid_guardrails::{Classifier, ClassifierOptions, OptionsError};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

const MODELS: [&str; 5] = ["bert", "roberta", "deberta-v2", "deberta-v3", "modernbert"];
const LABELS: [&str; 3] = ["SAFE", "INJECTION", "JAILBREAK"];

/// Texts, with the logits that transformers computes for each window.
#[derive(Deserialize)]
struct Expected {
    text: String,
    logits: Vec<[f32; 3]>,
}

fn directory(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/classifier").join(model)
}

fn expected(model: &str) -> Vec<Expected> {
    serde_json::from_slice(&fs::read(directory(model).join("expected.json")).unwrap()).unwrap()
}

fn judge(options: Value) -> Result<Classifier, OptionsError> {
    let options: ClassifierOptions = serde_json::from_value(options).unwrap();
    Classifier::new(options)
}

async fn verdict(judge: &Classifier, text: &str) -> Verdict {
    judge.judge(&Passage::new(Direction::Prompt, text)).await.unwrap()
}

/// Returns the highest probability of a label in any window.
fn probability(model: &str, logits: &[[f32; 3]], label: usize) -> f32 {
    let probability = |logits: &[f32; 3]| match model {
        "bert" => 1.0 / (1.0 + (-logits[label]).exp()),
        _ => logits[label].exp() / logits.iter().map(|logit| logit.exp()).sum::<f32>(),
    };
    logits.iter().map(probability).fold(0.0, f32::max)
}

#[tokio::test]
async fn a_label_with_enough_probability_refuses_the_text() {
    for model in MODELS {
        for Expected { text, logits } in expected(model) {
            for (index, label) in LABELS.into_iter().enumerate() {
                let probability = probability(model, &logits, index);
                let deny = Verdict::deny(label, format!("the text was classified as {label}"));
                for (lowest, expected) in [(probability - 0.001, deny), (probability + 0.001, Verdict::Allow)]
                {
                    if lowest > 0.0 && lowest <= 1.0 {
                        let judge =
                            judge(json!({ "path": directory(model), "labels": { label: lowest } })).unwrap();
                        assert_eq!(
                            verdict(&judge, &text).await,
                            expected,
                            "{model} {label} {lowest} {text:?}"
                        );
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn the_last_window_of_a_long_text_counts() {
    let mut count = 0;
    for model in MODELS {
        for Expected { text, logits } in expected(model) {
            let (last, others) = logits.split_last().unwrap();
            for (index, label) in LABELS.into_iter().enumerate() {
                let others = probability(model, others, index);
                let last = probability(model, &[*last], index);
                if others > 0.0 && last > others + 0.01 {
                    count += 1;
                    let lowest = (others + last) / 2.0;
                    let judge =
                        judge(json!({ "path": directory(model), "labels": { label: lowest } })).unwrap();
                    assert_ne!(verdict(&judge, &text).await, Verdict::Allow, "{model} {label}");
                }
            }
        }
    }
    assert!(count > 0);
}

#[tokio::test]
async fn any_text_has_a_verdict() {
    for model in MODELS {
        let judge =
            judge(json!({ "path": directory(model), "labels": { "SAFE": 1 }, "concurrency": 2 })).unwrap();
        let texts = [
            "",
            " \n",
            "\0",
            "\u{200b}",
            "\u{feff}a",
            "🏳️‍🌈",
            "[CLS] [SEP] [PAD]",
            "</s>",
            &"\u{301}".repeat(99),
            &"a".repeat(999),
        ];
        let verdicts = texts.map(|text| {
            let passage = Passage::new(Direction::Completion, text.to_owned());
            let judge = &judge;
            async move { judge.judge(&passage).await }
        });
        for verdict in futures::future::join_all(verdicts).await {
            assert_eq!(verdict.unwrap(), Verdict::Allow, "{model}");
        }
    }
}

#[test]
fn invalid_options_name_the_key_and_the_expected_values() {
    let bert = directory("bert");
    for (options, expected) in [
        (
            json!({ "path": bert, "labels": {} }),
            "labels: expected one of SAFE, INJECTION, JAILBREAK; found none",
        ),
        (
            json!({ "path": bert, "labels": { "injection": 0.5 } }),
            r#"labels: expected one of SAFE, INJECTION, JAILBREAK; found "injection""#,
        ),
        (
            json!({ "path": bert, "labels": { "SAFE": 0 } }),
            "labels.SAFE: expected a number above 0, at most 1, found 0",
        ),
        (
            json!({ "path": bert, "labels": { "SAFE": 1.1 } }),
            "labels.SAFE: expected a number above 0, at most 1, found 1.1",
        ),
        (json!({ "path": "/missing", "labels": { "SAFE": 1 } }), "path: failed to read /missing/config.json"),
    ] {
        let error = judge(options).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn invalid_models_are_errors_that_name_the_file() {
    let broken = |file: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let copy = TempDir::new().unwrap();
        for name in ["config.json", "tokenizer.json", "model.safetensors"] {
            let contents = fs::read(directory("bert").join(name)).unwrap();
            let contents = if name == file { change(contents) } else { contents };
            fs::write(copy.path().join(name), contents).unwrap();
        }
        let error = judge(json!({ "path": copy.path(), "labels": { "SAFE": 1 } }))
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("path: "), "{error}");
        error
    };
    let config = |from: &str, to: &str| {
        broken("config.json", &|config| String::from_utf8(config).unwrap().replace(from, to).into_bytes())
    };
    for (error, expected) in [
        (config("{", "["), "config.json is not valid"),
        (config("id2label", "labels"), "config.json is not valid: missing field `id2label`"),
        (config("\"1\": \"", "\"7\": \""), "id2label has gaps"),
        (config("\"bert\"", "\"gpt2\""), "config.json: model_type: expected one of bert, roberta"),
        (config("\"hidden_size\": 16", "\"hidden_size\": 32"), "model.safetensors does not fit config.json"),
        (config("embeddings\": 48", "embeddings\": 9"), "config.json: expected max_position_embeddings"),
        (broken("tokenizer.json", &|_| b"{}".to_vec()), "tokenizer.json is not valid"),
        (broken("model.safetensors", &|weights| weights[..999].to_vec()), "model.safetensors is not valid"),
    ] {
        assert!(error.contains(expected), "{error}");
    }
}
