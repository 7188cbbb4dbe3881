//! `cargo xtask manual`: man pages and completions of `lucid`, in the folders used by packages.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lucid_e2e::{Error, program};

use crate::command::{ROOT, succeed};

/// Shells, with the file of the completions.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/lucid"),
    ("zsh", "zsh/site-functions/_lucid"),
    ("fish", "fish/vendor_completions.d/lucid.fish"),
];

/// Options of `cargo xtask manual`.
#[derive(Debug, clap::Args)]
pub(crate) struct Manual {
    /// Output folder.
    #[arg(long, value_name = "DIR", default_value = "target/manual")]
    out: PathBuf,
}

pub(crate) fn run(options: &Manual) -> Result<(), Error> {
    write(&options.out)?;
    println!("{}", options.out.display());
    Ok(())
}

pub(crate) fn write(out: &Path) -> Result<(), Error> {
    let lucid = program("lucid")?;
    succeed(Command::new(&lucid).arg("manual").arg(out.join("man/man1")))?;
    for (shell, file) in SHELLS {
        let file = out.join(file);
        fs::create_dir_all(file.parent().unwrap_or(out))?;
        let script = File::create(file)?;
        succeed(Command::new(&lucid).args(["completions", shell]).stdout(Stdio::from(script)))?;
    }
    // lucid-init is minimal and has only `--help`.
    let pages = out.join("man/man8");
    fs::create_dir_all(&pages)?;
    let page = Path::new(ROOT).join("bins/lucid-init/lucid-init.8");
    fs::copy(page, pages.join("lucid-init.8"))?;
    Ok(())
}
