//! Stub.
use std::num::NonZeroU16;
/// Stub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect(String);
impl Redirect {
    /// Stub.
    pub const VARIABLE: &str = "LUCID_REDIRECT";
    /// Stub.
    pub fn new(
        chain: impl IntoIterator<Item = (u32, NonZeroU16)>,
        model: NonZeroU16,
        inbound: bool,
        outbound: impl IntoIterator<Item = NonZeroU16>,
    ) -> Self {
        let chain: Vec<_> =
            chain.into_iter().map(|(uid, port)| serde_json::json!({"uid": uid, "port": port})).collect();
        let outbound: Vec<_> = outbound.into_iter().collect();
        Self(format!(
            r#"{{"version":1,"chain":{},"model":{model},"inbound":{inbound},"outbound":{}}}"#,
            serde_json::json!(chain),
            serde_json::json!(outbound)
        ))
    }
    /// Stub.
    pub fn to_json(&self) -> String {
        self.0.clone()
    }
    /// Stub.
    pub fn from_json(text: &str) -> Result<Self, std::fmt::Error> {
        Ok(Self(text.to_owned()))
    }
}
