//! Any text as the plan that lucid-init reads: read and written back the same, or refused in one line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lucid_chain::redirect::Redirect;

fuzz_target!(|json: &str| {
    let redirect = match Redirect::from_json(json) {
        Ok(redirect) => redirect,
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains(char::is_control) && message.chars().count() <= 512, "{message:?}");
            return;
        }
    };
    assert_eq!(Redirect::from_json(&redirect.to_json()).as_ref(), Ok(&redirect));
    let guarded = redirect.guarded();
    assert!(redirect.first_ports().all(|first| !guarded.contains_key(&first)));
    assert!(guarded.len() >= redirect.first_ports().count());
    // Nothing of the text but numbers gets into the rules.
    let plain = |text: &str| {
        text.bytes().all(|byte| byte == b'\n' || byte == b'\t' || byte.is_ascii_graphic() || byte == b' ')
    };
    assert!(plain(&redirect.nft_script()) && plain(&redirect.iptables_restore(None)));
});
