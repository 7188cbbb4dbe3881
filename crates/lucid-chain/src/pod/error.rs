use lucid_text::Line;
use lucid_text::json;
use snafu::Snafu;

/// The JSON is not a pod that can be planned for.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read the pod at {}: {}", Line(self.path()), Line(&source.problem())))]
pub struct PodError {
    pub(super) source: json::Error,
}

impl PodError {
    /// Returns the JSON path of the invalid value, such as `spec.containers[0].ports[1].containerPort`; `.` is the
    /// whole document.
    #[must_use]
    pub fn path(&self) -> &str {
        self.source.path()
    }
}
