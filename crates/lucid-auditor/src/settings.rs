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

use crate::Mode;

/// Settings of an auditor, from environment variables. Lucid sets the first six.
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
    pub mode: Mode,
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

/// Treatment of content that cannot be judged: bodies that are not UTF-8, token ids, images and files in messages,
/// unknown content codings, gRPC, WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unjudged {
    /// It is refused.
    #[default]
    Refuse,
    /// It passes.
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

/// Maximum number of routes.
const MAX_ROUTES: usize = 8;

/// Distance of the default port of metrics from the auditor's.
const METRICS_PORT_OFFSET: u16 = 10_000;

impl Settings {
    /// Reads the settings from `variable`, which returns the value of a variable.
    ///
    /// # Errors
    ///
    /// Returns [`SettingError`] if a variable is invalid.
    pub(crate) fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let first = |names: [&'static str; 2]| {
            let name = names.into_iter().find(|name| variable(name).is_some()).unwrap_or(names[0]);
            (name, variable(name))
        };

        let (name, found) = first(["LUCID_CHAIN_NEXT", "AUDITOR_URL"]);
        let next = found.as_deref().and_then(authority);
        let next = next.ok_or(SettingError { name, found, expected: "http://HOST:PORT".into() })?;
        let (name, found) = first(["LUCID_AUDITOR_PORT", "PORT"]);
        let port: u16 = number(name, found, 8080, 1, "a port from 1 to 65535")?;
        let routes = routes(variable("LUCID_ROUTES"), Route { port, next: next.clone() })?;
        let (name, expected) = ("LUCID_AUDIT_MODE", "enforce or observe");
        let found = variable(name);
        let mode = match found.as_deref() {
            None | Some("enforce") => Mode::Enforce,
            Some("observe") => Mode::Observe,
            _ => return Err(SettingError { name, found, expected: expected.into() }),
        };
        let (name, expected) = ("LUCID_UNJUDGED", "refuse or pass");
        let found = variable(name);
        let unjudged = match found.as_deref() {
            None | Some("refuse") => Unjudged::Refuse,
            Some("pass") => Unjudged::Pass,
            _ => return Err(SettingError { name, found, expected: expected.into() }),
        };
        let name = "LUCID_METRICS_PORT";
        let beside = port.checked_add(METRICS_PORT_OFFSET).unwrap_or(0);
        let metrics_port = number(name, variable(name), beside, 0, "a port or 0")?;
        let name = "MAX_BODY_BYTES";
        let max_bytes = number(name, variable(name), 1 << 20, 1, "a number of bytes")?;
        let name = "LAME_DUCK_SECONDS";
        let lame_duck: u16 = number(name, variable(name), 10, 0, "0 to 65535")?;
        let probe_paths = variable("LUCID_PROBE_PATHS").unwrap_or_default();
        Ok(Self {
            id: variable("LUCID_AUDITOR_ID").unwrap_or_else(|| "lucid-auditor".to_owned()),
            port,
            next,
            routes,
            mode,
            probe_paths: probe_paths.split(',').filter(|path| !path.is_empty()).map(str::to_owned).collect(),
            unjudged,
            metrics_port: NonZeroU16::new(metrics_port),
            max_bytes,
            lame_duck: Duration::from_secs(lame_duck.into()),
        })
    }

    pub(crate) fn refuses_unjudged(&self) -> bool {
        self.mode == Mode::Enforce && self.unjudged == Unjudged::Refuse
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

fn number<N: FromStr + PartialOrd>(
    name: &'static str,
    found: Option<String>,
    default: N,
    least: N,
    expected: &'static str,
) -> Result<N, SettingError> {
    let Some(text) = found else { return Ok(default) };
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or(SettingError { name, found: Some(text), expected: expected.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, SettingError> {
        Settings::from(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn lucids_variables_are_parsed() {
        let settings = settings(&[
            ("LUCID_AUDITOR_ID", "lucid-injection-auditor"),
            ("LUCID_CHAIN_NEXT", "http://localhost:8093"),
            ("LUCID_AUDITOR_PORT", "8090"),
            ("LUCID_AUDIT_MODE", "observe"),
            ("LUCID_PROBE_PATHS", "/health,/ready"),
        ])
        .unwrap();
        assert_eq!((settings.id.as_str(), settings.port), ("lucid-injection-auditor", 8090));
        assert_eq!((settings.next.as_str(), settings.mode), ("localhost:8093", Mode::Observe));
        assert_eq!(settings.probe_paths, ["/health", "/ready"]);
    }

    #[test]
    fn the_older_names_do_and_the_rest_has_defaults() {
        let settings = settings(&[("AUDITOR_URL", "http://localhost:5000/"), ("PORT", "8093")]).unwrap();
        assert_eq!((settings.next.as_str(), settings.port), ("localhost:5000", 8093));
        assert_eq!((settings.mode, settings.max_bytes), (Mode::Enforce, 1 << 20));
        assert_eq!(settings.lame_duck, Duration::from_secs(10));
        assert_eq!((settings.metrics_port, settings.unjudged), (NonZeroU16::new(18093), Unjudged::Refuse));
    }

    #[test]
    fn invalid_settings_name_variable_value_and_expected_values() {
        let next = ("LUCID_CHAIN_NEXT", "http://localhost:5000");
        for (variables, told) in [
            (&[][..], "LUCID_CHAIN_NEXT: expected http://HOST:PORT, found nothing"),
            (&[("LUCID_CHAIN_NEXT", "https://model")], "found https://model"),
            (&[("LUCID_CHAIN_NEXT", "localhost:5000")], "found localhost:5000"),
            (&[next, ("PORT", "0")], "PORT: expected a port from 1 to 65535, found 0"),
            (
                &[next, ("LUCID_AUDITOR_PORT", "x")],
                "LUCID_AUDITOR_PORT: expected a port from 1 to 65535, found x",
            ),
            (&[next, ("LUCID_AUDIT_MODE", "off")], "expected enforce or observe, found off"),
            (&[next, ("LUCID_UNJUDGED", "on")], "LUCID_UNJUDGED: expected refuse or pass, found on"),
            (&[next, ("MAX_BODY_BYTES", "-1")], "MAX_BODY_BYTES: expected a number of bytes, found -1"),
            (&[next, ("MAX_BODY_BYTES", "0")], "MAX_BODY_BYTES: expected a number of bytes, found 0"),
            (&[next, ("LAME_DUCK_SECONDS", "10s")], "LAME_DUCK_SECONDS: expected 0 to 65535, found 10s"),
        ] {
            let message = settings(variables).unwrap_err().to_string();
            assert!(message.contains(told), "{message}");
        }
    }

    #[test]
    fn routes_forward_to_ports_on_localhost_and_default_to_one() {
        let first = [("LUCID_CHAIN_NEXT", "http://127.0.0.1:8093"), ("LUCID_AUDITOR_PORT", "8090")];
        let eight: Vec<_> = (1..8).map(|port| format!("{}=500{port}", 9000 + port)).collect();
        let eight = format!("8090=8093,{}", eight.join(","));
        for (routes, expected) in [
            ("", vec![(8090, "127.0.0.1:8093")]),
            ("8090=8093", vec![(8090, "127.0.0.1:8093")]),
            ("8090=8093,8091=8094", vec![(8090, "127.0.0.1:8093"), (8091, "localhost:8094")]),
            (&eight, {
                let others = ["localhost:5001", "localhost:5002", "localhost:5003", "localhost:5004"];
                let more = ["localhost:5005", "localhost:5006", "localhost:5007"];
                let others = (9001..).zip(others.into_iter().chain(more));
                [(8090, "127.0.0.1:8093")].into_iter().chain(others).collect()
            }),
        ] {
            let settings = settings(&[&first[..], &[("LUCID_ROUTES", routes)]].concat()).unwrap();
            let found: Vec<_> =
                settings.routes.iter().map(|route| (route.port, route.next.as_str())).collect();
            assert_eq!(found, expected, "{routes}");
            assert_eq!((settings.port, settings.next.as_str()), expected[0]);
            for (port, next) in expected {
                assert_eq!(settings.next_hop(Some(port)).as_str(), next, "{routes}");
            }
            assert_eq!(settings.next_hop(Some(1)).as_str(), "127.0.0.1:8093");
        }
    }

    #[test]
    fn invalid_routes_are_refused_with_the_expected_value() {
        let pairs = "PORT=NEXT_PORT, with commas between pairs";
        let first = "8090=5000 first, the ports of LUCID_AUDITOR_PORT and LUCID_CHAIN_NEXT";
        let nine = "8090=5000,2=12,3=13,4=14,5=15,6=16,7=17,8=18,9=19";
        for (routes, expected) in [
            ("x", pairs),
            (" ", pairs),
            (",", pairs),
            ("8090", pairs),
            ("8090=", pairs),
            ("=5000", pairs),
            ("8090=5000,", pairs),
            ("8090=5000;8091=5001", pairs),
            ("8090=5000, 8091=5001", pairs),
            ("8090=5000,8091=5001=5002", pairs),
            ("8090=http://localhost:5000", pairs),
            ("8090:5000", pairs),
            ("+8090=5000", pairs),
            ("08090=5000", pairs),
            ("8090=5000,0=5001", pairs),
            ("8090=5000,8091=0", pairs),
            ("8090=5000,8091=65536", pairs),
            ("8090=5000,8091=-1", pairs),
            (nine, "at most 8 pairs"),
            ("8090=5000,8090=5001", "port 8090 once"),
            ("8090=5000,8090=5000", "port 8090 once"),
            ("8090=5000,8091=5000", "port 5000 once"),
            ("8090=5000,8091=8091", "port 8091 once"),
            ("8090=5000,8091=8090", "port 8090 once"),
            ("8091=5001", first),
            ("8090=5001", first),
            ("8091=5000", first),
            ("8091=5001,8090=5000", first),
        ] {
            let variables = [
                ("LUCID_CHAIN_NEXT", "http://localhost:5000"),
                ("LUCID_AUDITOR_PORT", "8090"),
                ("LUCID_ROUTES", routes),
            ];
            let message = settings(&variables).unwrap_err().to_string();
            assert_eq!(message, format!("LUCID_ROUTES: expected {expected}, found {routes}"));
        }
        let variables = [("AUDITOR_URL", "http://model"), ("PORT", "8090"), ("LUCID_ROUTES", "8090=81")];
        let message = settings(&variables).unwrap_err().to_string();
        assert!(message.contains("expected 8090=80 first"), "{message}");
    }

    #[test]
    fn probes_of_model_and_auditor_differ_by_port() {
        let variables = [
            ("LUCID_CHAIN_NEXT", "http://localhost:5000"),
            ("PORT", "8090"),
            ("LUCID_PROBE_PATHS", "/health,/ready?deep=1"),
            ("LUCID_ROUTES", "8090=5000,8091=5001"),
        ];
        let settings = settings(&variables).unwrap();
        for (host, method, path, is_probe) in [
            ("10.0.0.7:5000", Method::GET, "/health", true),
            ("[fd00::7]:5000", Method::GET, "/health", true),
            ("10.0.0.7:5000", Method::GET, "/ready?deep=1", true),
            ("10.0.0.7:5001", Method::GET, "/health", true),
            ("10.0.0.7:8090", Method::GET, "/health", false),
            ("10.0.0.7:8091", Method::GET, "/health", false),
            ("10.0.0.7:5000", Method::GET, "/ready", false),
            ("10.0.0.7:5000", Method::GET, "/health?deep=1", false),
            ("10.0.0.7:5000", Method::GET, "/health/", false),
            ("10.0.0.7:5000", Method::GET, "/%68ealth", false),
            ("10.0.0.7:5000", Method::POST, "/health", false),
            ("10.0.0.7:5000", Method::HEAD, "/health", false),
            ("model", Method::GET, "/health", false),
        ] {
            let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            let found = settings.is_probe_of_the_model(&method, &path.parse().unwrap(), &headers);
            assert_eq!(found, is_probe, "{host} {method} {path}");
        }
        let health = Uri::from_static("/health");
        assert!(!settings.is_probe_of_the_model(&Method::GET, &health, &HeaderMap::new()));
    }
}
