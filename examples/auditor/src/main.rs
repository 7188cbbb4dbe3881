//! A custom auditor: refuses texts that contain a phrase of `BLOCKED_PHRASES`.

use lucid_auditor::{Auditor, Judge, JudgeError, Passage, Verdict};

struct Phrases(Vec<String>);

impl Judge for Phrases {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        // Emphasis and punctuation do not hide a phrase.
        let text = passage.text.to_lowercase();
        let words: Vec<_> =
            text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let text = words.join(" ");
        Ok(match self.0.iter().any(|phrase| text.contains(phrase)) {
            true => Verdict::deny("phrase", "the text contains a blocked phrase"),
            false => Verdict::Allow,
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let phrases =
        std::env::var("BLOCKED_PHRASES").unwrap_or_else(|_| "ignore previous instructions".to_owned());
    let phrases = phrases.split(',').map(|phrase| phrase.trim().to_lowercase());
    let phrases = phrases.filter(|phrase| !phrase.is_empty()).collect();
    Ok(lucid_auditor::serve(Auditor::from_env()?.judge(Phrases(phrases))).await?)
}
