//! The configuration as CEL takes it. JSON of lists, maps and strings is CEL.

use std::collections::{BTreeMap, BTreeSet};

use lucid_chain::{Auditor, Catalogue, short_name};
use lucid_notary::ImageReference;
use serde_json::json;

pub(super) fn settings<const N: usize>(written: [(&str, Option<String>); N]) -> serde_json::Value {
    written
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?.into())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

pub(super) fn defaults(catalogue: &Catalogue) -> serde_json::Value {
    let defaults = catalogue.defaults();
    settings([
        ("direction", defaults.direction.map(|it| it.to_string())),
        ("intercept", defaults.intercept.map(|it| it.to_string())),
        ("outbound-port", defaults.outbound_port.map(|it| it.to_string())),
    ])
}

pub(super) fn stems(auditors: &[Auditor]) -> Vec<&str> {
    auditors.iter().map(|auditor| short_name(auditor.name())).collect()
}

/// The auditors by where their images come from: several may share a repository.
pub(super) fn entries(catalogue: &Catalogue) -> serde_json::Value {
    let mut entries = BTreeMap::<String, Vec<serde_json::Value>>::new();
    for auditor in catalogue.auditors() {
        let env =
            auditor.env().iter().filter(|(name, _)| !lucid_chain::IDENTITY_ENV.contains(&name.as_str()));
        let env: Vec<_> = env.map(|(name, value)| format!("{name}={value}")).collect();
        let entry = json!({"is": [short_name(auditor.name())], "called": called(auditor), "env": env});
        for repository in repositories(auditor.image_reference()) {
            entries.entry(repository).or_default().push(entry.clone());
        }
    }
    json!(entries)
}

pub(super) fn names(catalogue: &Catalogue) -> serde_json::Value {
    json!(catalogue.auditors().iter().flat_map(called).collect::<BTreeSet<_>>())
}

/// The names of its containers without their numbers. A long name is cut to make room for one.
fn called(auditor: &Auditor) -> BTreeSet<String> {
    const LONGEST: usize = 63;
    let name = auditor.name();
    let cut =
        |digits: usize| name.get(..LONGEST - 1 - digits).map(|name| name.trim_end_matches('-').to_owned());
    (1..=3).filter_map(cut).chain([name.to_owned()]).collect()
}

/// Registry and repository in every way to write them.
pub(super) fn repositories(image: &ImageReference) -> BTreeSet<String> {
    let (registry, repository) = (image.registry().to_ascii_lowercase(), image.repository());
    if registry == "docker.io" {
        let short = repository.strip_prefix("library/");
        let paths = || [Some(repository), short].into_iter().flatten();
        let hosts = ["docker.io/", "index.docker.io/", ""];
        return hosts.iter().flat_map(|host| paths().map(move |path| format!("{host}{path}"))).collect();
    }
    let host = registry.strip_suffix(":443").unwrap_or(&registry);
    let mut written = BTreeSet::from([format!("{registry}/{repository}"), format!("{host}/{repository}")]);
    if !host.trim_end_matches(|it: char| it.is_ascii_digit()).ends_with(':') {
        written.insert(format!("{host}:443/{repository}"));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_found_however_it_is_written() {
        for (image, written) in [
            ("ghcr.io/lucid/a:1", &["ghcr.io/lucid/a", "ghcr.io:443/lucid/a"][..]),
            ("GHCR.io:443/lucid/a", &["ghcr.io/lucid/a", "ghcr.io:443/lucid/a"]),
            ("r.test:5000/a", &["r.test:5000/a"]),
            (
                "a",
                &[
                    "a",
                    "docker.io/a",
                    "docker.io/library/a",
                    "index.docker.io/a",
                    "index.docker.io/library/a",
                    "library/a",
                ],
            ),
            ("team/a", &["docker.io/team/a", "index.docker.io/team/a", "team/a"]),
        ] {
            let found = repositories(&image.parse().unwrap());
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), written, "{image}");
        }
    }

    #[test]
    fn a_long_name_is_known_when_it_was_cut_for_its_number() {
        let name = format!("{}-{}", "a".repeat(60), "bb");
        let entry = format!("{{name: {name}, image: r.test/a}}");
        let names = called(&Catalogue::parse_entry("test", &entry).unwrap());
        assert_eq!(names, BTreeSet::from([name, "a".repeat(60), "a".repeat(59)]));
    }
}
