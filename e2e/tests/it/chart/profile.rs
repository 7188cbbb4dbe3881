//! `profile: production`.

use std::collections::BTreeMap;

use super::{documents, key, pods, template};

const PRODUCTION: [&str; 3] =
    ["profile=production", "webhooks.clientCa.configMap=api-servers", "notary.url=https://verifier.example"];
const PROGRAMS: [&str; 2] = ["lucid-operator", "lucid-validator"];

/// Variables that are the same for both programs.
async fn variables(values: &[&str]) -> BTreeMap<String, String> {
    let values = [&["webhooks.validating.by=both"], values].concat();
    let rendered = documents(&template("lucid-system", &values, &[]).await.unwrap());
    let [operator, validator] = PROGRAMS.map(|program| {
        let workload = rendered.iter().find(|it| key(it) == ("Deployment", program)).unwrap();
        let env = pods(workload).unwrap()["containers"][0]["env"].as_sequence().unwrap().iter();
        env.filter_map(|it| Some((it["name"].as_str()?.to_owned(), it["value"].as_str()?.to_owned())))
            .collect::<BTreeMap<_, _>>()
    });
    assert_eq!(operator, validator);
    operator
}

#[tokio::test]
async fn production_enables_the_strict_settings() {
    let with = variables(&PRODUCTION).await;
    for (name, value) in [
        ("LUCID_CLIENT_CA", "/etc/lucid/client-ca/ca.crt"),
        ("LUCID_STRICT_NOTARIZATION", "true"),
        ("LUCID_INTERCEPT", "redirect"),
        ("LUCID_BREAK_GLASS_ACCESS_REVIEW", "true"),
        ("LUCID_REQUIRE_NON_ROOT", "true"),
    ] {
        assert_eq!(with.get(name).map(String::as_str), Some(value), "{name}");
    }
}

#[tokio::test]
async fn explicit_values_win_over_the_profile() {
    let explicit = [
        "notary.strict=false",
        "injection.intercept=env",
        "policy.breakGlass.accessReview=false",
        "policy.requireNonRoot=false",
    ];
    let with = variables(&[&PRODUCTION[..], &explicit].concat()).await;
    assert_eq!(with["LUCID_STRICT_NOTARIZATION"], "false");
    assert_eq!(with["LUCID_INTERCEPT"], "env");
    assert_eq!(with.get("LUCID_BREAK_GLASS_ACCESS_REVIEW"), None);
    assert_eq!(with.get("LUCID_REQUIRE_NON_ROOT"), None);

    // For API servers without client certificates.
    let by_network = [
        "profile=production",
        "notary.url=https://verifier.example",
        "networkPolicy.enabled=true",
        "networkPolicy.apiServerCidrs[0]=10.0.0.1/32",
    ];
    assert_eq!(variables(&by_network).await.get("LUCID_CLIENT_CA"), None);
}
