//! Text-classification transformers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::{LayerNorm, Linear, Module as _, VarBuilder, layer_norm_no_bias, linear, linear_no_bias};
use candle_transformers::models::{bert, debertav2, modernbert, xlm_roberta};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use snafu::{FromString as _, ResultExt as _, Whatever, whatever};
use tokenizers::{PostProcessor as _, Tokenizer, TruncationDirection};

use super::{ClassifierError, RunSnafu, TokenizeSnafu};

/// Maximum number of tokens per window: the cost of attention grows with the square.
const WINDOW: usize = 512;
const MIN_WINDOW: usize = 16;

/// A transformer with a head for sequence classification, its tokenizer and its labels.
pub(super) struct Model {
    network: Network,
    tokenizer: Tokenizer,
    /// Number of tokens per window, without special tokens.
    window: usize,
    labels: Vec<String>,
    /// Each label has its own probability.
    is_multi_label: bool,
}

enum Network {
    Bert {
        model: bert::BertModel,
        pooler: Linear,
        classifier: Linear,
    },
    Roberta(xlm_roberta::XLMRobertaForSequenceClassification),
    Deberta(Box<debertav2::DebertaV2SeqClassificationModel>),
    // Not candle's own classifier, which does not return logits.
    ModernBert {
        model: modernbert::ModernBert,
        is_mean: bool,
        dense: Linear,
        norm: LayerNorm,
        classifier: Linear,
    },
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("labels", &self.labels).finish_non_exhaustive()
    }
}

/// The part of `config.json` that all models share.
#[derive(Deserialize)]
struct Config {
    model_type: String,
    id2label: BTreeMap<usize, String>,
    max_position_embeddings: usize,
    hidden_size: usize,
    #[serde(default)]
    pad_token_id: Option<usize>,
    #[serde(default)]
    problem_type: Option<String>,
}

impl Model {
    pub(super) fn load(directory: &Path) -> Result<Self, Whatever> {
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read(&path).with_whatever_context(|_| format!("failed to read {}", path.display()))
        };
        let fields: Map<String, Value> =
            serde_json::from_slice(&read("config.json")?).whatever_context("config.json is not valid")?;
        let config: Config = typed(&fields)?;
        if !config.id2label.keys().copied().eq(0..config.id2label.len()) {
            whatever!("config.json is not valid: id2label has gaps");
        }
        // The position of a token of RoBERTa is counted from the padding index.
        let reserved = if matches!(config.model_type.as_str(), "roberta" | "xlm-roberta") {
            config.pad_token_id.unwrap_or(1) + 1
        } else {
            0
        };
        let positions = config.max_position_embeddings.saturating_sub(reserved);
        let invalid = |error| Whatever::with_source(error, "tokenizer.json is not valid".to_owned());
        let mut tokenizer = Tokenizer::from_bytes(read("tokenizer.json")?).map_err(invalid)?;
        tokenizer.with_padding(None);
        // Truncation of tokenizers 0.23.2 drops the rest of the text.
        tokenizer.with_truncation(None).map_err(invalid)?;
        let added = tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        let window = positions.min(WINDOW).saturating_sub(added);
        if window < MIN_WINDOW {
            whatever!(
                "config.json: expected max_position_embeddings for at least {MIN_WINDOW} tokens, found {window}"
            );
        }

        let weights =
            VarBuilder::from_buffered_safetensors(read("model.safetensors")?, DType::F32, &Device::Cpu)
                .whatever_context("model.safetensors is not valid")?;
        let network = Network::load(&config, fields, &weights)?;
        Ok(Self {
            network,
            tokenizer,
            window,
            is_multi_label: config.problem_type.is_some_and(|kind| kind == "multi_label_classification")
                || config.id2label.len() == 1,
            labels: config.id2label.into_values().collect(),
        })
    }

    pub(super) fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Returns the logits of each window of a text. Windows overlap by a quarter.
    pub(super) fn logits(
        &self,
        text: &str,
    ) -> Result<impl Iterator<Item = Result<Vec<f32>, ClassifierError>>, ClassifierError> {
        let mut first = self.tokenizer.encode_fast(text, false).context(TokenizeSnafu)?;
        first.truncate(self.window, self.window / 4, TruncationDirection::Right);
        let rest = first.take_overflowing();
        Ok(std::iter::once(first).chain(rest).map(|window| {
            let window = self.tokenizer.post_process(window, None, true).context(TokenizeSnafu)?;
            self.network.logits(window.get_ids(), window.get_type_ids()).context(RunSnafu)
        }))
    }

    pub(super) fn probabilities(&self, logits: &[f32]) -> Vec<f32> {
        if self.is_multi_label {
            return logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect();
        }
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exponentials: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
        let sum: f32 = exponentials.iter().sum();
        exponentials.iter().map(|exponential| exponential / sum).collect()
    }
}

impl Network {
    fn load(
        config: &Config,
        mut fields: Map<String, Value>,
        weights: &VarBuilder<'_>,
    ) -> Result<Self, Whatever> {
        let (size, labels) = (config.hidden_size, config.id2label.len());
        let classifier = || linear(size, labels, weights.pp("classifier"));
        let network = match config.model_type.as_str() {
            "bert" => {
                let config = typed(&fields)?;
                (|| {
                    Ok(Self::Bert {
                        model: bert::BertModel::load(weights.pp("bert"), &config)?,
                        pooler: linear(size, size, weights.pp("bert.pooler.dense"))?,
                        classifier: classifier()?,
                    })
                })()
            }
            "roberta" | "xlm-roberta" => {
                fields.entry("position_embedding_type").or_insert(json!("absolute"));
                let config = typed(&fields)?;
                xlm_roberta::XLMRobertaForSequenceClassification::new(labels, &config, weights.clone())
                    .map(Self::Roberta)
            }
            "deberta-v2" => {
                // candle panics on a conv_kernel_size above 0.
                if fields.get("conv_kernel_size").and_then(Value::as_u64).is_some_and(|size| size > 0) {
                    whatever!("config.json: conv_kernel_size is not supported, expected 0");
                }
                let config = typed(&fields)?;
                debertav2::DebertaV2SeqClassificationModel::load(weights.pp("deberta"), &config, None)
                    .map(|model| Self::Deberta(Box::new(model)))
            }
            "modernbert" => {
                // Renamed and nested by transformers 5.
                for (name, attention, default) in [
                    ("global_rope_theta", "full_attention", 160_000.0),
                    ("local_rope_theta", "sliding_attention", 10_000.0),
                ] {
                    let theta = fields.get("rope_parameters").map(|rope| &rope[attention]["rope_theta"]);
                    let theta = theta.and_then(Value::as_f64).unwrap_or(default);
                    fields.entry(name).or_insert(json!(theta));
                }
                let epsilon = fields.get("norm_eps").and_then(Value::as_f64).unwrap_or(1e-5);
                fields.entry("layer_norm_eps").or_insert(json!(epsilon));
                let config = typed(&fields)?;
                (|| {
                    Ok(Self::ModernBert {
                        model: modernbert::ModernBert::load(weights.clone(), &config)?,
                        is_mean: fields.get("classifier_pooling").is_some_and(|pooling| pooling == "mean"),
                        dense: linear_no_bias(size, size, weights.pp("head.dense"))?,
                        norm: layer_norm_no_bias(size, config.layer_norm_eps, weights.pp("head.norm"))?,
                        classifier: classifier()?,
                    })
                })()
            }
            other => whatever!(
                "config.json: model_type: expected one of bert, roberta, xlm-roberta, deberta-v2 (also \
                 DeBERTa-v3), modernbert; found {other:?}"
            ),
        };
        network.whatever_context("model.safetensors does not fit config.json")
    }

    fn logits(&self, ids: &[u32], types: &[u32]) -> candle_core::Result<Vec<f32>> {
        let ids = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        let types = Tensor::new(types, &Device::Cpu)?.unsqueeze(0)?;
        // A single window does not need padding.
        let mask = ids.ones_like()?;
        let first = |states: Tensor| states.narrow(1, 0, 1)?.squeeze(1)?.contiguous();
        let logits = match self {
            Self::Bert { model, pooler, classifier } => {
                let states = model.forward(&ids, &types, Some(&mask))?;
                classifier.forward(&pooler.forward(&first(states)?)?.tanh()?)?
            }
            Self::Roberta(model) => model.forward(&ids, &mask, &types)?,
            Self::Deberta(model) => model.forward(&ids, Some(types), Some(mask))?,
            Self::ModernBert { model, is_mean, dense, norm, classifier } => {
                let states = model.forward(&ids, &mask)?;
                let pooled = if *is_mean { states.mean(1)? } else { first(states)? };
                classifier.forward(&norm.forward(&dense.forward(&pooled)?.gelu_erf()?)?)?
            }
        };
        logits.squeeze(0)?.to_vec1()
    }
}

fn typed<T: DeserializeOwned>(fields: &Map<String, Value>) -> Result<T, Whatever> {
    T::deserialize(fields).whatever_context("config.json is not valid")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::LazyLock;

    use super::*;

    #[derive(Deserialize)]
    struct Expected {
        text: String,
        /// One entry per window.
        logits: Vec<Vec<f32>>,
    }

    fn compare(name: &str) {
        let directory = directory(name);
        let model = Model::load(&directory).unwrap();
        assert_eq!(model.labels(), ["SAFE", "INJECTION", "JAILBREAK"]);
        let expected = std::fs::read(directory.join("expected.json")).unwrap();
        let expected: Vec<Expected> = serde_json::from_slice(&expected).unwrap();
        assert!(expected.iter().any(|expected| expected.logits.len() > 1), "a text has several windows");
        for Expected { text, logits } in expected {
            let found: Vec<_> = model.logits(&text).unwrap().map(Result::unwrap).collect();
            assert_eq!(found.len(), logits.len(), "{text:?}");
            for (found, expected) in found.iter().flatten().zip(logits.iter().flatten()) {
                assert!((found - expected).abs() < 1e-3, "{text:?}: {found} instead of {expected}");
            }
        }
    }

    #[test]
    fn bert_has_the_logits_of_transformers() {
        compare("bert");
    }

    #[test]
    fn roberta_has_the_logits_of_transformers() {
        compare("roberta");
    }

    #[test]
    fn deberta_v2_has_the_logits_of_transformers() {
        compare("deberta-v2");
    }

    #[test]
    fn deberta_v3_has_the_logits_of_transformers() {
        compare("deberta-v3");
    }

    #[test]
    fn modernbert_has_the_logits_of_transformers() {
        compare("modernbert");
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(16))]

        #[test]
        fn any_text_has_logits(text in ".{0,200}") {
            for model in &*MODELS {
                for logits in model.logits(&text).unwrap() {
                    assert!(logits.unwrap().iter().all(|logit| logit.is_finite()));
                }
            }
        }
    }

    static MODELS: LazyLock<[Model; 5]> = LazyLock::new(|| {
        ["bert", "roberta", "deberta-v2", "deberta-v3", "modernbert"]
            .map(|name| Model::load(&directory(name)).unwrap())
    });

    fn directory(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/classifier").join(name)
    }
}
