//! One object of each kind that carries a bundle.

use std::time::SystemTime;

use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use lucid_certs::{
    CertificateAuthority, TrustBundle,
    target::{ObjectTarget, TargetError, TrustTarget},
};
use lucid_e2e::eventually;
use serde_json::{Value, json};

use crate::common::{names, objects::Kind};

pub(crate) const MANAGER: &str = "lucid-certs";
pub(crate) const OTHER_MANAGER: &str = "other";

const NAMESPACE: &str = "default";

pub(crate) struct Subject {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) api: Api<DynamicObject>,
    pub(crate) target: ObjectTarget,
}

impl Subject {
    /// Creates a subject. `word` is part of the name, to keep subjects of a cluster apart.
    pub(crate) fn new(client: &Client, kind: Kind, word: &str) -> Self {
        let (name, api) = (kind.object_name(word), kind.api(client, NAMESPACE));
        let target = target(client, kind, &name);
        Self { kind, name, api, target }
    }

    pub(crate) async fn create(client: &Client, kind: Kind, word: &str) -> Self {
        Self::create_changed(client, kind, word, |_| ()).await
    }

    pub(crate) async fn create_changed(
        client: &Client,
        kind: Kind,
        word: &str,
        change: impl FnOnce(&mut Value),
    ) -> Self {
        let subject = Self::new(client, kind, word);
        let mut manifest = subject.manifest();
        change(&mut manifest);
        subject.make(&manifest).await;
        subject
    }

    pub(crate) async fn make(&self, manifest: &Value) {
        let object = serde_json::from_value(manifest.clone()).unwrap();
        let params = PostParams { field_manager: Some("owner".to_owned()), ..PostParams::default() };
        self.api.create(&params, &object).await.unwrap();
    }

    pub(crate) fn manifest(&self) -> Value {
        self.kind.manifest(&self.name)
    }

    /// JSON pointer of the (first) bundle.
    pub(crate) fn pointer(&self) -> &'static str {
        match self.kind {
            Kind::ConfigMap => "/data/ca.crt",
            kind => kind.pointers()[0],
        }
    }

    pub(crate) fn encoded(&self, content: &[u8]) -> Value {
        self.kind.encode(content)
    }

    pub(crate) async fn overwrite_field(&self, content: Option<&[u8]>) -> Result<(), kube::Error> {
        let patch = match content {
            Some(content) => {
                json!([{ "op": "add", "path": self.pointer(), "value": self.encoded(content) }])
            }
            None => json!([{ "op": "remove", "path": self.pointer() }]),
        };
        self.patch(patch).await
    }

    pub(crate) async fn label(&self, value: &str) {
        self.patch(json!([{ "op": "add", "path": "/metadata/labels", "value": { "by": value } }]))
            .await
            .unwrap();
    }

    pub(crate) async fn patch(&self, patch: Value) -> Result<(), kube::Error> {
        let params = PatchParams { field_manager: Some(OTHER_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
        self.api.patch(&self.name, &params, &patch).await.map(drop)
    }

    pub(crate) async fn object(&self) -> Value {
        serde_json::to_value(self.api.get(&self.name).await.unwrap()).unwrap()
    }

    /// Reads and writes as the driver does. Retries, because the API server may update the status in between.
    pub(crate) async fn heal(&self, bundle: &TrustBundle) {
        let written = eventually("write without conflict", async || {
            let reading = self.target.read().await.unwrap();
            match self.target.write(bundle, &reading).await {
                Err(error @ TargetError::Changed { .. }) => Err(error),
                outcome => Ok(outcome.unwrap()),
            }
        })
        .await;
        assert!(written.holds(bundle), "{written:?}");
        assert!(self.target.read().await.unwrap().holds(bundle));
    }
}

pub(crate) fn target(client: &Client, kind: Kind, name: &str) -> ObjectTarget {
    let client = client.clone();
    match kind {
        Kind::Mutating => ObjectTarget::mutating_webhooks(client, MANAGER, name),
        Kind::Validating => ObjectTarget::validating_webhooks(client, MANAGER, name),
        Kind::Conversion => ObjectTarget::crd_conversion(client, MANAGER, name),
        Kind::ApiService => ObjectTarget::api_service(client, MANAGER, name),
        Kind::ConfigMap => ObjectTarget::config_map(client, MANAGER, NAMESPACE, name),
    }
}

pub(crate) fn authority() -> CertificateAuthority {
    CertificateAuthority::generate(&names(), SystemTime::now()).unwrap()
}
