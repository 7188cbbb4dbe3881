//! The `traceparent` header (W3C Trace Context).

use http::HeaderMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TraceParent {
    /// ID of the trace; never 0.
    pub(crate) trace_id: u128,
    /// ID of the span that sent the request; never 0.
    pub(crate) parent_id: u64,
    pub(crate) sampled: bool,
}

impl TraceParent {
    /// Parses a header value; `None` if it is malformed, since the standard requires ignoring such a header.
    fn parse(header: &str) -> Option<Self> {
        let mut parts = header.split('-');
        let mut field = |digits: usize| {
            parts
                .next()
                .filter(|part| part.len() == digits)
                .filter(|part| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
        };
        let (version, trace_id, parent_id, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        // Later versions may append fields; version 00 must not, and ff is invalid.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace_id = u128::from_str_radix(trace_id, 16).ok().filter(|id| *id != 0)?;
        let parent_id = u64::from_str_radix(parent_id, 16).ok().filter(|id| *id != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace_id, parent_id, sampled: flags & 1 == 1 })
    }

    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all("traceparent").iter();
        let value = values.next()?;
        // Several headers contradict each other.
        values.next().is_none().then(|| Self::parse(value.to_str().ok()?)).flatten()
    }
}

#[cfg(feature = "opentelemetry")]
impl TraceParent {
    pub(crate) fn continue_in(&self, span: &tracing::Span) {
        use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
        use tracing_opentelemetry::OpenTelemetrySpanExt;

        let flags = if self.sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
        let (trace, parent) = (TraceId::from(self.trace_id), SpanId::from(self.parent_id));
        let remote = SpanContext::new(trace, parent, flags, true, TraceState::NONE);
        // Fails if no OpenTelemetry layer is installed, which is not an error.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(remote));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_header_is_ignored() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (header, valid) in [
            (format!("00-{trace}-00f067aa0ba902b7-01"), true),
            (format!("00-{trace}-00f067aa0ba902b7-00"), true),
            (format!("cc-{trace}-00f067aa0ba902b7-01-what-comes"), true),
            (format!("00-{trace}-00f067aa0ba902b7-01-more"), false),
            (format!("ff-{trace}-00f067aa0ba902b7-01"), false),
            (format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()), false),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), false),
            (format!("00-{trace}-{}-01", "0".repeat(16)), false),
            (format!("00-{trace}-00f067aa0ba902b7"), false),
            (format!("00-+{}-00f067aa0ba902b7-01", &trace[1..]), false),
            (String::new(), false),
        ] {
            assert_eq!(TraceParent::parse(&header).is_some(), valid, "{header}");
        }
    }
}
