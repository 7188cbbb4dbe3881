//! Privileges in security contexts.

use lucid_text::json::{Error, Reader, Text};

/// The fields of a `securityContext` that can allow a container to bypass a chain; other fields are ignored. A value
/// of the wrong type, which the API server rejects, counts as absent.
#[derive(Debug, Clone, Default)]
pub struct Privileges<'a> {
    json: &'a str,
    run_as_user: Option<Option<i64>>,
    run_as_non_root: Option<Option<bool>>,
    privileged: Option<Option<bool>>,
    allow_privilege_escalation: Option<Option<bool>>,
    proc_mount: Option<Text<'a>>,
    capabilities: Option<Capabilities<'a>>,
    se_linux_options: Option<&'a str>,
}

#[derive(Debug, Clone, Default)]
struct Capabilities<'a> {
    add: Option<Vec<Text<'a>>>,
    drop: Option<Vec<Text<'a>>>,
}

impl<'a> Capabilities<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut capabilities = Self::default();
        reader.object(|reader, key| match key {
            "add" => reader.member(&mut capabilities.add, |reader| reader.list(Reader::text)),
            "drop" => reader.member(&mut capabilities.drop, |reader| reader.list(Reader::text)),
            _ => reader.skip(),
        })?;
        Ok(capabilities)
    }
}

impl<'a> Privileges<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut view = Self::default();
        let start = reader.start();
        reader.object(|reader, key| match key {
            "runAsUser" => reader.member(&mut view.run_as_user, Reader::lenient),
            "runAsNonRoot" => reader.member(&mut view.run_as_non_root, Reader::lenient),
            "privileged" => reader.member(&mut view.privileged, Reader::lenient),
            "allowPrivilegeEscalation" => {
                reader.member(&mut view.allow_privilege_escalation, Reader::lenient)
            }
            "procMount" => reader.member(&mut view.proc_mount, Reader::text),
            "capabilities" => reader.member(&mut view.capabilities, Capabilities::read),
            "seLinuxOptions" => reader.member(&mut view.se_linux_options, Reader::raw),
            _ => reader.skip(),
        })?;
        view.json = reader.since(start);
        Ok(view)
    }

    pub(crate) fn json(&self) -> &'a str {
        self.json
    }

    pub(crate) fn se_linux_options(&self) -> Option<&str> {
        self.se_linux_options
    }

    /// `runAsUser`; if absent, the pod's value applies.
    pub fn run_as_user(&self) -> Option<i64> {
        self.run_as_user.flatten()
    }

    /// `runAsNonRoot`; if absent, the pod's value applies.
    pub fn run_as_non_root(&self) -> Option<bool> {
        self.run_as_non_root.flatten()
    }

    /// `privileged`; `false` if absent.
    pub fn is_privileged(&self) -> bool {
        self.privileged.flatten().unwrap_or_default()
    }

    /// `allowPrivilegeEscalation`.
    pub fn allows_privilege_escalation(&self) -> Option<bool> {
        self.allow_privilege_escalation.flatten()
    }

    /// `procMount`; `Default` if absent.
    pub fn proc_mount(&self) -> &str {
        self.proc_mount.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("Default")
    }

    /// `capabilities.add`, without the prefix `CAP_`, which container runtimes also accept.
    pub fn added(&self) -> impl Iterator<Item = &str> {
        let added = self.capabilities.iter().flat_map(|capabilities| capabilities.add.iter().flatten());
        added.map(|name| without_prefix(name))
    }

    /// Number of names in `capabilities.add` and `capabilities.drop`.
    pub(crate) fn capabilities(&self) -> usize {
        let lists = self.capabilities.iter().flat_map(|it| [&it.add, &it.drop]);
        lists.flatten().flatten().count()
    }

    /// Returns `true` if `capabilities.drop` names this capability or `ALL`. Names with the prefix `CAP_` do not
    /// count: containerd prepends the prefix again and drops nothing.
    pub fn drops(&self, capability: &str) -> bool {
        let dropped = self.capabilities.iter().flat_map(|capabilities| capabilities.drop.iter().flatten());
        dropped.map(|name| &**name).any(|name| is_dropped(name, capability))
    }
}

/// Returns `true` if `name` in `capabilities.drop` drops the capability.
pub(crate) fn is_dropped(name: &str, capability: &str) -> bool {
    name.eq_ignore_ascii_case(capability) || name.eq_ignore_ascii_case("ALL")
}

pub(crate) fn without_prefix(name: &str) -> &str {
    match name.get(..4) {
        Some(prefix) if prefix.eq_ignore_ascii_case("CAP_") => &name[4..],
        _ => name,
    }
}
