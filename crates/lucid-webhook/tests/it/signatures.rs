//! Compiler messages for handlers with a wrong signature.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that this test was built with: the newest one next to it.
fn library() -> PathBuf {
    let dependencies = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let libraries = std::fs::read_dir(dependencies).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("liblucid_webhook-") && name.ends_with(".rlib")
    };
    libraries.filter(named).max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap()
}

fn compile(handler: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("handler.rs");
    let handle = if handler.contains("State<") { "handle.with_state(1_i8)" } else { "handle" };
    let webhook =
        format!("pub fn webhook() -> Webhook {{ Webhook::validating(\"a.example.com\", {handle}) }}");
    std::fs::write(&source, format!("#![allow(unused)]\nuse lucid_webhook::*;\n{handler}\n{webhook}\n"))
        .unwrap();
    let library = library();
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--out-dir"])
        .arg(folder.path())
        .arg("-L")
        .arg(format!("dependency={}", library.parent().map(Path::display).unwrap()))
        .arg("--extern")
        .arg(format!("lucid_webhook={}", library.display()))
        .arg(&source)
        .output()
        .unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_correct_handler_compiles() {
    let handlers = [
        "async fn handle(user: UserInfo, operation: Operation) -> AdmissionResponse { AdmissionResponse::allow() }",
        "async fn handle() -> Result<AdmissionResponse, BoxError> { Ok(AdmissionResponse::allow()) }",
        "async fn handle(object: Option<Object<()>>, old: Option<OldObject<()>>) -> Result<JsonPatch, PatchError> \
         { JsonPatch::from_operations(&()) }",
    ];
    for handler in handlers {
        assert_eq!(compile(handler), "", "{handler}");
    }
}

#[test]
fn wrong_handlers_get_helpful_errors() {
    let allow = "{ AdmissionResponse::allow() }";
    for (handler, says) in [
        (
            format!("async fn handle(name: String) -> AdmissionResponse {allow}"),
            "each argument has to be an extractor",
        ),
        ("async fn handle() -> bool { true }".to_owned(), "it has to return `AdmissionResponse`"),
        (format!("fn handle() -> AdmissionResponse {allow}"), "cannot handle admission requests"),
        (format!("async fn handle(State(_): State<u8>) -> AdmissionResponse {allow}"), "with_state"),
        ("struct handle;".to_owned(), "a handler is an `async fn`"),
    ] {
        let errors = compile(&handler);
        assert!(errors.contains(says), "{handler}: {says:?} is not in\n{errors}");
        println!("{errors}");
    }
}

#[test]
fn a_defaulting_handler_must_take_an_object_of_its_type() {
    let webhook = "fn other() -> Webhook { Webhook::defaulting::<()>(\"b.example.com\", [], handle) }";
    for (arguments, says) in [
        ("_: UserInfo", "Object<()>) -> _`"),
        ("_: Object<u8>", "Object<()>) -> _`"),
        ("_: Object<u8>, _: UserInfo", "Object<()>, _) -> _`"),
    ] {
        let handler =
            format!("async fn handle({arguments}) -> AdmissionResponse {{ AdmissionResponse::allow() }}");
        let errors = compile(&format!("{handler}\n{webhook}"));
        assert!(errors.contains(says), "{errors}");
    }
}

#[test]
fn the_error_names_the_value_that_is_not_send() {
    for (value, kind) in [("std::rc::Rc::new(())", "Rc<()>"), ("LOCK.lock()", "MutexGuard<'_, ()>")] {
        let handler = format!(
            "static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
            async fn handle() -> AdmissionResponse {{
                let value = {value};
                std::future::ready(()).await;
                drop(value);
                AdmissionResponse::allow()
            }}"
        );
        for source in [
            handler.clone(),
            format!(
                "{handler}\nfn other() -> Webhook {{ Webhook::mutating(\"b.example.com\", handle.with_state(())) }}"
            ),
        ] {
            let errors = compile(&source);
            let says = ["future cannot be sent between threads safely", "used across an await", kind];
            assert!(says.iter().all(|says| errors.contains(says)), "{errors}");
            assert!(!errors.contains("not a handler"), "{errors}");
        }
    }
}
