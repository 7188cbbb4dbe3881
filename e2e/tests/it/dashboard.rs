//! The dashboard for Grafana: what it asks for is there.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use lucid_testbed::Cluster;
use promql_parser::parser::{self, Expr, LabelModifier, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::{Value, json};

use crate::common::{cluster, create, operator, pod, secured};

const DASHBOARD: &str = include_str!("../../../charts/lucid/files/dashboard.json");

/// What Prometheus adds to each series.
const ADDED: [&str; 3] = ["namespace", "pod", "le"];

/// The labels of each metric.
type Shown = BTreeMap<String, BTreeSet<String>>;

/// What is shown at a `/metrics`.
fn read(text: &str, shown: &mut Shown) {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap(), ""));
        let labels = labels.rsplit_once('}').map_or("", |(labels, _)| labels);
        let names =
            labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
        shown.entry(name.to_owned()).or_default().extend(names);
    }
}

/// What an expression asks for: metrics with labels; labels that are grouped by, of all metrics in it.
#[derive(Default)]
struct Asked {
    metrics: Vec<(String, BTreeSet<String>)>,
    grouped: BTreeSet<String>,
}

impl Asked {
    fn selector(&mut self, selector: &VectorSelector) {
        let labels = selector.matchers.matchers.iter().map(|matcher| matcher.name.clone()).collect();
        self.metrics.push((selector.name.clone().unwrap(), labels));
    }
}

impl ExprVisitor for Asked {
    type Error = Infallible;

    fn pre_visit(&mut self, expression: &Expr) -> Result<bool, Infallible> {
        match expression {
            Expr::VectorSelector(selector) => self.selector(selector),
            Expr::MatrixSelector(matrix) => self.selector(&matrix.vs),
            Expr::Aggregate(aggregate) => {
                if let Some(LabelModifier::Include(labels)) = &aggregate.modifier {
                    self.grouped.extend(labels.labels.iter().cloned());
                }
            }
            _ => {}
        }
        Ok(true)
    }
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row")
}

async fn shown(cluster: &Cluster) -> Shown {
    let operator = operator(cluster, |it| it.env("LUCID_ADMISSION_MODE", "audit")).await;
    let odd = json!({"lucid.computing/audit-mode": "sometimes", "lucid.computing/auditor-chain": "nobody"});
    let mut odd = pod("odd", json!({"lucid.io/secured": "true"}), odd);
    odd["metadata"]["ownerReferences"] = json!([]);
    create(cluster, "shop", &odd).await.stored().unwrap();
    create(cluster, "shop", &secured("web")).await.stored().unwrap();
    let mut shown = Shown::new();
    let own = reqwest::get(operator.admin_url("/metrics")).await.unwrap().text().await.unwrap();
    read(&own, &mut shown);
    let of_api_server = cluster.kubectl(&["get", "--raw", "/metrics"], "").unwrap();
    read(&String::from_utf8(of_api_server.stdout).unwrap(), &mut shown);
    shown
}

/// What is shown only when it happens: counters of which the API server, and the client of a Verifier, have no zero.
const SELDOM: [&str; 2] =
    ["apiserver_admission_webhook_fail_open_count", "apiserver_admission_webhook_rejection_count"];

#[tokio::test(flavor = "multi_thread")]
async fn every_expression_parses_and_asks_for_metrics_and_labels_that_are_shown() {
    let cluster = cluster().await;
    let shown = shown(&cluster).await;
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut problems = Vec::new();
    let mut asked_for = BTreeSet::new();
    for panel in panels(&dashboard) {
        for target in panel["targets"].as_array().unwrap() {
            let text = target["expr"].as_str().unwrap();
            let title = panel["title"].as_str().unwrap();
            // As Grafana fills them in.
            let text = text.replace("$namespace", "lucid-system").replace("$__rate_interval", "5m");
            let expression = parser::parse(&text).unwrap_or_else(|error| panic!("{title}: {error}: {text}"));
            let mut asked = Asked::default();
            let Ok(_) = walk_expr(&mut asked, &expression);
            assert!(!asked.metrics.is_empty(), "{title}: {text}");
            for (metric, labels) in &asked.metrics {
                asked_for.insert(metric.clone());
                let Some(there) = shown.get(metric) else {
                    if !SELDOM.contains(&metric.as_str()) {
                        problems.push(format!("{title}: nothing shows {metric}"));
                    }
                    continue;
                };
                for label in labels.union(&asked.grouped).filter(|label| !ADDED.contains(&label.as_str())) {
                    if !there.contains(label) {
                        problems.push(format!("{title}: {metric} has no label {label}, only {there:?}"));
                    }
                }
                let legend = target["legendFormat"].as_str().unwrap();
                for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
                    if !asked.grouped.is_empty() && !asked.grouped.contains(label) {
                        problems.push(format!("{title}: the legend has {label}, which is not grouped by"));
                    }
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}\n{:?}", problems.join("\n"), shown.keys());
    for prefix in [
        "lucid_injection",
        "lucid_policy",
        "lucid_admission",
        "lucid_verifier",
        "lucid_certificate",
        "lucid_trust_bundle",
        "lucid_audit",
        "lucid_break_glass",
        "apiserver_admission_webhook",
    ] {
        assert!(asked_for.iter().any(|metric| metric.starts_with(prefix)), "nothing is asked of {prefix}");
    }
}

#[test]
fn panels_have_places_and_numbers_of_their_own_and_the_data_source_that_is_chosen() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(cells.insert((x, y)), "{} lies over another", panel["title"]);
            }
        }
    }
    for panel in panels(&dashboard) {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        assert!(
            panel["targets"].as_array().unwrap().iter().all(|it| it["datasource"]["uid"] == "${datasource}")
        );
    }
}
