//! `cargo xtask manual`: man pages and completions of all programs, in the folders used by packages.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lucid_e2e::{Error, program};

use crate::command::{ROOT, succeed};

/// Programs that generate their own man pages and completions.
const PROGRAMS: [&str; 4] = ["lucid", "lucid-operator", "lucid-validator", "lucid-verifier"];
/// Shells, with the folder and the file name of a program's completions.
const SHELLS: [(&str, &str, &str, &str); 3] = [
    ("bash", "bash-completion/completions", "", ""),
    ("zsh", "zsh/site-functions", "_", ""),
    ("fish", "fish/vendor_completions.d", "", ".fish"),
];

/// Options of `cargo xtask manual`.
#[derive(Debug, clap::Args)]
pub(crate) struct Manual {
    /// Output folder.
    #[arg(long, value_name = "DIR", default_value = "target/manual")]
    out: PathBuf,
}

pub(crate) fn run(options: &Manual) -> Result<(), Error> {
    let out = &options.out;
    let pages = out.join("man/man1");
    for name in PROGRAMS {
        let program = program(name)?;
        succeed(Command::new(&program).arg("manual").arg(&pages))?;
        for (shell, folder, prefix, suffix) in SHELLS {
            let folder = out.join(folder);
            fs::create_dir_all(&folder)?;
            let script = File::create(folder.join(format!("{prefix}{name}{suffix}")))?;
            succeed(Command::new(&program).args(["completions", shell]).stdout(Stdio::from(script)))?;
        }
    }
    // The kubectl plugin is the same program under another name.
    let folder = tempfile::tempdir()?;
    let plugin = folder.path().join("kubectl-lucid");
    symlink(program("lucid")?, &plugin)?;
    succeed(Command::new(plugin).arg("manual").arg(&pages))?;
    // lucid-init is minimal and has only `--help`.
    let pages = out.join("man/man8");
    fs::create_dir_all(&pages)?;
    let page = Path::new(ROOT).join("bins/lucid-init/lucid-init.8");
    fs::copy(page, pages.join("lucid-init.8"))?;
    println!("{}", out.display());
    Ok(())
}
