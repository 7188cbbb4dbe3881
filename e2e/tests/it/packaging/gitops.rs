//! examples/gitops: the ignored fields are those that the programs write.

use serde_json::Value;

use super::{document, documents, path};

/// Ignored fields as `(kind, name, path)`.
fn left_alone(application: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let argo = application["spec"]["ignoreDifferences"].as_array().into_iter().flatten().flat_map(|it| {
        let paths = it["jsonPointers"].as_array().unwrap();
        paths.iter().map(move |path| (text(&it["kind"]), text(&it["name"]), text(path)))
    });
    let flux =
        application["spec"]["driftDetection"]["ignore"].as_array().into_iter().flatten().flat_map(|it| {
            let target = &it["target"];
            let paths = it["paths"].as_array().unwrap();
            paths.iter().map(move |path| (text(&target["kind"]), text(&target["name"]), text(path)))
        });
    argo.chain(flux).collect()
}

#[test]
fn webhooks_of_registrations_are_ignored() {
    for file in ["argo-cd/chart.yaml", "flux/chart.yaml"] {
        let application = documents(&format!("examples/gitops/{file}")).remove(0);
        let left_alone = left_alone(&application);
        for (kind, name, path) in [
            ("MutatingWebhookConfiguration", "lucid-operator", "/webhooks"),
            ("ValidatingWebhookConfiguration", "lucid-operator", "/webhooks"),
            ("ValidatingWebhookConfiguration", "lucid-validator", "/webhooks"),
        ] {
            let is_meant = |(of, pattern, at): &(String, String, String)| {
                // Flux interprets names as regular expressions.
                let matches = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap().is_match(name);
                of == kind && matches && at == path
            };
            assert!(left_alone.iter().any(is_meant), "{file}: {kind} {name}");
        }
    }
}

#[test]
fn applied_paths_exist_and_are_of_this_version() {
    let tag = format!("v{}", env!("CARGO_PKG_VERSION"));
    for (file, folder, file_in_it) in
        [("chart.yaml", "charts/lucid", "Chart.yaml"), ("manifests.yaml", "deploy", "kustomization.yaml")]
    {
        let application = document(&format!("examples/gitops/argo-cd/{file}"), "Application");
        let source = &application["spec"]["source"];
        assert_eq!((&source["targetRevision"], &source["path"]), (&tag.clone().into(), &folder.into()));
        assert!(path(folder).join(file_in_it).exists());
        let flux = documents(&format!("examples/gitops/flux/{file}")).remove(0);
        let spec = &flux["spec"];
        let used = spec["path"].as_str().or(spec["chart"]["spec"]["chart"].as_str()).unwrap();
        assert_eq!(used.trim_start_matches("./"), folder);
    }
    let source = document("examples/gitops/flux/source.yaml", "GitRepository");
    assert_eq!(source["spec"]["ref"]["tag"], tag);
}

#[test]
fn values_exist_in_the_chart() {
    let known = documents("charts/lucid/values.yaml").remove(0);
    let argo = document("examples/gitops/argo-cd/chart.yaml", "Application");
    let flux = document("examples/gitops/flux/chart.yaml", "HelmRelease");
    for values in [&argo["spec"]["source"]["helm"]["valuesObject"], &flux["spec"]["values"]] {
        for (section, settings) in values.as_object().unwrap() {
            for name in settings.as_object().unwrap().keys() {
                assert!(!known[section][name].is_null(), "{section}.{name}");
            }
        }
    }
}
