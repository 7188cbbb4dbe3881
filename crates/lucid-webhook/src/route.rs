//! Targets of paths, and the limits that they share.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::util::BoxCloneSyncService;

use crate::body;
use crate::conversion::Converter;
use crate::metrics::{Metrics, WebhookMetrics};
use crate::offload::Offload;
use crate::registration::WebhookRegistration;
use crate::webhook::Webhook;

/// Maximum body size, in bytes, of requests to a [service](crate::Router::service).
const OTHER_LIMIT: usize = 64 * 1024;

pub(crate) type OtherService = BoxCloneSyncService<Request<Bytes>, Response<Full<Bytes>>, Infallible>;

#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) path: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) registration: Option<Arc<WebhookRegistration>>,
    pub(crate) target: Target,
    pub(crate) metrics: Option<WebhookMetrics>,
}

#[derive(Clone)]
pub(crate) enum Target {
    Admission(Arc<Webhook>),
    Conversion(Converter),
    Other(OtherService),
    /// Several webhooks share the path. All calls fail, so that the mistake is noticed.
    Conflict,
}

impl Route {
    pub(crate) fn count(&mut self, metrics: &Metrics) {
        self.metrics = Some(match &self.target {
            Target::Admission(_) => metrics.webhook(&self.name),
            Target::Conversion(_) => metrics.conversion(&self.name),
            Target::Other(_) | Target::Conflict => return,
        });
    }
}

/// Memory and thread budgets. A conversion may carry a whole list.
#[derive(Clone)]
pub(crate) struct Bodies {
    pub(crate) admission: body::Reader,
    pub(crate) conversion: body::Reader,
    pub(crate) other: body::Reader,
    pub(crate) offload: Offload,
}

impl Default for Bodies {
    fn default() -> Self {
        let mut other = body::Reader::default();
        other.set_limit(OTHER_LIMIT);
        Self {
            admission: body::Reader::default(),
            conversion: body::Reader::conversion(),
            other,
            offload: Offload::default(),
        }
    }
}
