//! The auditor as a process.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::streaming::{answering, pieces};
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

/// An auditor in front of `model`, as soon as it answers, with its port.
async fn running(model: SocketAddr) -> (Running, u16) {
    let port = free_port();
    let mut program = program();
    program.env("LUCID_CHAIN_NEXT", format!("http://{model}")).env("LUCID_AUDITOR_PORT", port.to_string());
    let auditor = Running(program.spawn().unwrap());
    let health = format!("http://127.0.0.1:{port}/health");
    within(async {
        while client().get(&health).send().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    (auditor, port)
}

impl Running {
    fn terminate(&self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
    }

    async fn end(&mut self) -> ExitStatus {
        within(async {
            loop {
                if let Some(status) = self.0.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
    }
}

#[tokio::test]
async fn it_serves_ipv4_and_ipv6_and_ends_when_it_is_asked_to() {
    let (mut auditor, port) = running(serve(example_model::router()).await).await;
    let mut kept = vec![client()];
    if TcpListener::bind("[::1]:0").is_ok() {
        assert_eq!(kept[0].get(format!("http://[::1]:{port}/")).send().await.unwrap().status(), 200);
        kept.push(client());
    }
    let last = kept.last().unwrap();
    assert_eq!(last.get(format!("http://127.0.0.1:{port}/")).send().await.unwrap().status(), 200);
    // Connections that wait for their next request do not hold it up.
    auditor.terminate();
    let status = auditor.end().await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn an_answer_that_has_begun_comes_to_its_end_and_nobody_else_is_served() {
    let (send, receive) = pieces();
    let (mut auditor, port) = running(serve(answering(receive)).await).await;
    let url = format!("http://127.0.0.1:{port}/");
    send.unbounded_send("one").unwrap();
    let mut answer = within(client().get(&url).send()).await.unwrap();
    assert_eq!(within(answer.chunk()).await.unwrap().unwrap(), "one");

    auditor.terminate();
    within(async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    send.unbounded_send("two").unwrap();
    assert_eq!(within(answer.chunk()).await.unwrap().unwrap(), "two");
    assert_eq!(auditor.0.try_wait().unwrap(), None);
    drop(send);
    assert_eq!(within(answer.chunk()).await.unwrap(), None);
    let status = auditor.end().await;
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
