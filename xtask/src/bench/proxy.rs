//! A model, and auditors and reverse proxies in front of it. Each is a process with one worker.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lucid_e2e::Error;

use super::load::Target;
use super::programs::{self, Pinned, SERVER_CORE};
use super::server::PATIENCE;

pub(super) struct Proxy {
    pub(super) process: Pinned,
    address: SocketAddr,
}

impl Proxy {
    /// Starts a model that pauses between the events of a stream.
    pub(super) fn model(core: &str, program: &Path, pause: Duration) -> Result<Self, Error> {
        let pause = pause.as_millis().to_string();
        let mut process = Pinned::start(core, program, |command| command.args(["--pause", &pause]))?;
        let line = process.line()?;
        let address = line.strip_prefix("listening on ").ok_or("a model without an address")?.parse()?;
        Ok(Self { process, address })
    }

    /// Starts an auditor. Its runtime has one worker, as it may use one core.
    pub(super) fn auditor(program: &Path, next: &Self, arguments: &[&str]) -> Result<Self, Error> {
        Self::start(program, |address, command| {
            command.args(arguments).env("LUCID_CHAIN_NEXT", format!("http://{}", next.address));
            command.env("LUCID_AUDITOR_PORT", address.port().to_string()).env("LUCID_METRICS_PORT", "0");
            Ok(())
        })
    }

    /// Starts HAProxy. As the auditor, it keeps connections and appends `X-Forwarded-For`.
    pub(super) fn haproxy(next: &Self) -> Result<Self, Error> {
        Self::start(Path::new("haproxy"), |address, command| {
            let configuration = format!(
                "global\n nbthread 1\ndefaults\n mode http\n option forwardfor\n timeout connect 5s\n timeout client 60s\n \
                timeout server 60s\nlisten bench\n bind {address}\n server model {}\n",
                next.address
            );
            let path = programs::folder().join("haproxy.cfg");
            fs::write(&path, configuration)?;
            command.arg("-db").arg("-f").arg(path);
            Ok(())
        })
    }

    pub(super) fn nginx(next: &Self) -> Result<Self, Error> {
        Self::start(Path::new("nginx"), |address, command| {
            let folder = programs::folder();
            let configuration = format!(
                "daemon off; master_process off; pid {}; error_log stderr crit; events {{ }}\n\
                http {{ access_log off; keepalive_requests 1000000000;\n\
                upstream model {{ server {}; keepalive 64; keepalive_requests 1000000000; }}\n\
                server {{ listen {address}; location / {{ proxy_pass http://model; proxy_http_version 1.1;\n\
                proxy_set_header Connection ''; proxy_set_header Host $http_host;\n\
                proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }} }} }}\n",
                folder.join("nginx.pid").display(),
                next.address
            );
            let path = folder.join("nginx.conf");
            fs::write(&path, configuration)?;
            command.arg("-c").arg(path.canonicalize()?).args(["-e", "stderr"]);
            Ok(())
        })
    }

    /// Starts a program that `configure` gives an address, and waits until it listens.
    fn start(
        program: &Path,
        configure: impl FnOnce(SocketAddr, &mut Command) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
        let address = SocketAddr::from((localhost, lucid_e2e::free_port(localhost)?));
        let mut configured = Ok(());
        let mut process = Pinned::start(SERVER_CORE, program, |command| {
            configured = configure(address, command);
            command.stderr(Stdio::null())
        })?;
        configured?;
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            if process.ended()? || begin.elapsed() > PATIENCE {
                return Err(format!("{} does not listen at {address}", program.display()).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { process, address })
    }

    /// Requests to this server, with its CPU time.
    pub(super) fn target(&self, path: &str) -> Target {
        let target = Target::plain(path, &[self.address]).with("--check-uid", "false");
        target.with("--server", self.process.pid().to_string())
    }
}
