//! Settings from the container's environment.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use hyper::header::{HOST, HeaderMap};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::{Method, Uri};
use snafu::Snafu;

use crate::{AuditMode, OnFailure};

/// Settings of an auditor, from environment variables. Lucid sets the first eight.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// `LUCID_AUDITOR_ID`: name of the container.
    pub id: String,
    /// `LUCID_AUDITOR_PORT`, or `PORT`: port to listen on.
    pub port: u16,
    /// `LUCID_CHAIN_NEXT`, or `AUDITOR_URL`: the next auditor, or the model.
    pub next: Authority,
    /// `LUCID_ROUTES`, such as `8090=8093,8091=8094`: ports to listen on, each with the port of its next hop on localhost.
    /// The first route has `port` and `next`. Default: this route only.
    pub routes: Vec<Route>,
    /// `LUCID_AUDIT_MODE`.
    pub mode: AuditMode,
    /// `LUCID_AUDIT_FAILURE`, `deny` or `allow`: overrides [`JudgePolicy::on_failure`](crate::JudgePolicy::on_failure) of
    /// every judge.
    pub on_failure: Option<OnFailure>,
    /// `LUCID_AUDIT_TIMEOUT_MS`: overrides [`JudgePolicy::timeout`](crate::JudgePolicy::timeout) of every judge.
    pub timeout: Option<Duration>,
    /// `LUCID_PROBE_PATHS`: paths of the kubelet's probes of the model.
    pub probe_paths: Vec<String>,
    /// `LUCID_UNJUDGED`, `refuse` or `pass`: content that cannot be judged.
    pub unjudged: Unjudged,
    /// `LUCID_METRICS_PORT`: port of the metrics; 0 for none. Default: `port` + 10000.
    pub metrics_port: Option<NonZeroU16>,
    /// `MAX_BODY_BYTES`: maximum length of a buffered body, decoded: a request, a JSON answer, or an answer to HTTP/1.0; and of an
    /// event of a stream. In `observe`, length of the judged part.
    pub max_bytes: usize,
    /// `LAME_DUCK_SECONDS`: how long to keep serving after SIGTERM.
    pub lame_duck: Duration,
}

/// A port to listen on, and the next hop of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// Port to listen on.
    pub port: u16,
    /// The next auditor, or the model.
    pub next: Authority,
}

/// Action for content that cannot be judged: bodies that are not UTF-8, token ids, images and files in messages,
/// unknown content codings, gRPC, WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unjudged {
    /// Refuse it.
    #[default]
    Refuse,
    /// Let it pass.
    Pass,
}

/// A variable is invalid or missing.
#[derive(Snafu)]
#[snafu(display("{name}: expected {expected}, found {}", found.as_deref().unwrap_or("nothing")))]
pub struct SettingError {
    name: &'static str,
    found: Option<String>,
    expected: Cow<'static, str>,
}

/// Like `Display`: a program whose `main` returns the error prints it so.
impl fmt::Debug for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl SettingError {
    pub(crate) fn hash_key() -> Self {
        Self {
            name: "LUCID_HASH_KEY",
            found: None,
            expected: "a key, because the system has no random numbers".into(),
        }
    }
}

const MAX_ROUTES: usize = 8;

/// Distance of the default port of metrics from the auditor's.
const METRICS_PORT_OFFSET: u16 = 10_000;

impl Settings {
    /// Reads the settings from the environment, which `variable` looks up.
    pub(crate) fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let one = |name: &'static str| Found(name, variable(name));
        let first = |name, older| {
            let is_older = variable(name).is_none() && variable(older).is_some();
            one(if is_older { older } else { name })
        };

        let next = first("LUCID_CHAIN_NEXT", "AUDITOR_URL").parsed(None, "http://HOST:PORT", authority)?;
        let port = first("LUCID_AUDITOR_PORT", "PORT").number(8080, 1, "a port from 1 to 65535")?;
        let routes = routes(variable("LUCID_ROUTES"), Route { port, next: next.clone() })?;
        let modes = [("enforce", AuditMode::Enforce), ("observe", AuditMode::Observe)];
        let mode = one("LUCID_AUDIT_MODE").one_of(modes, "enforce or observe")?;
        let on_failure =
            one("LUCID_AUDIT_FAILURE").parsed(Some(None), "deny or allow", |text| match text {
                "deny" => Some(Some(OnFailure::Deny)),
                "allow" => Some(Some(OnFailure::Allow)),
                _ => None,
            })?;
        let timeout: u32 = one("LUCID_AUDIT_TIMEOUT_MS").number(0, 1, "a number of milliseconds above 0")?;
        let treatments = [("refuse", Unjudged::Refuse), ("pass", Unjudged::Pass)];
        let unjudged = one("LUCID_UNJUDGED").one_of(treatments, "refuse or pass")?;
        let beside = port.checked_add(METRICS_PORT_OFFSET).unwrap_or(0);
        let metrics_port = one("LUCID_METRICS_PORT").number(beside, 0, "a port or 0")?;
        let max_bytes = one("MAX_BODY_BYTES").number(1 << 20, 1, "a number of bytes")?;
        let lame_duck: u16 = one("LAME_DUCK_SECONDS").number(10, 0, "0 to 65535")?;
        let probe_paths = variable("LUCID_PROBE_PATHS").unwrap_or_default();
        Ok(Self {
            id: variable("LUCID_AUDITOR_ID").unwrap_or_else(|| "lucid-auditor".to_owned()),
            port,
            next,
            routes,
            mode,
            on_failure,
            timeout: (timeout > 0).then(|| Duration::from_millis(timeout.into())),
            probe_paths: probe_paths.split(',').filter(|path| !path.is_empty()).map(str::to_owned).collect(),
            unjudged,
            metrics_port: NonZeroU16::new(metrics_port),
            max_bytes,
            lame_duck: Duration::from_secs(lame_duck.into()),
        })
    }

    pub(crate) fn refuses_unjudged(&self) -> bool {
        self.mode == AuditMode::Enforce && self.unjudged == Unjudged::Refuse
    }

    /// Returns the next hop of requests to `port`.
    pub(crate) fn next_hop(&self, port: Option<u16>) -> &Authority {
        let route = self.routes.iter().find(|route| Some(route.port) == port);
        route.map_or(&self.next, |route| &route.next)
    }

    /// Returns `true` for a probe of the model: GET of exactly one of the probes' paths, including the query, on a port other
    /// than those of this auditor.
    pub(crate) fn is_probe_of_the_model(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        let path = uri.path_and_query().map_or("", PathAndQuery::as_str);
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let port = host.and_then(|host| host.parse::<Authority>().ok()?.port_u16());
        method == Method::GET
            && port.is_some_and(|port| self.routes.iter().all(|route| route.port != port))
            && self.probe_paths.iter().any(|probe| probe == path)
    }
}

/// Parses `LUCID_ROUTES`, whose first pair must be `first`.
fn routes(found: Option<String>, first: Route) -> Result<Vec<Route>, SettingError> {
    let Some(found) = found else { return Ok(vec![first]) };
    let invalid = |expected: Cow<'static, str>| SettingError {
        name: "LUCID_ROUTES",
        found: Some(found.clone()),
        expected,
    };
    let port = |text: &str| text.parse::<NonZeroU16>().ok().filter(|port| port.to_string() == text);
    let pair = |text: &str| text.split_once('=').and_then(|(own, next)| Some((port(own)?, port(next)?)));
    let pairs: Option<Vec<_>> = found.split(',').map(pair).collect();
    let pairs = pairs.ok_or_else(|| invalid("PORT=NEXT_PORT, with commas between pairs".into()))?;
    if pairs.len() > MAX_ROUTES {
        return Err(invalid(format!("at most {MAX_ROUTES} pairs").into()));
    }
    let mut seen = BTreeSet::new();
    // A port that is a next hop, too, would be a loop.
    if let Some(port) = pairs.iter().flat_map(|&(own, next)| [own, next]).find(|&port| !seen.insert(port)) {
        return Err(invalid(format!("port {port} once").into()));
    }
    let (own, next) = (first.port, first.next.port_u16().unwrap_or(80));
    if pairs.first().is_none_or(|pair| (pair.0.get(), pair.1.get()) != (own, next)) {
        let expected = format!("{own}={next} first, the ports of LUCID_AUDITOR_PORT and LUCID_CHAIN_NEXT");
        return Err(invalid(expected.into()));
    }
    let others = pairs.iter().skip(1).map(|(own, next)| {
        let next = format!("localhost:{next}").parse().ok()?;
        Some(Route { port: own.get(), next })
    });
    // A host with a port is an authority.
    Ok(std::iter::once(Some(first)).chain(others).flatten().collect())
}

fn authority(url: &str) -> Option<Authority> {
    let uri: Uri = url.parse().ok()?;
    let is_plain =
        uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/") && uri.query().is_none();
    uri.authority().filter(|_| is_plain).cloned()
}

struct Found(&'static str, Option<String>);

impl Found {
    fn parsed<T>(
        self,
        default: Option<T>,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, SettingError> {
        let Self(name, found) = self;
        let value = found.as_deref().map_or(default, parse);
        value.ok_or(SettingError { name, found, expected: expected.into() })
    }

    fn number<N>(self, default: N, least: N, expected: &'static str) -> Result<N, SettingError>
    where
        N: FromStr + PartialOrd,
    {
        self.parsed(Some(default), expected, |text| text.parse().ok().filter(|number| *number >= least))
    }

    /// The first value is the default.
    fn one_of<T: Copy>(self, values: [(&str, T); 2], expected: &'static str) -> Result<T, SettingError> {
        let known = |text: &str| values.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        self.parsed(Some(values[0].1), expected, known)
    }
}
