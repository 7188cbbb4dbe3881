//! Two JSON values: the difference applied to the first gives the second, and so does a change through a type that knows
//! everything.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lucid_webhook::{AllowedPaths, JsonPatch, RawObject};
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let mut values = serde_json::Deserializer::from_slice(data).into_iter::<Value>();
    let (Some(Ok(before)), Some(Ok(after))) = (values.next(), values.next()) else { return };

    let patch = JsonPatch::diff(&before, &after);
    let mut patched = before.clone();
    json_patch::patch(&mut patched, patch.operations()).expect("a difference applies");
    assert_eq!(patched, after);
    assert_eq!(patch.is_empty(), before == after);
    // A pointer that was written is one that can be read.
    let sent = serde_json::to_value(patch.operations()).expect("a patch is JSON");
    assert_eq!(JsonPatch::from_operations(&sent).expect("a patch is a patch"), patch);

    // Read once more, as a number may come back as its neighbour.
    let raw = RawObject::from_value(&before);
    let reread: Value = raw.decode().expect("JSON that was written");
    let change = JsonPatch::of_change(&raw, &after).expect("a value is any JSON");
    let mut changed = reread;
    json_patch::patch(&mut changed, change.operations()).expect("a change applies");
    assert_eq!(changed, after);

    if after.is_object() || after.is_array() {
        assert_eq!(patch.apply(&before).expect("a difference applies in the API server"), after);
        assert_eq!(AllowedPaths::default().check(&before, &patch).is_ok(), before == after);
    }
});
