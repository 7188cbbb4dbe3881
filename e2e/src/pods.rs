use http::{Method, Request, StatusCode, header};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::Error;

/// Response of the API server to a change of a pod.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Stored pod, or the message of the denial.
    pub result: Result<Box<Pod>, String>,
    /// HTTP status.
    pub status: u16,
    /// Warnings, as shown by kubectl.
    pub warnings: Vec<String>,
}

impl Answer {
    /// Returns the stored pod.
    ///
    /// # Errors
    ///
    /// Returns the message of the API server if the change was denied.
    pub fn stored(self) -> Result<Pod, Error> {
        self.result.map(|pod| *pod).map_err(Into::into)
    }

    /// Message of the denial; empty if the change succeeded.
    #[must_use]
    pub fn refusal(&self) -> &str {
        self.result.as_ref().err().map_or("", String::as_str)
    }
}

/// Creates a pod from its manifest. Unlike `kube::Api`, returns the warnings as well.
///
/// # Errors
///
/// Returns an error if the API server cannot be reached; a denial is an [`Answer`].
pub async fn create_pod(client: &Client, namespace: &str, manifest: &Value) -> Result<Answer, Error> {
    send(client, Method::POST, &format!("/api/v1/namespaces/{namespace}/pods"), "application/json", manifest)
        .await
}

/// Sends one change of a pod to the API server, like kubectl with `--raw`.
///
/// # Errors
///
/// See [`create_pod`].
pub async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<Answer, Error> {
    let Reply { status, warnings, body } = ask(client, None, method, path, content_type, body).await?;
    let result = match StatusCode::from_u16(status)?.is_success() {
        true => Ok(Box::new(serde_json::from_value(body)?)),
        false => Err(body["message"].as_str().unwrap_or_default().to_owned()),
    };
    Ok(Answer { result, status, warnings })
}

/// Response of the API server to a request about any object.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Warnings, as shown by kubectl.
    pub warnings: Vec<String>,
    /// Object, or the `Status` of a denial.
    pub body: Value,
}

/// Sends one request to the API server, like kubectl with `--raw`, and `--as` if there is a `user`.
///
/// # Errors
///
/// Returns an error if the API server cannot be reached; a denial is a [`Reply`].
pub async fn ask(
    client: &Client,
    user: Option<&str>,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<Reply, Error> {
    let mut request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content_type);
    if let Some(user) = user {
        request = request.header("Impersonate-User", user);
    }
    let response = client.send(request.body(Body::from(body.to_string().into_bytes()))?).await?;
    let status = response.status().as_u16();
    let warnings =
        response.headers().get_all(header::WARNING).iter().map(|value| warning(value.as_bytes())).collect();
    let body = serde_json::from_slice(&response.into_body().collect_bytes().await?)?;
    Ok(Reply { status, warnings, body })
}

/// Text of a header such as `299 - "it said \"no\""` (RFC 7234, section 5.5).
fn warning(header: &[u8]) -> String {
    let header = String::from_utf8_lossy(header);
    let quoted = header.split_once('"').map_or("", |(_, rest)| rest);
    let mut text = String::new();
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.extend(characters.next()),
            '"' => break,
            _ => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_warning_header_is_unquoted() {
        assert_eq!(super::warning(br#"299 - "it said \"n\\o\" \xc3" "Sat, 21 Nov""#), r#"it said "n\o" xc3"#);
        assert_eq!(super::warning("299 - \"é…\"".as_bytes()), "é…");
        assert_eq!(super::warning(b""), "");
    }
}
