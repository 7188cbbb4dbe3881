//! Paths of bundle fields in objects.

use serde_json::{Value, json};

/// Path of a field: through maps by key, and through lists with the list map key `name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    /// List entry with this `name`.
    Named(String),
}

impl FieldPath {
    pub(crate) fn of<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self(keys.into_iter().map(|key| Step::Key(key.to_owned())).collect())
    }

    pub(crate) fn named(mut self, name: &str) -> Self {
        self.0.push(Step::Named(name.to_owned()));
        self
    }

    pub(crate) fn then<'a>(mut self, keys: impl IntoIterator<Item = &'a str>) -> Self {
        self.0.extend(Self::of(keys).0);
        self
    }

    pub(crate) fn get<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, step| match step {
            Step::Key(key) => value.get(key),
            Step::Named(name) => value.as_array()?.iter().find(|entry| entry["name"] == **name),
        })
    }

    /// Returns `true` if a field set (`metadata.managedFields[].fieldsV1`) contains the field.
    pub(crate) fn is_in(&self, fields: &Value) -> bool {
        self.0.iter().try_fold(fields, |fields, step| fields.get(step.fields_v1())).is_some()
    }

    /// Returns `true` if a field set contains only fields like this one, in any list entry.
    pub(crate) fn covers(&self, fields: &Value) -> bool {
        covers(&self.0, fields, false)
    }
}

fn covers(steps: &[Step], fields: &Value, of_entry: bool) -> bool {
    let Some(fields) = fields.as_object() else { return true };
    fields.iter().all(|(key, below)| match steps.split_first() {
        // The map or list entry itself, and the key field of the entry.
        Some(_) if key == "." || (of_entry && key == "f:name") => true,
        Some((step @ Step::Key(_), rest)) => step.fields_v1() == *key && covers(rest, below, false),
        Some((Step::Named(_), rest)) => covers(rest, below, true),
        None => false,
    })
}

impl Step {
    fn fields_v1(&self) -> String {
        match self {
            Self::Key(key) => format!("f:{key}"),
            Self::Named(name) => format!("k:{}", json!({ "name": name })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(name: &str) -> FieldPath {
        FieldPath::of(["webhooks"]).named(name).then(["clientConfig", "caBundle"])
    }

    #[test]
    fn values_are_found_at_their_path() {
        let object = json!({
            "kind": "X",
            "webhooks": [
                { "name": "a", "clientConfig": { "caBundle": "3" } },
                { "name": "b", "clientConfig": { "caBundle": "2" } },
            ],
        });
        assert_eq!(webhook("b").get(&object), Some(&json!("2")));
        assert_eq!(webhook("c").get(&object), None);
    }

    #[test]
    fn owned_fields_are_found_in_managed_fields() {
        let fields = json!({ "f:webhooks": { "k:{\"name\":\"a\"}": {
            ".": {}, "f:name": {}, "f:clientConfig": { "f:caBundle": {} },
        } } });
        assert!(webhook("a").is_in(&fields));
        assert!(!webhook("b").is_in(&fields));
        assert!(!FieldPath::of(["spec", "caBundle"]).is_in(&fields));
    }

    #[test]
    fn field_sets_with_other_fields_are_not_covered() {
        let only = json!({ "f:webhooks": { "k:{\"name\":\"a\"}": {
            ".": {}, "f:name": {}, "f:clientConfig": { "f:caBundle": {} },
        } } });
        assert!(webhook("b").covers(&only));
        let mut more = only.clone();
        more["f:webhooks"]["k:{\"name\":\"a\"}"]["f:clientConfig"]["f:url"] = json!({});
        assert!(!webhook("a").covers(&more));
        let mut more = only;
        more["f:metadata"] = json!({ "f:labels": { "f:app": {} } });
        assert!(!webhook("a").covers(&more));
        assert!(FieldPath::of(["data", "ca.crt"]).covers(&json!({ "f:data": { "f:ca.crt": {} } })));
        assert!(
            !FieldPath::of(["data", "ca.crt"]).covers(&json!({ "f:data": { "f:ca.crt": {}, "f:b": {} } }))
        );
    }
}
