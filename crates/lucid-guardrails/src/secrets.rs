//! Secrets.

use aho_corasick::{AhoCorasick, MatchKind};
use lucid_auditor::{Judge, JudgeError, Passage, Verdict};

use crate::{
    EntityOptions, OptionsError,
    entities::{Finding, Selected, verdict},
    spans::tail,
};

/// Finds secrets in formats that do not occur by chance: keys of clouds, tokens of services, JWTs and private keys.
///
/// Sources of the formats are the services' documentation, the rules of gitleaks, and GitHub's secret scanning.
#[derive(Debug)]
pub struct Secrets {
    formats: Vec<(&'static Format, Selected)>,
    /// The anchors of the formats, in their order.
    anchors: AhoCorasick,
}

/// Length of the longest finding, a private key of RSA with 4096 bits.
const OVERLAP: usize = 4096;
/// Shortest beginning of an anchor that is withheld.
const SHORTEST: usize = 3;

/// A format of secrets, found by a fixed part.
#[derive(Debug)]
struct Format {
    entity: &'static str,
    anchor: &'static str,
    tail: Tail,
}

#[derive(Debug)]
enum Tail {
    /// Between `min` and `max` characters of a set, and this among them.
    Run { set: Set, min: usize, max: usize, part: &'static str },
    /// A key that is assigned to the anchor.
    Assigned { set: Set, len: usize },
    /// Base64url, a dot, and two more such parts.
    Jwt,
    /// A private key in PEM.
    Pem,
    /// A client secret of Microsoft Entra, which begins four characters before the anchor.
    Entra,
}

#[derive(Debug, Clone, Copy)]
enum Set {
    Hex,
    /// Capitals and 2 to 7.
    Base32,
    Alphanumeric,
    /// Letters, digits and `+/=`.
    Base64,
    /// Letters, digits and `_-`.
    Base64Url,
    /// Letters, digits and `_-.`.
    Dotted,
}

impl Set {
    fn contains(self, byte: u8) -> bool {
        match self {
            Self::Hex => byte.is_ascii_hexdigit(),
            Self::Base32 => matches!(byte, b'A'..=b'Z' | b'2'..=b'7'),
            Self::Alphanumeric => byte.is_ascii_alphanumeric(),
            Self::Base64 => byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='),
            Self::Base64Url => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Self::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
        }
    }
}

const fn token(entity: &'static str, anchor: &'static str, set: Set, min: usize, max: usize) -> Format {
    Format { entity, anchor, tail: Tail::Run { set, min, max, part: "" } }
}

const fn openai(anchor: &'static str, min: usize, max: usize) -> Format {
    Format {
        entity: "OPENAI_KEY",
        anchor,
        tail: Tail::Run { set: Set::Base64Url, min, max, part: "T3BlbkFJ" },
    }
}

const fn aws_secret(anchor: &'static str) -> Format {
    Format { entity: "AWS_SECRET_KEY", anchor, tail: Tail::Assigned { set: Set::Base64, len: 40 } }
}

const fn other(entity: &'static str, anchor: &'static str, tail: Tail) -> Format {
    Format { entity, anchor, tail }
}

const FORMATS: &[Format] = &[
    token("AGE_SECRET_KEY", "AGE-SECRET-KEY-1", Set::Alphanumeric, 58, 58),
    token("ANTHROPIC_KEY", "sk-ant-", Set::Base64Url, 80, 150),
    token("AWS_ACCESS_KEY", "AKIA", Set::Base32, 16, 16),
    token("AWS_ACCESS_KEY", "ASIA", Set::Base32, 16, 16),
    token("AWS_ACCESS_KEY", "ABIA", Set::Base32, 16, 16),
    token("AWS_ACCESS_KEY", "ACCA", Set::Base32, 16, 16),
    token("AWS_BEDROCK_KEY", "ABSK", Set::Base64, 109, 271),
    aws_secret("secret_access_key"),
    aws_secret("SECRET_ACCESS_KEY"),
    aws_secret("secretAccessKey"),
    aws_secret("SecretAccessKey"),
    other("AZURE_CLIENT_SECRET", "Q~", Tail::Entra),
    other("AZURE_STORAGE_KEY", "AccountKey", Tail::Assigned { set: Set::Base64, len: 88 }),
    token("DATABRICKS_TOKEN", "dapi", Set::Hex, 32, 32),
    token("DIGITALOCEAN_TOKEN", "dop_v1_", Set::Hex, 64, 64),
    token("DIGITALOCEAN_TOKEN", "doo_v1_", Set::Hex, 64, 64),
    token("DIGITALOCEAN_TOKEN", "dor_v1_", Set::Hex, 64, 64),
    token("DOCKER_TOKEN", "dckr_pat_", Set::Base64Url, 27, 27),
    token("GCP_API_KEY", "AIza", Set::Base64Url, 35, 35),
    token("GCP_CLIENT_SECRET", "GOCSPX-", Set::Base64Url, 28, 28),
    token("GITHUB_TOKEN", "ghp_", Set::Alphanumeric, 36, 255),
    token("GITHUB_TOKEN", "gho_", Set::Alphanumeric, 36, 255),
    token("GITHUB_TOKEN", "ghu_", Set::Alphanumeric, 36, 255),
    token("GITHUB_TOKEN", "ghs_", Set::Alphanumeric, 36, 255),
    token("GITHUB_TOKEN", "ghr_", Set::Alphanumeric, 36, 255),
    token("GITHUB_TOKEN", "github_pat_", Set::Base64Url, 82, 82),
    token("GITLAB_TOKEN", "glpat-", Set::Dotted, 20, 320),
    token("GITLAB_TOKEN", "glrt-", Set::Dotted, 20, 320),
    token("GITLAB_TOKEN", "glptt-", Set::Hex, 40, 40),
    token("GITLAB_TOKEN", "gldt-", Set::Base64Url, 20, 20),
    token("GITLAB_TOKEN", "glft-", Set::Base64Url, 20, 20),
    token("GITLAB_TOKEN", "glcbt-", Set::Base64Url, 22, 26),
    token("GITLAB_TOKEN", "glsoat-", Set::Base64Url, 20, 20),
    token("GITLAB_TOKEN", "glimt-", Set::Base64Url, 25, 25),
    token("GITLAB_TOKEN", "glagent-", Set::Base64Url, 50, 50),
    token("GITLAB_TOKEN", "gloas-", Set::Base64Url, 64, 64),
    token("GRAFANA_TOKEN", "glsa_", Set::Base64Url, 41, 41),
    token("GRAFANA_TOKEN", "glc_", Set::Base64, 32, 400),
    token("GROQ_KEY", "gsk_", Set::Alphanumeric, 52, 52),
    token("HUGGINGFACE_TOKEN", "hf_", Set::Alphanumeric, 34, 34),
    token("HUGGINGFACE_TOKEN", "api_org_", Set::Alphanumeric, 34, 34),
    other("JWT", "eyJ", Tail::Jwt),
    token("LINEAR_KEY", "lin_api_", Set::Alphanumeric, 40, 40),
    token("NOTION_TOKEN", "ntn_", Set::Alphanumeric, 46, 46),
    token("NPM_TOKEN", "npm_", Set::Alphanumeric, 36, 36),
    openai("sk-proj-", 60, 200),
    openai("sk-svcacct-", 60, 200),
    openai("sk-admin-", 60, 200),
    openai("sk-", 48, 48),
    token("PERPLEXITY_KEY", "pplx-", Set::Alphanumeric, 48, 48),
    token("POSTMAN_KEY", "PMAK-", Set::Base64Url, 59, 59),
    other("PRIVATE_KEY", "-----BEGIN ", Tail::Pem),
    token("PULUMI_TOKEN", "pul-", Set::Hex, 40, 40),
    token("PYPI_TOKEN", "pypi-AgEIcHlwaS5vcmc", Set::Base64Url, 50, 1000),
    token("RUBYGEMS_KEY", "rubygems_", Set::Hex, 48, 48),
    token("SENDGRID_KEY", "SG.", Set::Dotted, 66, 66),
    token("SHOPIFY_TOKEN", "shpat_", Set::Hex, 32, 32),
    token("SHOPIFY_TOKEN", "shpca_", Set::Hex, 32, 32),
    token("SHOPIFY_TOKEN", "shppa_", Set::Hex, 32, 32),
    token("SHOPIFY_TOKEN", "shpss_", Set::Hex, 32, 32),
    token("SLACK_TOKEN", "xoxa-", Set::Base64Url, 20, 300),
    token("SLACK_TOKEN", "xoxb-", Set::Base64Url, 20, 300),
    token("SLACK_TOKEN", "xoxe-", Set::Base64Url, 20, 300),
    token("SLACK_TOKEN", "xoxe.xox", Set::Base64Url, 20, 300),
    token("SLACK_TOKEN", "xoxo-", Set::Base64Url, 20, 300),
    token("SLACK_TOKEN", "xoxp-", Set::Base64Url, 20, 300),
    token("SLACK_TOKEN", "xoxr-", Set::Base64Url, 20, 300),
    token("SLACK_TOKEN", "xoxs-", Set::Base64Url, 20, 300),
    token("SLACK_TOKEN", "xapp-", Set::Base64Url, 20, 300),
    token("SLACK_WEBHOOK", "hooks.slack.com/services/", Set::Base64, 43, 56),
    token("SLACK_WEBHOOK", "hooks.slack.com/workflows/", Set::Base64, 43, 56),
    token("STRIPE_KEY", "sk_live_", Set::Alphanumeric, 10, 110),
    token("STRIPE_KEY", "sk_test_", Set::Alphanumeric, 10, 110),
    token("STRIPE_KEY", "rk_live_", Set::Alphanumeric, 10, 110),
    token("STRIPE_KEY", "rk_test_", Set::Alphanumeric, 10, 110),
    token("VAULT_TOKEN", "hvs.", Set::Base64Url, 90, 120),
    token("VAULT_TOKEN", "hvb.", Set::Base64Url, 138, 300),
];

/// Outcome of a search: where a finding begins, where it ends if there is one, and whether more text may change that.
struct Step {
    start: usize,
    end: Option<usize>,
    open: bool,
}

impl Secrets {
    /// Returns the names of the entities, sorted.
    #[must_use]
    pub fn entities() -> Vec<&'static str> {
        let mut entities: Vec<_> = FORMATS.iter().map(|format| format.entity).collect();
        entities.sort_unstable();
        entities.dedup();
        entities
    }

    /// Creates a judge.
    ///
    /// # Errors
    ///
    /// Returns an error if the options name an unknown entity.
    pub fn new(options: EntityOptions) -> Result<Self, OptionsError> {
        let known = Self::entities();
        let selected = options.select(&known)?;
        let formats: Vec<_> = FORMATS
            .iter()
            .filter_map(|format| {
                let index = known.binary_search(&format.entity).ok()?;
                Some((format, selected[index]?))
            })
            .collect();
        let anchors = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(formats.iter().map(|(format, _)| format.anchor))
            .map_err(|error| OptionsError::new("entities", error))?;
        Ok(Self { formats, anchors })
    }

    /// Returns the findings, and the beginning of one that may continue after the end of the text.
    fn scan(&self, text: &str) -> (Vec<Finding>, Option<usize>) {
        let bytes = text.as_bytes();
        let mut findings = Vec::new();
        let mut open: Option<usize> = None;
        for found in self.anchors.find_iter(bytes) {
            let (format, selected) = self.formats[found.pattern().as_usize()];
            let step = find(&format.tail, bytes, found.start(), found.end());
            if step.open {
                open = Some(open.map_or(step.start, |open| open.min(step.start)));
            }
            if let Some(end) = step.end {
                let range = step.start..end;
                findings.push(Finding { range, entity: format.entity, action: selected.action, weak: false });
            }
        }
        (findings, open)
    }

    /// Number of bytes at the end that are the beginning of an anchor.
    fn open_anchor(&self, bytes: &[u8]) -> usize {
        let tails = self.formats.iter().flat_map(|(format, _)| {
            let anchor = format.anchor.as_bytes();
            (SHORTEST..anchor.len()).rev().find(|len| bytes.ends_with(&anchor[..*len]))
        });
        tails.filter(|len| begins(bytes, bytes.len() - len)).max().unwrap_or(0)
    }
}

impl Judge for Secrets {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        Ok(verdict(self.scan(&passage.text).0, "a secret"))
    }

    fn overlap(&self) -> usize {
        OVERLAP
    }

    fn undecided(&self, text: &str) -> usize {
        let tail = tail(text, OVERLAP);
        let open = self.scan(tail).1.map_or(0, |open| tail.len() - open);
        open.max(self.open_anchor(tail.as_bytes()))
    }
}

/// Returns `true` if a secret may begin at `at`.
fn begins(bytes: &[u8], at: usize) -> bool {
    at == 0 || !Set::Alphanumeric.contains(bytes[at - 1])
}

/// Returns `true` if the letters and digits are all the same: `xxxx-xxxx`.
fn is_placeholder(secret: &[u8]) -> bool {
    let mut characters = secret.iter().filter(|byte| byte.is_ascii_alphanumeric());
    let first = characters.next();
    characters.all(|byte| Some(byte) == first)
}

/// Returns the end of the characters of a set from `start`.
fn run(bytes: &[u8], start: usize, limit: usize, contains: impl Fn(u8) -> bool) -> usize {
    start + bytes[start..].iter().take(limit).take_while(|byte| contains(**byte)).count()
}

fn find(tail: &Tail, bytes: &[u8], start: usize, anchor_end: usize) -> Step {
    let none = Step { start, end: None, open: false };
    match tail {
        Tail::Run { set, min, max, part } => {
            let end = run(bytes, anchor_end, max + 1, |byte| set.contains(byte));
            let open = end == bytes.len() && end - anchor_end <= *max;
            // The end of a sentence.
            let dots = bytes[anchor_end..end].iter().rev().take_while(|byte| **byte == b'.').count();
            let end = end - dots;
            let secret = &bytes[anchor_end..end];
            let fits = (*min..=*max).contains(&secret.len())
                && (part.is_empty() || secret.windows(part.len()).any(|window| window == part.as_bytes()))
                && !is_placeholder(secret)
                && bytes.get(end).is_none_or(|byte| !byte.is_ascii_alphanumeric());
            let begins = begins(bytes, start);
            Step { start, end: (begins && fits).then_some(end), open: begins && open }
        }
        Tail::Assigned { set, len } => {
            let start =
                run(bytes, anchor_end, 8, |byte| matches!(byte, b' ' | b'"' | b'\'' | b':' | b'=' | b'\\'));
            let end = run(bytes, start, len + 1, |byte| set.contains(byte));
            let fits = start > anchor_end && end - start == *len;
            Step {
                start,
                end: fits.then_some(end),
                open: end == bytes.len() && end > start && end - start <= *len,
            }
        }
        Tail::Jwt if !begins(bytes, start) || start > 0 && matches!(bytes[start - 1], b'-' | b'_') => none,
        Tail::Jwt => {
            let part = |start| run(bytes, start, OVERLAP, |byte| Set::Base64Url.contains(byte));
            let header = part(anchor_end);
            if header == bytes.len() {
                return Step { start, end: None, open: true };
            }
            if bytes[header] != b'.' || header - start < 17 {
                return none;
            }
            let payload = part(header + 1);
            let is_payload = bytes[header + 1..].starts_with(b"eyJ");
            match bytes.get(payload) {
                None => Step { start, end: None, open: is_payload || payload < header + 4 },
                Some(b'.') if is_payload => {
                    let end = part(payload + 1);
                    Step { start, end: Some(end), open: end == bytes.len() }
                }
                Some(_) => none,
            }
        }
        Tail::Pem => find_pem(bytes, start, anchor_end),
        Tail::Entra => {
            let set = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'~' | b'.' | b'-');
            let Some(before) = start.checked_sub(4) else { return none };
            let fits =
                bytes[before..start - 1].iter().all(|byte| set(*byte)) && bytes[start - 1].is_ascii_digit();
            let end = run(bytes, anchor_end, 35, set);
            if !fits || before > 0 && set(bytes[before - 1]) {
                return none;
            }
            let fits = (31..=34).contains(&(end - anchor_end));
            Step {
                start: before,
                end: fits.then_some(end),
                open: end == bytes.len() && end - anchor_end <= 34,
            }
        }
    }
}

/// Finds a private key. Without its end it reaches as far as base64 and line breaks do.
fn find_pem(bytes: &[u8], start: usize, anchor_end: usize) -> Step {
    let none = Step { start, end: None, open: false };
    let label_end =
        run(bytes, anchor_end, 64, |byte| byte.is_ascii_uppercase() || matches!(byte, b' ' | b'0'..=b'9'));
    let label = &bytes[anchor_end..label_end];
    let rest = &bytes[label_end..];
    if b"-----".starts_with(rest) {
        return Step { start, end: None, open: true };
    }
    if !rest.starts_with(b"-----") || !label.windows(11).any(|window| window == b"PRIVATE KEY") {
        return none;
    }
    let body = label_end + 5;
    let limit = bytes.len().min(body + OVERLAP);
    let dashes = bytes[body..limit].windows(5).position(|window| window == b"-----");
    if let Some(dashes) = dashes.map(|at| body + at) {
        let key = bytes[body..dashes].iter().filter(|byte| Set::Base64.contains(**byte)).count();
        let end = run(bytes, dashes + 5, 64, |byte| byte.is_ascii_uppercase() || byte == b' ');
        if bytes[dashes..].starts_with(b"-----END ") && key >= 40 {
            let end = run(bytes, end, 5, |byte| byte == b'-');
            return Step { start, end: Some(end), open: end == bytes.len() };
        }
    }
    let end =
        run(bytes, body, OVERLAP, |byte| Set::Base64.contains(byte) || matches!(byte, b'\r' | b'\n' | b'\\'));
    Step { start, end: (end - body >= 40).then_some(end), open: limit == bytes.len() }
}
