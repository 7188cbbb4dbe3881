//! The judge `classifier`.

mod model;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use lucid_auditor::{Judge, JudgeError, Passage, Verdict};
use serde::Deserialize;
use snafu::{OptionExt as _, Snafu, ensure};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;

use self::model::Model;
use crate::OptionsError;

/// Options of a [`Classifier`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClassifierOptions {
    pub(crate) path: PathBuf,
    /// Each with the lowest probability that refuses a text.
    labels: BTreeMap<String, f32>,
    #[serde(default = "default_concurrency")]
    concurrency: NonZeroUsize,
}

const fn default_concurrency() -> NonZeroUsize {
    NonZeroUsize::MIN
}

impl ClassifierOptions {
    /// Creates options with the directory of the model, and the labels that refuse a text, each with the
    /// lowest probability that does: above 0, at most 1.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, labels: impl IntoIterator<Item = (impl Into<String>, f32)>) -> Self {
        Self {
            path: path.into(),
            labels: labels.into_iter().map(|(label, lowest)| (label.into(), lowest)).collect(),
            concurrency: default_concurrency(),
        }
    }
}

#[derive(Debug, Snafu)]
enum ClassifierError {
    #[snafu(display("failed to split the text into tokens"))]
    Tokenize { source: tokenizers::Error },
    #[snafu(display("failed to run the model"))]
    Run { source: candle_core::Error },
    /// A label has no probability, such as NaN weights cause.
    #[snafu(display("the model returned a value that is not a number"))]
    NotANumber,
    #[snafu(display("the classification ended without a result"))]
    Ended,
}

/// Classifies each text with a transformer: BERT, RoBERTa, XLM-RoBERTa, DeBERTa-v2, DeBERTa-v3 or ModernBERT.
///
/// The model is a directory of files as [Hugging Face's transformers](https://huggingface.co/docs/transformers) writes them:
/// `config.json`, `tokenizer.json` and `model.safetensors`. It runs on the CPU, and nothing is downloaded.
///
/// Long texts are cut into overlapping windows of up to 512 tokens: a text is refused if a window is.
/// [`JudgePolicy::cache`](lucid_auditor::JudgePolicy::cache) spares the model texts that it has classified.
///
/// With a model of 110 million parameters, a full window takes seconds rather than milliseconds on two cores. Streamed answers
/// cost one window per 200 bytes. The judge's timeout has to suffice for the longest text.
///
/// ```no_run
/// use lucid_guardrails::{Classifier, ClassifierOptions};
///
/// let judge = Classifier::new(ClassifierOptions::new("/models/prompt-injection", [("INJECTION", 0.8)]))?;
/// # Ok::<_, lucid_guardrails::OptionsError>(())
/// ```
#[derive(Debug)]
pub struct Classifier {
    permits: Arc<Semaphore>,
    rules: Arc<Rules>,
}

#[derive(Debug)]
struct Rules {
    model: Model,
    /// Index, name and lowest probability of labels that refuse a text.
    labels: Vec<(usize, String, f32)>,
}

impl Classifier {
    /// Loads the model.
    ///
    /// # Errors
    ///
    /// Returns an error if the files of the model, a label or a probability are not valid.
    pub fn new(options: ClassifierOptions) -> Result<Self, OptionsError> {
        let model = Model::load(&options.path)
            .map_err(|error| OptionsError::new("path", lucid_text::with_causes(&error)))?;
        let unknown = |found: &str| OptionsError::one_of("labels", found, model.labels().join(", "));
        if options.labels.is_empty() {
            return Err(unknown("none"));
        }
        let mut labels = Vec::new();
        for (label, lowest) in options.labels {
            let index = model.labels().iter().position(|known| *known == label);
            let index = index.ok_or_else(|| unknown(&format!("{label:?}")))?;
            if !(lowest > 0.0 && lowest <= 1.0) {
                let key = format_args!("labels.{label}");
                return Err(OptionsError::found(key, lowest, "a number above 0, at most 1"));
            }
            labels.push((index, label, lowest));
        }
        Ok(Self {
            permits: Arc::new(Semaphore::new(options.concurrency.get().min(Semaphore::MAX_PERMITS))),
            rules: Arc::new(Rules { model, labels }),
        })
    }

    /// Classifies a text in a thread for blocking work. It ends with the window in progress if the caller gives up.
    async fn classify(&self, text: &str) -> Result<Verdict, ClassifierError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok().context(EndedSnafu)?;
        let (send, receive) = oneshot::channel();
        let (rules, text) = (Arc::clone(&self.rules), text.to_owned());
        spawn_blocking(move || {
            let verdict = rules.judge(&text, || send.is_closed());
            drop(permit);
            drop(send.send(verdict));
        });
        receive.await.ok().context(EndedSnafu)?
    }
}

impl Rules {
    fn judge(&self, text: &str, is_cancelled: impl Fn() -> bool) -> Result<Verdict, ClassifierError> {
        for logits in self.model.logits(text)? {
            let probabilities = self.model.probabilities(&logits?);
            ensure!(probabilities.iter().all(|probability| probability.is_finite()), NotANumberSnafu);
            let refused = self.labels.iter().find(|(index, _, lowest)| {
                probabilities.get(*index).is_some_and(|probability| probability >= lowest)
            });
            if let Some((_, label, _)) = refused {
                return Ok(Verdict::deny(label.clone(), format!("the text was classified as {label}")));
            }
            ensure!(!is_cancelled(), EndedSnafu);
        }
        Ok(Verdict::Allow)
    }
}

impl Judge for Classifier {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        if passage.text.trim().is_empty() {
            return Ok(Verdict::Allow);
        }
        Ok(self.classify(&passage.text).await?)
    }

    /// Context of the new text. One window holds it with the text of a stride.
    fn overlap(&self) -> usize {
        1024
    }

    /// A probability says nothing about the text that follows.
    fn undecided(&self, _text: &str) -> usize {
        0
    }

    fn stride(&self) -> usize {
        200
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_cancelled_classification_ends_with_its_window() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/classifier/bert");
        let classifier = Classifier::new(ClassifierOptions::new(path, [("SAFE", 1.0)])).unwrap();
        let windows = Cell::new(0);
        let is_cancelled = |after: usize| {
            windows.set(windows.get() + 1);
            windows.get() == after
        };
        let text = "list its five main points in one short sentence each. ".repeat(100);
        assert!(matches!(classifier.rules.judge(&text, || is_cancelled(3)), Err(ClassifierError::Ended)));
        assert_eq!(windows.get(), 3);
        assert!(matches!(classifier.rules.judge(&text, || is_cancelled(0)), Ok(Verdict::Allow)));
        assert!(windows.get() > 20);
    }
}
