//! Paths of the node.

/// Longest path of an exemption, in bytes. Of a longer path in a pod the rest is not compared.
pub(crate) const LONGEST: usize = 512;

/// The path without `//`, `/./`, `/..` and a `/` at the end, and under one name for `/run` and `/var/run`.
pub(crate) fn normalized(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            // The API server takes none.
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let segments =
        segments.strip_prefix(&["var"]).filter(|rest| rest.first() == Some(&"run")).unwrap_or(&segments);
    format!("/{}", segments.join("/"))
}

/// Whether the path is at or below `folder`; both are [normalized].
pub(crate) fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        for (path, expected) in [
            ("", "/"),
            ("/", "/"),
            ("//var/./lib//kubelet/", "/var/lib/kubelet"),
            ("/srv/../proc", "/proc"),
            ("/../..", "/"),
            ("/var/run/docker.sock", "/run/docker.sock"),
            ("/var/runtime", "/var/runtime"),
        ] {
            assert_eq!(normalized(path), expected, "{path:?}");
        }
    }

    #[test]
    fn a_path_is_within_whole_segments() {
        for (path, folder, expected) in [
            ("/srv/models", "/srv/models", true),
            ("/srv/models/a", "/srv/models", true),
            ("/srv/models-2", "/srv/models", false),
            ("/srv", "/srv/models", false),
            ("/srv", "/", true),
            ("/", "/", true),
        ] {
            assert_eq!(is_within(path, folder), expected, "{path:?} in {folder:?}");
        }
    }
}
