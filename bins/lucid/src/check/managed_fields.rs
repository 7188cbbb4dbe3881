//! Times of writes, from `managedFields`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Returns the time of the last write to a label or annotation, according to `managedFields`.
pub(super) fn written(metadata: &ObjectMeta, field: &str, key: &str) -> Option<Timestamp> {
    let (field, key) = (format!("f:{field}"), format!("f:{key}"));
    let entries = metadata.managed_fields.iter().flatten();
    let entries = entries.filter(|entry| {
        entry.fields_v1.as_ref().is_some_and(|it| it.0["f:metadata"][&field].get(&key).is_some())
    });
    entries.filter_map(|entry| Some(entry.time.as_ref()?.0)).max()
}
