//! HTTP client of a remote service, with credentials from files.

use std::net::IpAddr;
use std::path::PathBuf;

use lucid_notary::client::{FileError, ReloadingFiles};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Url, redirect};

use super::Options;
use crate::options::{OptionsError, OptionsSnafu, at};

pub(super) fn url(options: &Options) -> Result<Url, OptionsError> {
    const ACCEPTED: &str = "accepted is http[s]://host[:port][/path]";
    // The URL is not quoted: it may contain a password.
    let invalid = |fault: String| OptionsSnafu { key: "url", fault: format!("{fault}; {ACCEPTED}") }.build();
    let mut url = Url::parse(&options.url).map_err(|error| invalid(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid(format!("found the scheme {:?}", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("found a user or password".to_owned()));
    }
    let is_secret = options.token_file.is_some() || !options.header_files.is_empty();
    if url.scheme() == "http" && (options.ca_file.is_some() || is_secret && !is_loopback(&url)) {
        let reason = "found plain http with caFile, tokenFile or headerFiles; accepted are https and, without caFile, http \
                      to a loopback address";
        return Err(OptionsSnafu { key: "url", fault: reason }.build());
    }
    if url.path() == "/" {
        url.set_path(options.api.path());
    }
    Ok(url)
}

/// Returns `true` if requests to the URL stay on this machine, independent of name resolution.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

pub(super) fn client(ca_file: Option<PathBuf>) -> Result<ReloadingFiles<reqwest::Client>, FileError> {
    ReloadingFiles::open(ca_file.into_iter().collect(), |files| {
        let client = reqwest::Client::builder()
            .user_agent(concat!("lucid-guardrails/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy();
        let client = match files {
            [pem] => {
                let roots = Certificate::from_pem_bundle(pem)?;
                if roots.is_empty() {
                    return Err("there is no certificate; accepted are certificates in PEM".into());
                }
                client.tls_certs_only(roots)
            }
            _ => client,
        };
        Ok(client.build()?)
    })
}

/// Headers of each request.
pub(super) fn headers(options: &Options) -> Result<ReloadingFiles<HeaderMap>, OptionsError> {
    let mut fixed = HeaderMap::new();
    for (name, value) in &options.headers {
        fixed.insert(
            header_name(name, "headers")?,
            header_value("", value.as_bytes()).map_err(at("headers"))?,
        );
    }
    let (mut from_files, mut paths) = (Vec::new(), Vec::new());
    for (name, path) in &options.header_files {
        from_files.push((header_name(name, "headerFiles")?, ""));
        paths.push(path.clone());
    }
    if let Some(path) = &options.token_file {
        from_files.push((AUTHORIZATION, "Bearer "));
        paths.push(path.clone());
    }
    let make = move |files: &[Vec<u8>]| {
        let mut headers = fixed.clone();
        for ((name, scheme), value) in from_files.iter().zip(files) {
            headers.insert(name, header_value(scheme, value)?);
        }
        Ok(headers)
    };
    ReloadingFiles::open(paths, make).map_err(at("headerFiles or tokenFile"))
}

fn header_name(name: &str, key: &'static str) -> Result<HeaderName, OptionsError> {
    name.parse()
        .map_err(|_| OptionsSnafu { key, fault: format!("{name:?} is not the name of a header") }.build())
}

/// Errors do not quote the value.
fn header_value(scheme: &str, value: &[u8]) -> Result<HeaderValue, &'static str> {
    let value = value.trim_ascii();
    if value.is_empty() {
        return Err("the value is empty");
    }
    let mut value = HeaderValue::from_bytes(&[scheme.as_bytes(), value].concat()).map_err(
        |_| "the value has characters that a header cannot have; accepted is one line of visible characters",
    )?;
    value.set_sensitive(true);
    Ok(value)
}
