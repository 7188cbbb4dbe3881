//! `/audit/ui`: a self-contained page without external resources.
//!
//! The page is the same for all callers and does not contain decisions. It prompts for the token, keeps it in the
//! memory of its script only, and sends it to `/audit` with each request. There is no cookie that another site could
//! use, and the browser stores nothing. Authors of pods control names, images and messages, so the page writes text
//! only, never HTML. As a second line of defense, the Content Security Policy permits only this script, and connections
//! to this server only.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;

const PAGE: &str = include_str!("ui.html");
/// Style sheet of `/audit/ui`.
pub const STYLE: &str = include_str!("ui.css");
const SCRIPT: &str = include_str!("ui.js");

#[derive(Debug)]
pub(super) struct Ui {
    page: Bytes,
    policy: Option<HeaderValue>,
}

impl Ui {
    pub(super) fn new() -> Self {
        let page = PAGE.replace("/* style */", STYLE).replace("/* script */", SCRIPT);
        let hash = |text: &str| STANDARD.encode(digest(&SHA256, text.as_bytes()));
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
             trusted-types 'none'",
            hash(SCRIPT),
            hash(STYLE)
        );
        Self { page: page.into(), policy: HeaderValue::from_str(&policy).ok() }
    }

    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        // The page is never served without its policy.
        let Some(policy) = self.policy.clone() else {
            return super::error(StatusCode::INTERNAL_SERVER_ERROR, "failed to make the page's policy");
        };
        let mut response = super::response(StatusCode::OK, "text/html; charset=utf-8", Vec::new());
        *response.body_mut() = Full::new(self.page.clone());
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, policy);
        for (name, value) in [
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        response
    }
}
