//! Webhook latencies from the metrics of kube-apiserver.

use serde::Serialize;

const METRIC: &str = "apiserver_admission_webhook_admission_duration_seconds";

/// Latencies of calls of one webhook, as measured by the API server. The buckets are coarse: the first ends at 5 ms. Quantiles
/// are interpolated as in Prometheus' `histogram_quantile`; the mean is exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Calls {
    pub(super) count: f64,
    pub(super) mean_ms: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

impl Calls {
    /// Calls of a webhook between two scrapes of `/metrics`, or `None` if there were none.
    pub(super) fn between(webhook: &str, before: &str, after: &str) -> Option<Self> {
        let name = format!("name=\"{webhook}\"");
        let mut found = Histogram::default();
        found.add(&name, after, 1.0);
        found.add(&name, before, -1.0);
        let Histogram { count, sum, .. } = found;
        (count > 0.0).then(|| Self {
            count,
            mean_ms: sum / count * 1000.0,
            p50_ms: found.quantile(0.5) * 1000.0,
            p99_ms: found.quantile(0.99) * 1000.0,
        })
    }
}

/// Sum of several series.
#[derive(Default)]
struct Histogram {
    count: f64,
    sum: f64,
    /// Upper bounds and cumulative counts, in ascending order.
    buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// Adds all series with this label, multiplied by `times`.
    fn add(&mut self, label: &str, metrics: &str, times: f64) {
        for line in metrics.lines().filter_map(|line| line.strip_prefix(METRIC)) {
            let Some(value) = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()) else {
                continue;
            };
            if !line.contains(label) {
                continue;
            }
            let value = value * times;
            if line.starts_with("_count") {
                self.count += value;
            } else if line.starts_with("_sum") {
                self.sum += value;
            } else if let Some(bound) =
                line.split_once("le=\"").and_then(|(_, rest)| rest.split('"').next()?.parse::<f64>().ok())
            {
                match self.buckets.iter_mut().find(|(known, _)| *known == bound) {
                    Some((_, sum)) => *sum += value,
                    None => self.buckets.push((bound, value)),
                }
            }
        }
    }

    /// Quantile in seconds.
    fn quantile(&self, share: f64) -> f64 {
        let rank = share * self.count;
        let (mut lower, mut below) = (0.0, 0.0);
        for &(bound, count) in self.buckets.iter().filter(|(bound, _)| bound.is_finite()) {
            if count >= rank {
                return lower + (bound - lower) * (rank - below) / (count - below);
            }
            (lower, below) = (bound, count);
        }
        lower
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of one series; `counts` are the cumulative counts up to 5 ms, up to 25 ms, and in total.
    fn series(name: &str, rejected: bool, counts: [u32; 3], sum: f64) -> String {
        let labels = format!("name=\"{name}\",operation=\"CREATE\",rejected=\"{rejected}\",type=\"admit\"");
        let bounds = ["0.005", "0.025", "+Inf"].into_iter().zip(counts);
        let buckets = bounds.map(|(le, count)| format!("{METRIC}_bucket{{{labels},le=\"{le}\"}} {count}\n"));
        let totals = format!("{METRIC}_sum{{{labels}}} {sum}\n{METRIC}_count{{{labels}}} {}\n", counts[2]);
        buckets.collect::<String>() + &totals
    }

    #[test]
    fn what_came_between_is_added_up_over_a_webhooks_series_and_quantiles_are_interpolated() {
        let before = series("a", false, [10, 10, 10], 0.01) + &series("b", false, [0, 0, 0], 0.0);
        let after = series("a", false, [60, 100, 100], 0.91)
            + &series("a", true, [0, 10, 10], 0.1)
            + &series("b", false, [0, 0, 7], 70.0);
        let found = Calls::between("a", &before, &after).unwrap();
        assert_eq!((found.count, found.mean_ms.round(), found.p50_ms), (100.0, 10.0, 5.0));
        assert!((found.p99_ms - 24.6).abs() < 1e-9, "{found:?}");
        let slow = Calls::between("b", &before, &after).unwrap();
        assert_eq!(slow.p50_ms, 25.0, "no more is known than that it is above the last bound");
        assert_eq!(Calls::between("c", &before, &after), None);
    }
}
