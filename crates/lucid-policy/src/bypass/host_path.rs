//! Normalizes and compares `hostPath` volumes.

/// Maximum length of an exemption's path, in bytes. Paths of pods are truncated to 512 characters before the
/// comparison.
pub(crate) const MAX_LENGTH: usize = 512;

/// Resolves `//`, `.` and `..`, removes a trailing `/` and maps `/var/run` to `/run`.
pub(crate) fn normalized(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            // The API server rejects `..` in a `hostPath`.
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let segments =
        segments.strip_prefix(&["var"]).filter(|rest| rest.first() == Some(&"run")).unwrap_or(&segments);
    format!("/{}", segments.join("/"))
}

/// Returns `true` if the path is at or below `folder`. Both must be [normalized].
pub(crate) fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
