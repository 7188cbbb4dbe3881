const EXCLUDED_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Namespaces that Lucid may touch.
///
/// The registration excludes the others already. This check also applies after manual changes of the registration.
#[derive(Clone, Debug)]
pub struct Scope {
    own: String,
}

impl Scope {
    /// Creates a scope of all namespaces except the excluded ones and `own`, in which Lucid itself runs.
    #[must_use]
    pub fn new(own: impl Into<String>) -> Self {
        Self { own: own.into() }
    }

    /// Returns the namespaces that Lucid never touches.
    pub fn excluded(&self) -> impl Iterator<Item = &str> {
        EXCLUDED_NAMESPACES.into_iter().chain([self.own.as_str()])
    }

    /// Returns `true` if `namespace` is not excluded.
    #[must_use]
    pub fn covers(&self, namespace: &str) -> bool {
        self.excluded().all(|excluded| excluded != namespace)
    }
}
