//! Files from Debian packages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use lucid_e2e::Error;

use super::context::Root;
use super::elf;

/// Programs that install network rules. Those of iptables are links, one name per variant.
const PROGRAMS: &[&str] = &[
    "nft",
    "iptables-nft-restore",
    "iptables-nft-save",
    "ip6tables-nft-restore",
    "ip6tables-nft-save",
    "iptables-legacy-restore",
    "iptables-legacy-save",
    "ip6tables-legacy-restore",
    "ip6tables-legacy-save",
];

/// Prefixes of the iptables matches and targets, which are loaded by name. All are included, to read rules of other programs.
const EXTENSIONS: &[&str] = &["libxt_", "libipt_", "libip6t_"];

/// CA certificates of the package `ca-certificates`, in PEM. The bundle that programs on this machine read may include CAs
/// added by its administrator.
pub(crate) fn certificates() -> Result<String, Error> {
    const FOLDER: &str = "/usr/share/ca-certificates/";
    let files = query(&["--listfiles", "ca-certificates"])?;
    let mut files: Vec<_> =
        files.lines().filter(|file| file.starts_with(FOLDER) && file.ends_with(".crt")).collect();
    files.sort_unstable();
    let mut all = String::new();
    for file in files {
        let pem = fs::read_to_string(file).map_err(|error| format!("failed to read {file}: {error}"))?;
        all.extend([pem.trim(), "\n"]);
    }
    if all.is_empty() {
        return Err(format!("package ca-certificates has no certificates in {FOLDER}").into());
    }
    Ok(all)
}

/// Adds nft and iptables with their dependencies, and a record of each package for vulnerability scanners.
pub(crate) fn network_tools(root: &mut Root) -> Result<(), Error> {
    let mut programs: Vec<_> = PROGRAMS.iter().map(|name| Path::new("/usr/sbin").join(name)).collect();
    if let Some(missing) = programs.iter().find(|program| !program.exists()) {
        let message = "install the packages nftables and iptables of Debian";
        return Err(format!("{} is not there: {message}", missing.display()).into());
    }
    programs.extend(extensions()?);
    let libraries = elf::needed(&programs)?;
    let files =
        programs.iter().chain(&libraries).map(|path| root.add(path)).collect::<Result<Vec<_>, _>>()?;
    // Scanners read the distribution and the packages of an image without a package manager from these files.
    root.add(Path::new("/etc/os-release"))?;
    for package in packages(&files)? {
        let (name, _) = package.split_once(':').unwrap_or((&package, ""));
        root.write(&format!("/var/lib/dpkg/status.d/{name}"), &query(&["--status", &package])?)?;
        root.add(&Path::new("/usr/share/doc").join(name).join("copyright"))?;
    }
    // Without this file, each uid in a rule would be looked up in services that the image lacks.
    root.write("/etc/nsswitch.conf", "passwd: files\ngroup: files\n")
}

/// Extensions from the package. Others, such as those of xtables-addons, need additional kernel modules.
fn extensions() -> Result<Vec<PathBuf>, Error> {
    let files = query(&["--listfiles", "iptables"])?;
    let is_extension = |file: &&str| {
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
        folder.ends_with("/xtables") && EXTENSIONS.iter().any(|prefix| name.starts_with(prefix))
    };
    let mut paths: Vec<_> = files.lines().filter(is_extension).map(PathBuf::from).collect();
    if paths.is_empty() {
        return Err("package iptables has no extensions in a folder xtables".into());
    }
    paths.sort();
    Ok(paths)
}

/// Packages that own the files `paths`, as `name:architecture`, or `name` if dpkg omits the architecture.
fn packages(paths: &[PathBuf]) -> Result<BTreeSet<String>, Error> {
    // dpkg records some files by their path from before /lib became a link to /usr/lib.
    let before = |path: &Path| Path::new("/").join(path.strip_prefix("/usr").unwrap_or(path));
    let all = paths.iter().flat_map(|path| [path.clone(), before(path)]);
    // One call for all paths, since dpkg reads the file list of every package each time. It fails if it knows only one of the
    // two paths.
    let output = dpkg_query().arg("--search").args(all).output().map_err(not_run)?;
    let output = String::from_utf8(output.stdout)?;
    let owners = output.lines().filter_map(|line| line.rsplit_once(": "));
    let owners: BTreeMap<_, _> = owners.map(|(owner, path)| (Path::new(path), owner)).collect();
    let owner = |path: &PathBuf| {
        let owner = owners.get(path.as_path()).or_else(|| owners.get(before(path).as_path()));
        let owner = owner.ok_or_else(|| format!("dpkg knows of no package with {}", path.display()))?;
        Ok((*owner).to_owned())
    };
    paths.iter().map(owner).collect()
}

fn query(arguments: &[&str]) -> Result<String, Error> {
    let output = dpkg_query().args(arguments).output().map_err(not_run)?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("dpkg-query {}: {}", arguments.join(" "), complaint.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn dpkg_query() -> Command {
    let mut command = Command::new("dpkg-query");
    command.env("LC_ALL", "C");
    command
}

fn not_run(error: io::Error) -> Error {
    format!("failed to run dpkg-query, which tells packages apart: {error}").into()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Stdio;

    use super::*;
    use crate::images::context::Context;

    /// Runs `program` with `input` and only the files in `root`, in a separate network namespace.
    fn run(root: &Path, program: &[&str], input: &str) -> String {
        let mut child = Command::new("unshare")
            .args(["--net", "chroot"])
            .arg(root)
            .args(program)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn authorities_are_those_of_the_package_without_those_of_this_machine() {
        let folder = "/usr/share/ca-certificates/mozilla";
        let mut packaged: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        packaged.sort_unstable();
        let certificates = certificates().unwrap();
        assert_eq!(certificates.matches("BEGIN CERTIFICATE").count(), packaged.len());
        for pem in packaged {
            assert!(certificates.contains(pem.trim()), "{pem}");
        }
    }

    #[test]
    fn extensions_are_those_of_the_package_whatever_else_is_in_their_folder() {
        let extensions = extensions().unwrap();
        for name in ["libxt_owner.so", "libxt_REDIRECT.so", "libipt_icmp.so", "libip6t_icmp6.so"] {
            assert!(extensions.iter().any(|path| path.ends_with(name)), "{name} in {extensions:?}");
        }
        assert_eq!(packages(&extensions).unwrap(), ["iptables".to_owned()].into());
    }

    #[test]
    fn the_tools_install_rules_with_nothing_but_what_is_packed() {
        // Needs root with permission to create network namespaces, like a node.
        if !lucid_testbed::node::can_run() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut context = Context::create(&folder.path().join("context")).unwrap();
        network_tools(&mut context.folder("tools").unwrap()).unwrap();
        let root = folder.path().join("context/tools");

        let table = "table inet lucid {\n chain out {\n type nat hook output priority -100;\n \
                     meta skuid 20001 tcp dport 5000 return\n tcp dport 5000 redirect to :8090\n }\n}\n";
        run(&root, &["nft", "-f", "-"], table);
        let rules = "*nat\n:LUCID_REDIRECT - [0:0]\n-A OUTPUT -j LUCID_REDIRECT\n\
                     -A LUCID_REDIRECT -p tcp -m tcp --dport 5000 -m owner ! --uid-owner 20001-20002 -j REDIRECT \
                     --to-ports 8090\nCOMMIT\n";
        for program in ["iptables-nft-restore", "ip6tables-nft-restore"] {
            run(&root, &[program, "--noflush"], rules);
        }
        for program in ["iptables-legacy-restore", "ip6tables-legacy-restore"] {
            // The legacy tables depend on the kernel of the node. The image only has to run the program.
            run(&root, &[program, "--version"], "");
        }
        let status = fs::read_to_string(root.join("var/lib/dpkg/status.d/libc6")).unwrap();
        assert!(status.starts_with("Package: libc6\n") && status.contains("\nVersion: "), "{status}");
        assert!(fs::read_to_string(root.join("usr/share/doc/nftables/copyright")).unwrap().contains("GPL"));
    }
}
