//! A pod with auditors on 8081 and 8082, and servers of other hosts.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Stdio},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use lucid_chain::redirect::Redirect;

use super::network::{Namespace, Network};

pub(crate) const APP: u32 = 1000;

const REDIRECT: &str = r#"{"version":1,"chain":[{"uid":20003,"port":8084},{"uid":20001,"port":8081},{"uid":20002,"port":8082}],"model":5000,"inbound":true,"outbound":[8000],"exit":8083}"#;

/// Settings of `lucid-egress`, without upstream and allowed hosts.
pub(crate) const SETTINGS: &str = r#"{"intake":8084,"first":8081,"exit":8083,"model":5000}"#;

/// Generous timeout for busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Timeout of a connection, which some networks do not answer.
const CONNECT: Duration = Duration::from_secs(10);

/// Hosts file of `lucid-egress`.
static HOSTS: LazyLock<String> = LazyLock::new(|| {
    let path = format!("{}/hosts-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let hosts = "127.0.0.1 localhost\n::1 localhost\n10.0.0.1 api.example.com\n10.0.0.3 llm.models.svc\n10.0.0.2 pod.models.svc\n";
    fs::write(&path, hosts).unwrap();
    path
});

#[derive(Debug, Clone, Copy)]
pub(crate) enum Tool {
    Nft,
    Iptables,
    None,
}

/// A pod in front of which the node has a server on port 8000 of 10.0.0.1, 10.0.0.3 and fd00::1.
pub(crate) struct Pod {
    pub(crate) network: Network,
    egress: Child,
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.egress.kill().unwrap();
        self.egress.wait().unwrap();
    }
}

impl Pod {
    /// Starts a pod whose `lucid-egress` has these settings and variables. Returns `None`, with a message, without root.
    pub(crate) fn start(tool: Tool, settings: &str, variables: &[(&str, &str)]) -> Option<Self> {
        let network = Network::new()?;
        network.node.run("ip address add 10.0.0.3/24 dev pod");
        let redirect = Redirect::from_json(REDIRECT).unwrap();
        match tool {
            Tool::Nft => feed(&network.pod, "nft -f -", &redirect.nft_script()),
            Tool::Iptables => {
                for program in ["iptables-restore --noflush", "ip6tables-restore --noflush"] {
                    feed(&network.pod, program, &redirect.iptables_restore(None));
                }
            }
            Tool::None => {}
        }
        let mut egress = network.pod.command("unshare");
        egress.args(["--mount", "sh", "-c", "mount --bind $0 /etc/hosts && exec \"$@\"", &HOSTS]);
        egress.args([
            "setpriv",
            "--reuid",
            "20003",
            "--clear-groups",
            "--",
            env!("CARGO_BIN_EXE_lucid-egress"),
        ]);
        egress.env("LUCID_EGRESS", settings).envs(variables.iter().copied());
        let egress = egress.spawn().unwrap();
        let pod = Self { network, egress };
        auditor(&pod.network.pod, 20001, 8081, "AUD1", "127.0.0.1:8082");
        auditor(&pod.network.pod, 20002, 8082, "AUD2", "127.0.0.1:8083");
        let ready = Instant::now();
        while pod.get(20003, "127.0.0.1:8083", "/health", "x").is_err() {
            assert!(ready.elapsed() < PATIENCE, "lucid-egress does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        Some(pod)
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.egress.id())).unwrap().count()
    }

    /// Sends `GET path` with this `Host` from a process in the pod.
    pub(crate) fn get(&self, uid: u32, address: &str, path: &str, host: &str) -> Result<String, String> {
        get(&self.network.pod, uid, address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n"))
    }
}

fn feed(inside: &Namespace, program: &str, input: &str) {
    let mut words = program.split(' ');
    let mut command = inside.command(words.next().unwrap());
    let mut child = command.args(words).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program}: {input}");
}

/// Sends `head` without its last line from a process with this uid, and returns status and body.
pub(crate) fn get(inside: &Namespace, uid: u32, address: &str, head: &str) -> Result<String, String> {
    let address: SocketAddr = address.parse().unwrap();
    let exchange = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, CONNECT)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "{head}Connection: close\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
        let status = head.split(' ').nth(1).unwrap_or_default();
        Ok(format!("{status} {body}"))
    };
    inside.as_user(uid, || exchange().map_err(|error| error.to_string()))
}

/// Reads a request without body: its first line, and the headers by lower-case name.
pub(crate) fn request(stream: impl io::Read) -> (String, BTreeMap<String, String>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let header = |line: String| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_ascii_lowercase(), value.to_owned()))
    };
    (first, lines.filter_map(header).collect())
}

/// Starts an auditor, which rewrites `Host` as many HTTP libraries do. It drops all other headers of requests with
/// `x-forget`.
fn auditor(inside: &Namespace, uid: u32, port: u16, name: &'static str, next: &'static str) {
    inside.serve(uid, ("::", port), move |mut stream: TcpStream| {
        let (first, mut headers) = request(&stream);
        if headers.contains_key("x-forget") {
            headers.clear();
        }
        headers.insert("host".to_owned(), next.to_owned());
        headers.insert("connection".to_owned(), "close".to_owned());
        let audited = headers.entry("x-audited".to_owned()).or_default();
        *audited = format!("{audited}{name} ");
        let mut forward = TcpStream::connect(next)?;
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(forward, "{first}\r\n{headers}\r\n")?;
        io::copy(&mut forward, &mut stream)?;
        Ok(())
    });
}

/// Starts a server of another host, or the model. It responds with its name, the request, and the header that
/// `X-Echo` names.
pub(crate) fn server(inside: &Namespace, address: &str, name: &'static str) {
    inside.serve(APP, address.to_owned(), move |mut stream: TcpStream| {
        let (first, headers) = request(&stream);
        respond(&mut stream, name, &first, &headers)
    });
}

pub(crate) fn respond(
    stream: &mut impl Write,
    name: &str,
    first: &str,
    headers: &BTreeMap<String, String>,
) -> io::Result<()> {
    let path = first.split(' ').nth(1).unwrap_or_default();
    let of = |name| headers.get(name).map_or("", String::as_str).trim();
    let body = format!("{name} {}{path} {}{}", of("host"), of("x-audited"), of(of("x-echo")));
    assert!(!headers.contains_key("lucid-route"), "the route left the pod");
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}
