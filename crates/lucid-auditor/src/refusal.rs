//! Refusals in the protocol of a request.

use std::collections::BTreeSet;

use hyper::StatusCode;
use serde_json::Value;

use crate::{
    Direction,
    body::{Response, json_response},
    json::Document,
    protocol::{self, BLOCKED, Protocol, Refusal},
    verdict::Denial,
};

/// Properties of a request by which its answer is judged and refused.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) protocol: &'static Protocol,
    pub(crate) id: Option<Value>,
}

impl Asked {
    /// Returns the protocol of a request whose body is not known.
    pub(crate) fn at(path: &str) -> Self {
        Self::of(path, &Document::scan(""))
    }

    pub(crate) fn of(path: &str, document: &Document<'_>) -> Self {
        Self { protocol: Protocol::of_request(path, document), id: protocol::request_id(document) }
    }

    pub(crate) fn deny(&self, auditor: &str, denial: &Denial, direction: Direction) -> Response {
        self.refuse(auditor, denial.status(direction), denial.kind, &denial.message)
    }

    pub(crate) fn refuse(
        &self,
        auditor: &str,
        status: StatusCode,
        kind: &'static str,
        message: &str,
    ) -> Response {
        // The verdict is logged already.
        if kind != BLOCKED {
            tracing::warn!(status = status.as_u16(), kind, "{message}");
        }
        let choices = &BTreeSet::new();
        let id = self.id.as_ref();
        let refusal = Refusal { auditor, kind, rule: "", status, message, id, choices };
        let (status, body) = (self.protocol.refusal)(&refusal);
        json_response(status, &body)
    }
}
