//! Two JSON values: the patch of a change from the first to the second, applied to the first, gives the second.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lucid_webhook::{AllowedPaths, JsonPatch, RawObject};
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let mut values = serde_json::Deserializer::from_slice(data).into_iter::<Value>();
    let (Some(Ok(before)), Some(Ok(after))) = (values.next(), values.next()) else { return };

    // Read once more, as a number may come back as its neighbour.
    let raw = RawObject::from_value(&before);
    let before: Value = raw.decode().expect("JSON that was written");
    let patch = JsonPatch::of_change(&raw, &after).expect("a value is any JSON");
    let mut patched = before.clone();
    json_patch::patch(&mut patched, patch.operations()).expect("a change applies");
    assert_eq!(patched, after);
    assert_eq!(patch.is_empty(), before == after);
    // A pointer that was written is one that can be read.
    let sent = serde_json::to_value(patch.operations()).expect("a patch is JSON");
    assert_eq!(JsonPatch::from_operations(&sent).expect("a patch is a patch"), patch);

    if after.is_object() || after.is_array() {
        assert_eq!(patch.apply(&before).expect("a change applies in the API server"), after);
        assert_eq!(AllowedPaths::default().check(&before, &patch).is_ok(), before == after);
    }
});
