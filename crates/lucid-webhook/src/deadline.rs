//! Deadlines of requests, before the API server times out.

use std::time::Duration;

use tokio::time::Instant;

/// Default timeout of the API server (`timeoutSeconds` of a webhook).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The API server rounds `?timeout=` up to a second, and includes connecting and receiving the response.
const MARGIN: Duration = Duration::from_millis(1200);

/// Computes the deadline of a request from the `timeout=` of its query.
///
/// The API server sends its timeout in whole seconds (`?timeout=10s`), rounded up and counted from before it connects.
/// The deadline is therefore 1.2 s earlier, or at half of a short timeout. Without the parameter, 10 s are assumed.
pub(crate) fn deadline(arrival: Instant, query: Option<&str>) -> Instant {
    let timeout = query
        .and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("timeout=")))
        .and_then(go_duration)
        .unwrap_or(DEFAULT_TIMEOUT);
    arrival + timeout.saturating_sub(MARGIN).max(timeout / 2)
}

/// Parses a duration in Go's notation: `10s`, `1m30s`, `1.5s`, `500ms`. API servers wait for 30 s at most.
fn go_duration(text: &str) -> Option<Duration> {
    const LONGEST: f64 = 30.0;
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let factor = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * factor;
        rest = tail;
    }
    (seconds > 0.0).then(|| Duration::from_secs_f64(seconds.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handler_ends_before_the_api_server_stops_waiting() {
        let now = Instant::now();
        let millis = |query| (deadline(now, query) - now).as_millis();
        for (query, expected) in [
            (None, 8_800),
            (Some("timeout=5s"), 3_800),
            (Some("timeout=30s"), 28_800),
            (Some("a=b&timeout=2s"), 1_000),
            (Some("timeout=1s"), 500),
            (Some("timeout=0m20s"), 18_800),
            (Some("timeout=1.5s"), 750),
            (Some("timeout=500ms"), 250),
            (Some("timeout=soon"), 8_800),
            (Some("timeout=10"), 8_800),
            (Some("timeout=0s"), 8_800),
            (Some("timeout=-5s"), 8_800),
            (Some("timeout=99999999999999999999h"), 28_800),
        ] {
            assert_eq!(millis(query), expected, "{query:?}");
        }
    }
}
