//! A client whose writes are all dry runs.

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use snafu::{OptionExt, Snafu, ensure};
use tower::{BoxError, service_fn};

/// The request does not support dry run.
#[derive(Debug, Snafu)]
#[snafu(display("{method} {path}: {problem}"))]
struct DryRunError {
    method: Method,
    path: String,
    problem: String,
}

/// Returns a client that goes through `client` and writes only as a dry run (`dryRun=All`): the API server validates,
/// admits and responds as usual, but stores nothing.
///
/// Reads are sent unchanged, and so are reviews such as `SubjectAccessReview`, which store nothing anyway. Requests
/// with effects that dry run does not prevent fail with a [`DryRunError`] and are not sent.
///
/// Aggregated API servers have to support `dryRun` themselves.
///
/// # Panics
///
/// Outside of a tokio runtime, like kube's clients.
pub(crate) fn dry_run(client: &Client) -> Client {
    let real = client.clone();
    let service = service_fn(move |request: Request<Body>| {
        let real = real.clone();
        async move {
            let request = as_dry_run(request).await?;
            real.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, client.default_namespace()).with_valid_until(*client.valid_until())
}

async fn as_dry_run(request: Request<Body>) -> Result<Request<Body>, BoxError> {
    let (mut head, body) = request.into_parts();
    let (method, path) = (head.method.clone(), head.uri.path().to_owned());
    let refused = |problem: &str| DryRunSnafu {
        method: method.clone(),
        path: path.clone(),
        problem: problem.to_owned(),
    };
    let segments = segments(&path).with_context(|| {
        // Servers interpret such paths differently.
        refused("expected a path without the segments . and .. and without an encoded slash")
    })?;
    let is_read = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
    // `token` issues a real credential regardless of `dryRun`.
    let is_safe = if is_read { !is_connection(&segments) } else { has_dry_run(&segments) };
    ensure!(
        is_safe && !head.headers.contains_key(UPGRADE),
        refused("has effects that dryRun does not prevent")
    );
    if is_read {
        return Ok(Request::from_parts(head, body));
    }
    head.uri = with_dry_run(&head.uri)
        .map_err(|error| refused(&format!("failed to add dryRun=All: {error}")).build())?;
    if head.method != Method::DELETE {
        return Ok(Request::from_parts(head, body));
    }
    let options = body.collect().await?.to_bytes();
    // For a deletion with a body, the API server ignores the query.
    if options.is_empty() {
        return Ok(Request::from_parts(head, Body::empty()));
    }
    let options = options_with_dry_run(&head.headers, &options).map_err(|error| {
        refused(&format!("failed to read the DeleteOptions as a JSON object: {error}")).build()
    })?;
    head.headers.remove(CONTENT_LENGTH);
    Ok(Request::from_parts(head, options.into()))
}

/// Percent-decoded segments of a path as read by the API server; `None` if the path is ambiguous.
fn segments(path: &str) -> Option<Vec<Cow<'_, str>>> {
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    let decoded = segments.map(|segment| percent_decode_str(segment).decode_utf8().ok());
    let is_plain = |segment: &Cow<'_, str>| segment != "." && segment != ".." && !segment.contains('/');
    decoded.map(|segment| segment.filter(is_plain)).collect()
}

/// Returns `true` if writes to this path support dry run.
fn has_dry_run(path: &[Cow<'_, str>]) -> bool {
    let is_resource = path.len() > 1 && path.first().is_some_and(|root| root == "api" || root == "apis");
    is_resource && !is_connection(path) && subresource(path) != Some(("serviceaccounts", "token"))
}

/// Returns `true` if a request to this path connects to a container, a node or a Service, regardless of its method.
fn is_connection(path: &[Cow<'_, str>]) -> bool {
    subresource(path).is_some_and(|(_, name)| matches!(name, "exec" | "attach" | "portforward" | "proxy"))
}

/// Resource and subresource of a path below `/api` or `/apis`.
fn subresource<'p>(path: &'p [Cow<'_, str>]) -> Option<(&'p str, &'p str)> {
    let segments: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    let resource = match segments[..] {
        ["api", _, ref resource @ ..] | ["apis", _, _, ref resource @ ..] => resource,
        _ => return None,
    };
    match *resource {
        ["namespaces", _, resource, _, subresource, ..] => Some((resource, subresource)),
        ["namespaces", ..] => None,
        [resource, _, subresource, ..] => Some((resource, subresource)),
        _ => None,
    }
}

/// Sets `dryRun=All`, replacing other values.
fn with_dry_run(uri: &Uri) -> Result<Uri, http::Error> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let mut query = String::new();
    for pair in pairs.filter(|pair| !pair.is_empty() && pair.split('=').next() != Some("dryRun")) {
        query.push_str(pair);
        query.push('&');
    }
    let mut parts = uri.clone().into_parts();
    let path_and_query = format!("{}?{query}dryRun=All", uri.path());
    parts.path_and_query = Some(PathAndQuery::try_from(path_and_query)?);
    Ok(Uri::from_parts(parts)?)
}

fn options_with_dry_run(headers: &HeaderMap, options: &[u8]) -> Result<Vec<u8>, BoxError> {
    if let Some(media_type) = headers.get(CONTENT_TYPE)
        && !media_type.as_bytes().starts_with(b"application/json")
    {
        return Err(format!("Content-Type: expected application/json, found {media_type:?}").into());
    }
    let mut options: Map<String, Value> = serde_json::from_slice(options)?;
    options.insert("dryRun".to_owned(), json!(["All"]));
    Ok(serde_json::to_vec(&options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_without_dry_run_are_recognized() {
        for (path, connection, dry_run) in [
            ("/api/v1/namespaces/a/configmaps", false, true),
            ("/api/v1/namespaces/a/pods/exec", false, true),
            ("/api/v1/namespaces/exec/pods/token", false, true),
            ("/api/v1/namespaces/a/pods/b/exec", true, false),
            ("/api/v1/namespaces/a/pods/b/attach", true, false),
            ("/api/v1/namespaces/a/pods/b/portforward", true, false),
            ("/api/v1/namespaces/a/services/b:80/proxy/admin/reset", true, false),
            ("/api/v1/nodes/b/proxy/run", true, false),
            ("/api/v1/namespaces/a/pods/b/eviction", false, true),
            ("/api/v1/namespaces/a/pods/b/binding", false, true),
            ("/api/v1/namespaces/a/finalize", false, true),
            ("/api/v1/namespaces/a/serviceaccounts/b/token", false, false),
            ("/apis/apps/v1/namespaces/a/deployments/b/scale", false, true),
            ("/apis/example.com/v1/things/proxy/status", false, true),
            ("/apis/authorization.k8s.io/v1/subjectaccessreviews", false, true),
            ("/api/v1/namespaces/a/serviceaccounts/b/%74oken", false, false),
            ("/api/v1/namespaces/a/services/b:80/%70roxy/admin/reset", true, false),
            ("/%61pi/v1/namespaces/a/pods/b/e%78ec", true, false),
            ("//api//v1/namespaces/a/pods/b/exec", true, false),
            ("/api/v1/namespaces/a/configmaps/%41%20b", false, true),
            ("/debug/flags/v", false, false),
            ("/", false, false),
        ] {
            let segments = segments(path).unwrap();
            assert_eq!((is_connection(&segments), has_dry_run(&segments)), (connection, dry_run), "{path}");
        }
        for path in
            ["/api/v1/pods/../nodes/b", "/api/./v1", "/api/%2e%2E/v1", "/api/v1/pods/a%2Fexec", "/api/%ff"]
        {
            assert_eq!(segments(path), None, "{path}");
        }
    }

    #[test]
    fn the_query_has_exactly_one_dry_run_parameter() {
        for (before, after) in [
            ("/a", "/a?dryRun=All"),
            ("/a?", "/a?dryRun=All"),
            ("/a?&fieldManager=m", "/a?fieldManager=m&dryRun=All"),
            ("/a?dryRun=All", "/a?dryRun=All"),
            ("/a?dryRun=&force=true&dryRun", "/a?force=true&dryRun=All"),
            ("/a?dryRuns=x", "/a?dryRuns=x&dryRun=All"),
            ("https://host:1/a?b=c%26dryRun=d", "https://host:1/a?b=c%26dryRun=d&dryRun=All"),
        ] {
            assert_eq!(with_dry_run(&Uri::from_static(before)).unwrap(), after);
        }
    }

    #[test]
    fn delete_options_keep_other_fields() {
        let mut headers = HeaderMap::new();
        let changed = |headers: &HeaderMap, options: &str| {
            options_with_dry_run(headers, options.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(changed(&headers, "{}").unwrap(), r#"{"dryRun":["All"]}"#);
        let options = r#"{"dryRun": [], "gracePeriodSeconds": 5}"#;
        assert_eq!(changed(&headers, options).unwrap(), r#"{"dryRun":["All"],"gracePeriodSeconds":5}"#);
        assert!(changed(&headers, "[]").is_err());
        headers.insert(CONTENT_TYPE, "application/vnd.kubernetes.protobuf".parse().unwrap());
        assert!(changed(&headers, "{}").is_err());
    }
}
