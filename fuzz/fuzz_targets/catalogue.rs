//! Any text as `auditors.yaml`: read, or refused with a line that is there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lucid_chain::{Catalogue, Configuration, Decision, Inputs, PodView, plan};
use serde_json::{Value, json};

fuzz_target!(|yaml: &str| {
    let catalogue = match Catalogue::parse("auditors.yaml", yaml) {
        Ok(catalogue) => catalogue,
        Err(error) => {
            let message = error.to_string();
            let line = message.strip_prefix("auditors.yaml: line ").and_then(|rest| rest.split(',').next());
            let line: usize = line.and_then(|line| line.parse().ok()).expect("a line");
            // Line breaks of YAML.
            let ends = yaml.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count();
            assert!((1..=ends + 2).contains(&line), "{error}");
            assert!(!message.contains(char::is_control), "{error:?}");
            return;
        }
    };
    for auditor in catalogue.auditors() {
        assert_eq!(catalogue.resolve(auditor.name()), Ok(auditor));
        assert_eq!(catalogue.auditor_of_container(auditor.name()), Some(auditor));
    }
    assert_eq!(catalogue.overlay(&catalogue), catalogue);

    let chain: Vec<_> =
        catalogue.auditors().iter().take(4).map(|auditor| auditor.name().to_owned()).collect();
    let all = Catalogue::builtin().overlay(&catalogue);
    let Ok(configuration) = Configuration::new(all, (!chain.is_empty()).then_some(&chain[..])) else {
        panic!("a catalogue has its own auditors");
    };
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "web", "ports": [{"containerPort": 5000}]}]}});
    let json = pod.to_string();
    let view = PodView::from_json(&json).expect("a pod");
    let inputs = Inputs { forced: true, ..Inputs::new(&configuration) };
    let Decision::Planned(planned) = plan(&view, &inputs).decision else {
        panic!("a chain fits into {json}")
    };
    for container in &planned.containers {
        let manifest = container.manifest();
        let security = &manifest["securityContext"];
        assert_eq!(security["runAsNonRoot"], true);
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
        assert_ne!(security["seccompProfile"]["type"], "Unconfined");
        assert_eq!(security["privileged"].as_bool().unwrap_or_default(), false);
    }
    let mut patched: Value = pod;
    json_patch::patch(&mut patched, &planned.patch(&view).operations()).expect("the patch applies");
    let json = patched.to_string();
    let view = PodView::from_json(&json).expect("a pod");
    let Decision::Planned(again) = plan(&view, &inputs).decision else { panic!("a chain fits into {json}") };
    let rest = again.patch(&view);
    assert!(rest.is_empty(), "{rest:?} {json}");
});
