//! Runs `lucid-init` as a pod does.

use std::{
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

use super::network::{Namespace, Network};

/// Two auditors in front of a model, for inbound and outbound traffic.
pub(crate) const PLAN: &str = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":5000,"inbound":true,"outbound":[8000]}"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Image {
    Nft,
    IptablesNft,
    IptablesLegacy,
}

impl Image {
    /// Returns the name that lucid-init uses for its tool.
    pub(crate) fn tool(self) -> &'static str {
        match self {
            Self::Nft => "nft",
            Self::IptablesNft => "iptables-nft",
            Self::IptablesLegacy => "iptables-legacy",
        }
    }

    pub(crate) fn programs(self) -> Vec<String> {
        match self {
            Self::Nft => vec!["nft".to_owned()],
            Self::IptablesNft | Self::IptablesLegacy => {
                let variant = self.tool();
                ["restore", "save"]
                    .iter()
                    .flat_map(|p| [format!("{variant}-{p}"), format!("ip6{}-{p}", &variant[2..])])
                    .collect()
            }
        }
    }

    /// iptables-legacy needs a raw socket.
    fn capabilities(self) -> &'static str {
        match self {
            Self::Nft | Self::IptablesNft => "-all,+net_admin",
            Self::IptablesLegacy => "-all,+net_admin,+net_raw",
        }
    }

    pub(crate) fn rules(self, inside: &Namespace) -> String {
        match self {
            Self::Nft => inside.run("nft list ruleset"),
            _ => ["iptables", "ip6tables"]
                .map(|family| {
                    let program = format!("{family}{}", &self.tool()["iptables".len()..]);
                    inside.run(&format!("{program} -t nat -S")) + &inside.run(&format!("{program} -S"))
                })
                .concat(),
        }
    }

    /// Returns `true` if this machine and its kernel support the tools; otherwise prints a message.
    pub(crate) fn is_available(self, network: &Network) -> bool {
        let probe = match self {
            Self::Nft => "nft list ruleset".to_owned(),
            _ => format!("{} -t nat -S", self.tool()),
        };
        let works = network.node.command("sh").args(["-c", &probe]).output().unwrap().status.success();
        if !works {
            lucid_e2e::skip(format_args!("{} does not work on this machine", self.tool()));
        }
        works
    }
}

/// Returns a network for each image that this machine supports.
pub(crate) fn networks() -> impl Iterator<Item = (Image, Network)> {
    let images = [Image::Nft, Image::IptablesNft, Image::IptablesLegacy];
    let networks = images.into_iter().filter_map(|image| Network::new().map(|network| (image, network)));
    networks.filter(|(image, network)| image.is_available(network))
}

/// `lucid-init` as the init container of a pod.
pub(crate) struct Init {
    capabilities: &'static str,
    path: TempDir,
    plan: Option<String>,
    backend: Option<&'static str>,
}

impl Init {
    pub(crate) fn new(image: Image) -> Self {
        let init = Self::without_tools();
        for program in image.programs() {
            init.add(&program, &find(&program));
        }
        Self { capabilities: image.capabilities(), ..init }
    }

    pub(crate) fn without_tools() -> Self {
        let path = tempfile::tempdir().unwrap();
        Self { capabilities: "-all,+net_admin", path, plan: Some(PLAN.to_owned()), backend: None }
    }

    /// An image with iptables-nft that handles the rules by a `case` of the shell before it installs them.
    pub(crate) fn with_iptables_nft(case: &str) -> Self {
        let init = Self::without_tools();
        for family in ["iptables", "ip6tables"] {
            init.add(&format!("{family}-nft-save"), &format!("/usr/sbin/{family}-nft-save"));
            let script = format!(
                "rules=$(/bin/cat)
                case $rules in {case};; esac
                echo \"$rules\" | /usr/sbin/{family}-nft-restore \"$@\""
            );
            init.add_script(&format!("{family}-nft-restore"), &script);
        }
        init
    }

    pub(crate) fn plan(mut self, plan: Option<&str>) -> Self {
        self.plan = plan.map(str::to_owned);
        self
    }

    pub(crate) fn backend(mut self, backend: &'static str) -> Self {
        self.backend = Some(backend);
        self
    }

    pub(crate) fn capabilities(mut self, capabilities: &'static str) -> Self {
        self.capabilities = capabilities;
        self
    }

    pub(crate) fn add(&self, name: &str, program: &str) {
        symlink(program, self.path.path().join(name)).unwrap();
    }

    pub(crate) fn add_script(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs as root with only the given capabilities, without new privileges and with a read-only root file system.
    /// /dev has the files that the kubelet provides.
    pub(crate) fn run(&self, inside: &Namespace, arguments: &[&str]) -> Ended {
        const CONTAINER: &str = "
            set -e
            mount --bind / /
            mount -t tmpfs -o ro tmpfs /run
            mount -t tmpfs tmpfs /dev
            mknod -m 666 /dev/null c 1 3
            mkdir /dev/shm
            : > /dev/termination-log
            capabilities=$1
            shift
            cd /
            status=0
            mount -o remount,bind,ro /
            setpriv --bounding-set $capabilities --inh-caps -all --no-new-privs -- env PATH=$TOOLS \"$@\" || status=$?
            echo
            cat /dev/termination-log
            exit $status";
        let mut command: Command = inside.command("unshare");
        command.args(["--mount", "--", "sh", "-c", CONTAINER, "sh", self.capabilities]);
        command.arg(env!("CARGO_BIN_EXE_lucid-init")).args(arguments);
        command.env("TOOLS", self.path.path()).env_remove("LUCID_REDIRECT").env_remove("LUCID_INIT_BACKEND");
        command.envs(self.plan.iter().map(|plan| ("LUCID_REDIRECT", plan)));
        command.envs(self.backend.iter().map(|backend| ("LUCID_INIT_BACKEND", backend)));
        Ended::from(command.output().unwrap())
    }

    pub(crate) fn install(&self, inside: &Namespace) -> String {
        let ended = self.run(inside, &[]);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
        ended.stdout
    }
}

fn find(program: &str) -> String {
    let folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(|folder| Path::new(folder).join(program));
    let found = folders.iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{program} is not installed")).to_str().unwrap().to_owned()
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) termination_log: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let stdout = text(output.stdout);
        let (stdout, log) = stdout.rsplit_once('\n').unwrap_or_default();
        Self {
            code: output.status.code().unwrap(),
            stdout: stdout.to_owned(),
            stderr: text(output.stderr),
            termination_log: log.to_owned(),
        }
    }
}
