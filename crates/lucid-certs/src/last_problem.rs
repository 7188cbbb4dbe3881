//! Deduplication of log messages about persistent problems.

#[derive(Debug, Default)]
pub(crate) struct LastProblem(Option<String>);

impl LastProblem {
    /// Records `problem`. Returns `true` if it differs from the last one and has to be logged.
    pub(crate) fn is_new(&mut self, problem: &str) -> bool {
        let is_new = self.0.as_deref() != Some(problem);
        self.0 = Some(problem.to_owned());
        is_new
    }

    /// Clears the problem. Returns `true` if there was one.
    pub(crate) fn resolve(&mut self) -> bool {
        self.0.take().is_some()
    }
}
