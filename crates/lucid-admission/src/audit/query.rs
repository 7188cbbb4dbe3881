//! Query parameters of `/audit`: filters, page and format.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use lucid_audit::Decision;
use snafu::Snafu;
use url::form_urlencoded;

const LIMIT: usize = 100;
const LARGEST: usize = 1000;
const KEYS: [&str; 12] = [
    "since",
    "until",
    "namespace",
    "decision",
    "ticket",
    "webhook",
    "mode",
    "tier",
    "order",
    "limit",
    "cursor",
    "format",
];

#[derive(Debug, Snafu)]
#[snafu(display("{message}"))]
pub(super) struct QueryError {
    /// Status of the response: 410 for the cursor of another process, which may have been valid there, otherwise 400.
    pub(super) status: StatusCode,
    message: String,
}

impl QueryError {
    fn new(message: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Allowed,
    Denied,
    WouldDeny,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Newest,
    Oldest,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    #[default]
    Json,
    JsonLines,
}

impl Format {
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::JsonLines => "application/jsonl",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Query {
    /// Parameters as given, except the cursor.
    given: BTreeMap<String, String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    classes: Vec<Class>,
    pub(super) order: Order,
    pub(super) limit: usize,
    /// Number of the last decision on the previous page.
    pub(super) after: Option<u64>,
    pub(super) format: Format,
}

pub(super) fn new_run() -> String {
    let mut bytes = [0; 8];
    // Falls back to the time if there is no randomness.
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        bytes = Timestamp::now().as_microsecond().to_be_bytes();
    }
    format!("{:016x}", u64::from_be_bytes(bytes))
}

impl Query {
    /// Parses the query of a URL. Empty parameters are ignored. Without `format`, the values of the Accept header
    /// decide.
    pub(super) fn parse<'a>(
        query: &str,
        accepts: impl IntoIterator<Item = &'a str>,
        run: &str,
    ) -> Result<Self, QueryError> {
        let mut given = BTreeMap::new();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            if !KEYS.contains(&&*key) {
                let expected = KEYS.join(", ");
                return Err(QueryError::new(format!(
                    "unknown parameter {key:?}; expected one of {expected}"
                )));
            }
            if given.insert(key.to_string(), value.into_owned()).is_some() {
                return Err(QueryError::new(format!("the parameter {key} is repeated; expected one")));
            }
        }
        given.retain(|_, value| !value.is_empty());
        let cursor = given.remove("cursor");
        let value = |key: &'static str| given.get(key).map(|value| (key, value.as_str()));
        Ok(Self {
            since: value("since").map(time).transpose()?,
            until: value("until").map(time).transpose()?,
            classes: value("decision").map(classes).transpose()?.unwrap_or_default(),
            order: value("order").map(order).transpose()?.unwrap_or_default(),
            limit: value("limit").map(limit).transpose()?.unwrap_or(LIMIT),
            after: cursor.map(|value| number(&value, run)).transpose()?,
            format: match value("format") {
                Some(value) => format(value)?,
                None if accepts.into_iter().any(wants_lines) => Format::JsonLines,
                None => Format::Json,
            },
            given,
        })
    }

    pub(super) fn takes(&self, decision: &Decision) -> bool {
        let is = |key: &str, text: &str| self.given.get(key).is_none_or(|wanted| wanted == text);
        self.since.is_none_or(|since| decision.time >= since)
            && self.until.is_none_or(|until| decision.time < until)
            && (self.classes.is_empty() || self.classes.iter().any(|class| class.holds(decision)))
            && is("namespace", &decision.namespace)
            && is("ticket", &decision.ticket)
            && is("webhook", &decision.webhook)
            && is("mode", &decision.mode)
            && is("tier", &decision.tier)
    }

    pub(super) fn cursor(&self, run: &str, number: u64) -> String {
        format!("{run}-{number}")
    }

    pub(super) fn with_cursor(&self, cursor: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.given).append_pair("cursor", cursor).finish()
    }
}

impl Class {
    const fn holds(self, decision: &Decision) -> bool {
        match self {
            Self::Allowed => decision.allowed,
            Self::Denied => !decision.allowed,
            Self::WouldDeny => decision.allowed && decision.would_deny,
        }
    }
}

type Given<'a> = (&'static str, &'a str);

/// Returns `parsed`, or the error that names the `expected` values.
fn require<T>((key, value): Given<'_>, parsed: Option<T>, expected: &'static str) -> Result<T, QueryError> {
    parsed.ok_or_else(|| QueryError::new(format!("{key}: expected {expected}, found {value:?}")))
}

fn time(given: Given<'_>) -> Result<Timestamp, QueryError> {
    let value = given.1;
    // An unencoded `+` is decoded as a space.
    let repaired = || value.rsplit_once(' ').and_then(|(time, zone)| format!("{time}+{zone}").parse().ok());
    require(given, value.parse().ok().or_else(repaired), "an RFC 3339 time, such as 2026-11-22T14:00:00Z")
}

fn classes(given: Given<'_>) -> Result<Vec<Class>, QueryError> {
    let class = |word| match word {
        "allowed" => Some(Class::Allowed),
        "denied" => Some(Class::Denied),
        "would-deny" => Some(Class::WouldDeny),
        _ => None,
    };
    let classes = given.1.split(',').map(class).collect();
    require(given, classes, "one or more of allowed, denied, would-deny")
}

fn order(given: Given<'_>) -> Result<Order, QueryError> {
    let order = match given.1 {
        "newest" => Some(Order::Newest),
        "oldest" => Some(Order::Oldest),
        _ => None,
    };
    require(given, order, "newest or oldest")
}

fn limit(given: Given<'_>) -> Result<usize, QueryError> {
    let limit = given.1.parse().ok().filter(|limit| (1..=LARGEST).contains(limit));
    require(given, limit, "a whole number from 1 to 1000")
}

fn format(given: Given<'_>) -> Result<Format, QueryError> {
    let format = match given.1 {
        "json" => Some(Format::Json),
        "jsonl" => Some(Format::JsonLines),
        _ => None,
    };
    require(given, format, "json or jsonl")
}

fn number(value: &str, run: &str) -> Result<u64, QueryError> {
    let parts = value.split_once('-').and_then(|(of, number)| Some((of, number.parse().ok()?)));
    let (of, number) = require(("cursor", value), parts, "the `next` cursor of an earlier response")?;
    if of != run {
        let message = "the cursor belongs to another replica or an earlier process; omit it";
        return Err(QueryError { status: StatusCode::GONE, message: message.to_owned() });
    }
    Ok(number)
}

fn wants_lines(accept: &str) -> bool {
    let media_type = |part: &str| part.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_lines =
        |it: &str| matches!(it, "application/jsonl" | "application/x-ndjson" | "application/json-lines");
    accept
        .split(',')
        .map(media_type)
        .find(|it| it == "application/json" || is_lines(it))
        .is_some_and(|it| is_lines(&it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Query, QueryError> {
        Query::parse(query, None, "run")
    }

    #[test]
    fn invalid_parameters_name_the_expected_values() {
        for (query, says) in [
            ("Namespace=a", "expected one of since, until,"),
            ("limit=5&limit=6", "limit is repeated"),
            ("limit=0", "1 to 1000"),
            ("limit=1001", "1 to 1000"),
            ("limit=-1", "1 to 1000"),
            ("since=yesterday", "RFC 3339"),
            ("until=2026-13-01T00:00:00Z", "RFC 3339"),
            ("decision=refused", "allowed, denied, would-deny"),
            ("decision=denied,", "allowed, denied, would-deny"),
            ("order=up", "newest or oldest"),
            ("format=xml", "json or jsonl"),
            ("cursor=7", "cursor of an earlier response"),
            ("cursor=run-x", "cursor of an earlier response"),
            ("cursor=other-7", "another replica"),
        ] {
            let error = parse(query).unwrap_err().to_string();
            assert!(error.contains(says), "{query}: {error}");
        }
    }

    #[test]
    fn each_filter_selects_the_decisions_it_names() {
        let mut decision = Decision::new("validate", "u");
        decision.time = "2026-11-22T14:00:00Z".parse().unwrap();
        (decision.namespace, decision.ticket) = ("shop".to_owned(), "INC-1".to_owned());
        (decision.mode, decision.tier) = ("break-glass".to_owned(), "invalid".to_owned());
        decision.would_deny = true;
        for (query, takes) in [
            ("", true),
            ("namespace=&ticket=", true),
            ("namespace=shop", true),
            ("namespace=sho", false),
            ("ticket=INC-1&webhook=validate&mode=break-glass", true),
            ("ticket=INC-1&webhook=mutate", false),
            ("tier=invalid", true),
            ("tier=missing", false),
            ("since=2026-11-22T14:00:00Z", true),
            ("since=2026-11-22T14:00:00.000000001Z", false),
            ("until=2026-11-22T14:00:00Z", false),
            ("until=2026-11-22T15:00:01+01:00", true),
            ("until=2026-11-22T15:00:01%2B01:00", true),
            ("decision=allowed", true),
            ("decision=denied", false),
            ("decision=would-deny", true),
            ("decision=denied,would-deny", true),
        ] {
            assert_eq!(parse(query).unwrap().takes(&decision), takes, "{query}");
        }
        decision.allowed = false;
        for (query, takes) in
            [("decision=allowed", false), ("decision=denied", true), ("decision=would-deny", false)]
        {
            assert_eq!(parse(query).unwrap().takes(&decision), takes, "{query}");
        }
    }

    #[test]
    fn json_lines_are_selected_by_parameter_or_accept_header() {
        for (query, accept, expected) in [
            ("", "*/*", Format::Json),
            ("", "application/jsonl", Format::JsonLines),
            ("", "text/html, Application/X-NDJSON; q=0.9", Format::JsonLines),
            ("", "application/json, application/jsonl", Format::Json),
            ("format=json", "application/jsonl", Format::Json),
            ("format=jsonl", "application/json", Format::JsonLines),
        ] {
            assert_eq!(Query::parse(query, [accept], "run").unwrap().format, expected, "{query} {accept}");
        }
    }

    #[test]
    fn the_next_page_keeps_the_filters() {
        let query = parse("namespace=a%26b&limit=7&cursor=run-9").unwrap();
        assert_eq!((query.limit, query.after), (7, Some(9)));
        assert_eq!(query.with_cursor(&query.cursor("run", 2)), "limit=7&namespace=a%26b&cursor=run-2");
    }
}
