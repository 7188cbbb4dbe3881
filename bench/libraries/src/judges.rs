//! CPU time of the judges of lucid-guardrails per text.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use lucid_auditor::{Direction, Judge, Passage, Verdict};
use lucid_guardrails::{Builtin, EntityOptions, Phrases, PhrasesOptions, Pii, Secrets};

use crate::{Figure, Outcome, cpu_time};

const SIZES: [usize; 2] = [10 << 10, 1 << 20];
const WORDS: [&str; 10] = ["lorem", "ipsum", "dolor", "system", "prompt", "the", "of", "amet", "elit", "you"];

fn word(number: usize) -> &'static str {
    WORDS[number * 7 % WORDS.len()]
}

/// Prose with a date, an amount and an address of the web per hundred words, and nothing to find.
fn prose(number: usize) -> String {
    let mut text = format!("{} {}", word(number), word(number / 3));
    if number % 50 == 49 {
        let _ = write!(
            text,
            " on 2024-01-{:02} for {}.50 at https://example.com/a?b={number}",
            number % 28,
            number % 1000
        );
    }
    text.push_str(if number.is_multiple_of(12) { ".\n" } else { " " });
    text
}

fn text(size: usize, piece: impl Fn(usize) -> String) -> String {
    let mut text = String::with_capacity(size + 100);
    for number in 0.. {
        if text.len() >= size {
            break;
        }
        text.push_str(&piece(number));
    }
    text.truncate(size);
    text
}

pub(crate) async fn measure(time: Duration) -> Outcome<Vec<Figure>> {
    let phrases = (0..1000).map(|number| format!("{} {} code{number}", word(number), word(number / 10)));
    let phrases = Phrases::new(PhrasesOptions::default().with_phrases(phrases))?;
    let injection = Phrases::new(PhrasesOptions::default().with_builtin(Builtin::Injection))?;
    let pii = Pii::new(EntityOptions::default())?;
    let secrets = Secrets::new(EntityOptions::default())?;
    let mut figures = Vec::new();
    for size in SIZES {
        let usual = text(size, prose);
        figures.push(judge("phrases, 1,000", &phrases, &usual, time).await?);
        figures.push(judge("phrases, built-in injection", &injection, &usual, time).await?);
        figures.push(judge("pii", &pii, &usual, time).await?);
        figures.push(judge("secrets", &secrets, &usual, time).await?);
        let digits = text(size, |number| (number * 7 % 10).to_string());
        figures.push(judge("pii, digits", &pii, &digits, time).await?);
        // Groups of card numbers with a wrong check digit.
        let groups = text(size, |_| "4111 1111 1111 1112 ".to_owned());
        figures.push(judge("pii, groups of digits", &pii, &groups, time).await?);
    }
    Ok(figures)
}

async fn judge(name: &str, judge: &impl Judge, text: &str, time: Duration) -> Outcome<Figure> {
    let passage = Passage::new(Direction::Prompt, text);
    let begin = Instant::now();
    let mut times = Vec::new();
    while begin.elapsed() < time || times.len() < 3 {
        let begin = cpu_time();
        let verdict = judge.judge(&passage).await.map_err(|error| format!("{name}: {error:?}"))?;
        times.push(cpu_time() - begin);
        if verdict != Verdict::Allow {
            return Err(format!("{name}: unexpected verdict {verdict:?}").into());
        }
    }
    Ok(Figure { bytes: Some(text.len() as u64), ..Figure::new(name, times) })
}
