//! Runtime dependencies of a program, from its ELF headers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lucid_e2e::Error;
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

/// Direct dependencies of one file.
#[derive(Debug, Default)]
struct Wants {
    /// Path of the dynamic linker.
    interpreter: Option<PathBuf>,
    /// Names of shared libraries (`NEEDED`).
    libraries: Vec<String>,
}

/// Returns the dynamic linker and all shared libraries that `programs` need, transitively.
pub(crate) fn needed(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>, Error> {
    let mut found = BTreeSet::new();
    let mut left: Vec<PathBuf> = programs.to_vec();
    while let Some(path) = left.pop() {
        let Wants { interpreter, libraries } =
            read(&path).map_err(|error| format!("failed to read {}: {error}", path.display()))?;
        let libraries = libraries.iter().map(|name| library(name, &path)).collect::<Result<Vec<_>, _>>()?;
        for path in libraries.into_iter().chain(interpreter) {
            if found.insert(path.clone()) {
                left.push(path);
            }
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Wants, Error> {
    let data = fs::read(path)?;
    let data = data.as_slice();
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let mut wants = Wants::default();
    for segment in header.program_headers(endian, data)? {
        if segment.p_type(endian) == PT_INTERP
            && let Some(interpreter) = segment.interpreter(endian, data)?
        {
            wants.interpreter = Some(std::str::from_utf8(interpreter)?.into());
        }
    }
    let dynamic = header.sections(endian, data)?.dynamic_table(endian, data)?;
    for entry in dynamic.iter().filter(|entry| entry.tag == DT_NEEDED) {
        wants.libraries.push(std::str::from_utf8(dynamic.string(entry)?)?.to_owned());
    }
    Ok(wants)
}

/// Finds the library in the folders that Debian's dynamic linker searches.
fn library(name: &str, wanted_by: &Path) -> Result<PathBuf, Error> {
    let triple = triple();
    let folders = [
        format!("/lib/{triple}"),
        format!("/usr/lib/{triple}"),
        "/lib64".into(),
        "/lib".into(),
        "/usr/lib".into(),
    ];
    let mut paths = folders.iter().map(|folder| Path::new(folder).join(name));
    paths.find(|path| path.exists()).ok_or_else(|| {
        format!("{} needs {name}, which is in none of {}", wanted_by.display(), folders.join(", ")).into()
    })
}

/// Debian's multiarch triple of this architecture.
pub(crate) fn triple() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_libraries_and_the_dynamic_linker_are_found() {
        let found = needed(&["/usr/sbin/nft".into()]).unwrap();
        let has = |name: &str| {
            found.iter().any(|path| path.file_name().unwrap().to_string_lossy().starts_with(name))
        };
        // nft links to libnftables, and libnftables to libnftnl.
        for name in ["libnftables.so", "libnftnl.so", "libc.so", "ld-linux"] {
            assert!(has(name), "{name} in {found:?}");
        }
    }

    #[test]
    fn what_is_no_program_is_told() {
        let message = needed(&["/etc/passwd".into()]).unwrap_err().to_string();
        assert!(message.contains("/etc/passwd"), "{message}");
        let message = library("libnobody.so.1", Path::new("/usr/bin/a")).unwrap_err().to_string();
        assert!(message.contains("libnobody.so.1") && message.contains("/usr/bin/a"), "{message}");
    }
}
