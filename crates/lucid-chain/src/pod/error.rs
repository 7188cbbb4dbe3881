use lucid_text::Line;
use lucid_text::json;
use snafu::Snafu;

/// The JSON is not a pod that can be planned for.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read the pod at {}: {}", Line(source.path()), Line(&source.problem())))]
pub struct PodError {
    pub(super) source: json::Error,
}
