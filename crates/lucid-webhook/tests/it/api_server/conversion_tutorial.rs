//! The tutorial's section about conversion: its commands are run as they are written.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use lucid_testbed::{Binaries, Component};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Scene, in_namespace};

const TUTORIAL: &str = include_str!("../../../examples/README.md");
const DEFINITION: &str = include_str!("../../../examples/crontab-crd.yaml");

/// The code blocks with their language, in order. Those of this section are fenced with tildes.
fn blocks(fence: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let fenced: Vec<_> = TUTORIAL.split(fence).skip(1).step_by(2).collect();
    fenced.into_iter().filter_map(|block| block.split_once('\n'))
}

/// The example, which ends with this.
struct Example {
    process: Child,
    address: String,
}

impl Example {
    fn start(arguments: &[&str], folder: &Path) -> Self {
        let test = env::current_exe().unwrap();
        let program = test.parent().and_then(Path::parent).unwrap().join("examples/conversion");
        assert!(program.is_file(), "run `cargo build -p lucid-webhook --examples` first");
        let mut command = lucid_testbed::command(&program);
        command.arg("127.0.0.1:0").args(arguments).current_dir(folder).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self { process, address }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // It has ended already where all went well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A shell in which kubectl is there, knows the cluster, and works in the scene's namespace.
fn shell(scene: &Scene, folder: &Path, binaries: &Binaries, script: &str) -> String {
    let kubeconfig = fs::read_to_string(scene.cluster.kubeconfig_path()).unwrap();
    let own = folder.join("kubeconfig");
    if !own.exists() {
        fs::write(&own, kubeconfig).unwrap();
        let namespace = format!("kubectl config set-context --current --namespace={}", scene.namespace);
        shell(scene, folder, binaries, &namespace);
    }
    let path = format!("{}:{}", binaries.folder().display(), env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-ec", &format!("exec 2>&1\n{script}")]).current_dir(folder);
    command.env("PATH", path).env("KUBECONFIG", own).env("HOME", folder);
    for proxy in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
        command.env_remove(proxy);
    }
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn the_conversion_tutorial_works_as_it_is_written() {
    in_namespace("conversion-tutorial", async |scene| {
        let binaries = Binaries::from_env().unwrap();
        binaries.ensure_async(&[Component::Kubectl]).await.unwrap();
        let folder = TempDir::new().unwrap();
        let run =
            |script: &str| tokio::task::block_in_place(|| shell(scene, folder.path(), &binaries, script));
        let (_, certificates) = blocks("```").find(|(language, _)| *language == "sh").unwrap();
        run(certificates);
        let mut example = None;
        let mut commands = 0;
        for (language, text) in blocks("~~~") {
            match language {
                "text" => {
                    let (_, arguments) = text.trim().split_once("127.0.0.1:8446 ").unwrap();
                    let arguments: Vec<_> = arguments.split(' ').collect();
                    let started = Example::start(&arguments, folder.path());
                    let definition = DEFINITION.replace("127.0.0.1:8446", &started.address);
                    fs::write(folder.path().join("crontab-crd.yaml"), definition).unwrap();
                    example = Some(started);
                }
                "yaml" => {
                    let (name, _) = text.strip_prefix("# ").unwrap().split_once('\n').unwrap();
                    fs::write(folder.path().join(name), text).unwrap();
                }
                "console" => {
                    for part in text.split("$ ").skip(1) {
                        let (command, expected) = part.split_once('\n').unwrap();
                        assert_eq!(run(command), expected, "$ {command}");
                        commands += 1;
                    }
                }
                other => panic!("what to do with {other}?"),
            }
        }
        assert_eq!(commands, 8);
        let mut example = example.unwrap();
        kill_process(Pid::from_child(&example.process), Signal::TERM).unwrap();
        let status = example.process.wait().unwrap();
        assert!(status.success(), "{status}");
    });
}
