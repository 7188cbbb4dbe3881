/// Namespaces that Lucid never touches, besides its own.
const EXCLUDED_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Which namespaces are Lucid's business.
///
/// The registration keeps others away already; this holds when a registration was widened by hand as well.
#[derive(Clone, Debug)]
pub struct Scope {
    own: String,
}

impl Scope {
    /// Everything but the excluded namespaces and `own`, where Lucid itself runs.
    #[must_use]
    pub fn new(own: impl Into<String>) -> Self {
        Self { own: own.into() }
    }

    /// The namespaces that are never touched.
    pub fn excluded(&self) -> impl Iterator<Item = &str> {
        EXCLUDED_NAMESPACES.into_iter().chain([self.own.as_str()])
    }

    /// Whether pods of `namespace` are looked at.
    #[must_use]
    pub fn covers(&self, namespace: &str) -> bool {
        self.excluded().all(|excluded| excluded != namespace)
    }
}
