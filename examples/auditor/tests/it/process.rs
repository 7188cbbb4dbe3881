//! The auditor as a process.

use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{client, serve, within};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_example-auditor"));
    program.env_clear().stdout(Stdio::null()).stderr(Stdio::piped());
    program
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn it_serves_ipv4_and_ipv6_and_ends_when_it_is_asked_to() {
    let model = serve(example_model::router()).await;
    let port = free_port();
    let mut program = program();
    program.env("LUCID_CHAIN_NEXT", format!("http://{model}")).env("LUCID_AUDITOR_PORT", port.to_string());
    let mut auditor = Running(program.spawn().unwrap());
    let health = format!("http://127.0.0.1:{port}/health");
    within(async {
        while client().get(&health).send().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    if TcpListener::bind("[::1]:0").is_ok() {
        assert_eq!(client().get(format!("http://[::1]:{port}/")).send().await.unwrap().status(), 200);
    }
    assert_eq!(client().get(format!("http://127.0.0.1:{port}/")).send().await.unwrap().status(), 200);

    kill_process(Pid::from_child(&auditor.0), Signal::TERM).unwrap();
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = auditor.0.try_wait().unwrap() {
            break status;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(status.success(), "{status}");
}

#[test]
fn without_a_next_one_it_says_what_is_missing_and_ends() {
    let mut auditor = Running(program().spawn().unwrap());
    let status = auditor.0.wait().unwrap();
    let mut told = String::new();
    auditor.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(status.code(), Some(1));
    assert_eq!(told, "example-auditor: LUCID_CHAIN_NEXT: found nothing, accepted http://HOST:PORT\n");
}
