//! Parts of the chart as rendered with the values of `rendered.yaml`, compared with `rendered.snap`. To update the snapshot,
//! run `INSTA_UPDATE=always cargo test -p lucid-e2e chart::rendered`.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{documents, template};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Name in the snapshot.
    shows: String,
    set: Vec<String>,
    #[serde(default)]
    arguments: Vec<String>,
    /// Paths: `KIND/NAME/FIELD…`. `*` is any kind or name; an element of a list is given by its index or its name.
    of: Vec<String>,
}

/// Parts of the documents at this path, by kind and name.
fn parts(documents: &[Value], path: &str) -> Map<String, Value> {
    let fields: Vec<_> = path.split('/').collect();
    let is = |wanted: &str, value: &Value| wanted == "*" || value == wanted;
    let objects =
        documents.iter().filter(|it| is(fields[0], &it["kind"]) && is(fields[1], &it["metadata"]["name"]));
    let parts = objects.filter_map(|object| {
        let part = fields[2..].iter().try_fold(object, |value, field| match value {
            Value::Array(items) => match field.parse::<usize>() {
                Ok(index) => items.get(index),
                Err(_) => items.iter().find(|it| it["name"] == **field),
            },
            _ => value.get(field),
        });
        let of = |key: &Value| key.as_str().unwrap().to_owned();
        Some((format!("{} {}", of(&object["kind"]), of(&object["metadata"]["name"])), part?.clone()))
    });
    parts.collect()
}

#[tokio::test]
async fn the_chart_renders_the_parts_in_the_snapshot() {
    let mut rendered = String::new();
    for Case { shows, set, arguments, of } in
        serde_yaml::from_str::<Vec<Case>>(include_str!("rendered.yaml")).unwrap()
    {
        let text = template("lucid-system", &set, &arguments).await.unwrap();
        let documents: Vec<_> = documents(&text).iter().map(|it| serde_json::to_value(it).unwrap()).collect();
        let found: Map<_, _> = of.iter().map(|path| (path.clone(), parts(&documents, path).into())).collect();
        let found = serde_json::json!({ shows: found });
        rendered += &serde_yaml::to_string(&found).unwrap();
    }
    // Independent of the release.
    let rendered = rendered.replace(env!("CARGO_PKG_VERSION"), "1.0.0");
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(".");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("rendered", rendered));
}
