//! HTTP client of a remote service, with credentials from files.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use lucid_certs::certificates_from_pem;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Url, redirect};

use super::HttpOptions;
use crate::OptionsError;
use crate::options::read;

pub(super) fn url(options: &HttpOptions) -> Result<Url, OptionsError> {
    // The URL is not quoted: it may contain a password.
    const FORM: &str = "http[s]://host[:port][/path]";
    let invalid = |found: &str| OptionsError::found("url", found, FORM);
    let mut url = Url::parse(&options.url)
        .map_err(|error| OptionsError::new("url", format_args!("{error}, expected {FORM}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid(&format!("the scheme {:?}", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("a user or password"));
    }
    let is_secret = options.token_file.is_some() || !options.header_files.is_empty();
    if url.scheme() == "http" && (options.ca_file.is_some() || is_secret && !is_loopback(&url)) {
        let found = "plain http with caFile, tokenFile or headerFiles";
        let expected = "https or, without caFile, http to a loopback address";
        return Err(OptionsError::found("url", found, expected));
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

pub(super) fn client(ca_file: Option<&Path>) -> Result<reqwest::Client, OptionsError> {
    const KEY: &str = "caFile";
    let mut client = reqwest::Client::builder()
        .user_agent(concat!("lucid-guardrails/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .referer(false)
        .no_proxy();
    if let Some(path) = ca_file {
        let roots = certificates_from_pem(&read(KEY, path)?).map_err(|error| {
            OptionsError::new(KEY, format_args!("failed to use {}: {error}", path.display()))
        })?;
        let roots: Result<Vec<_>, _> = roots.iter().map(|root| Certificate::from_der(root)).collect();
        client = client.tls_certs_only(roots.map_err(|error| OptionsError::new(KEY, error))?);
    }
    client.build().map_err(|error| OptionsError::new(KEY, error))
}

/// Headers of each request.
#[derive(Debug)]
pub(super) struct Headers {
    fixed: HeaderMap,
    files: Vec<HeaderFile>,
}

#[derive(Debug)]
struct HeaderFile {
    name: HeaderName,
    scheme: &'static str,
    path: PathBuf,
}

impl Headers {
    pub(super) fn new(options: &HttpOptions) -> Result<Self, OptionsError> {
        let mut fixed = HeaderMap::new();
        for (name, value) in &options.headers {
            let value = header_value("", value.as_bytes());
            let value = value.map_err(|fault| OptionsError::new(format_args!("headers.{name}"), fault))?;
            fixed.insert(header_name("headers", name)?, value);
        }
        let mut files = Vec::new();
        for (name, path) in &options.header_files {
            let name = header_name("headerFiles", name)?;
            files.push(HeaderFile { name, scheme: "", path: path.clone() });
        }
        if let Some(path) = &options.token_file {
            files.push(HeaderFile { name: AUTHORIZATION, scheme: "Bearer ", path: path.clone() });
        }
        for file in &files {
            let key = if file.scheme.is_empty() { "headerFiles" } else { "tokenFile" };
            file.value(fs::read(&file.path)).map_err(|fault| OptionsError::new(key, fault))?;
        }
        Ok(Self { fixed, files })
    }

    /// Reads the files. Errors do not quote their contents.
    pub(super) async fn read(&self) -> Result<HeaderMap, String> {
        let mut headers = self.fixed.clone();
        for file in &self.files {
            headers.insert(file.name.clone(), file.value(tokio::fs::read(&file.path).await)?);
        }
        Ok(headers)
    }
}

impl HeaderFile {
    fn value(&self, contents: io::Result<Vec<u8>>) -> Result<HeaderValue, String> {
        let path = self.path.display();
        let contents = contents.map_err(|error| format!("failed to read {path}: {error}"))?;
        header_value(self.scheme, &contents).map_err(|fault| format!("failed to use {path}: {fault}"))
    }
}

fn header_name(key: &str, name: &str) -> Result<HeaderName, OptionsError> {
    name.parse().map_err(|_| OptionsError::found(key, format_args!("{name:?}"), "the name of a header"))
}

/// Errors do not quote the value.
fn header_value(scheme: &str, value: &[u8]) -> Result<HeaderValue, &'static str> {
    let value = value.trim_ascii();
    if value.is_empty() {
        return Err("expected one line of visible characters, found an empty value");
    }
    let mut value = HeaderValue::from_bytes(&[scheme.as_bytes(), value].concat())
        .map_err(|_| "expected one line of visible characters, found control characters")?;
    value.set_sensitive(true);
    Ok(value)
}
