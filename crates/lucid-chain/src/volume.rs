//! Volumes and volume mounts of a pod.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json, value::RawValue};

use crate::pod::{Object, PodError, Reader, Text};

/// Path at which the ServiceAccount admission plugin mounts the token, unless a container already has a mount there.
pub(crate) const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Maximum size of a source that is parsed, in bytes of JSON.
const LONGEST_SOURCE: usize = 4096;

/// JSON of the mount that hides the ServiceAccount token, at [`TOKEN_PATH`], from a container.
pub(crate) const NO_TOKEN_MOUNT: &str = "{\"mountPath\":\"/var/run/secrets/kubernetes.io/serviceaccount\",\
                                         \"name\":\"lucid-no-token\",\"readOnly\":true}";

/// JSON of the volume for [`NO_TOKEN_MOUNT`]: an empty `downwardAPI`, which containers cannot write to.
pub(crate) const NO_TOKEN_VOLUME: &str = "{\"downwardAPI\":{},\"name\":\"lucid-no-token\"}";

/// One entry of `spec.volumes`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeView<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    projected: Option<&'a RawValue>,
    #[serde(borrow)]
    config_map: Option<&'a RawValue>,
    #[serde(borrow)]
    secret: Option<&'a RawValue>,
    #[serde(rename = "downwardAPI")]
    downward_api: Option<Object<DownwardApi>>,
    #[serde(borrow)]
    image: Option<Object<Image<'a>>>,
    #[serde(borrow)]
    host_path: Option<Object<HostPath<'a>>>,
}

#[derive(Debug, Clone, Deserialize)]
struct DownwardApi {
    items: Option<Vec<IgnoredAny>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image<'a> {
    #[serde(borrow)]
    reference: Option<Text<'a>>,
    #[serde(borrow)]
    pull_policy: Option<Text<'a>>,
}

#[derive(Debug, Clone, Deserialize)]
struct HostPath<'a> {
    #[serde(borrow)]
    path: Option<Text<'a>>,
}

impl VolumeView<'_> {
    /// `name`; empty when absent.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// `image.reference` of an image volume (KEP-4639); empty if the volume has none, `None` for other volumes.
    pub(crate) fn image(&self) -> Option<&str> {
        let Object(image) = self.image.as_ref()?;
        Some(image.reference.as_deref().unwrap_or_default())
    }

    /// `hostPath.path`; empty if the volume has none, `None` for other volumes.
    pub(crate) fn host_path(&self) -> Option<&str> {
        let Object(host_path) = self.host_path.as_ref()?;
        Some(host_path.path.as_deref().unwrap_or_default())
    }

    /// Returns `true` if the source is that of `planned`, the JSON of a core/v1 volume. A `downwardAPI` is planned without items, and the
    /// plugin AlwaysPullImages may have changed the pull policy of an image. The API server rejects several sources.
    pub(crate) fn is_planned(&self, planned: &str) -> bool {
        let planned: Value = serde_json::from_str(planned).unwrap_or_default();
        let source = |key: &str| planned.get(key).filter(|source| !source.is_null());
        let is_same = |found: Option<&RawValue>, planned: &Value| {
            let json = found.map(RawValue::get).filter(|json| json.len() <= LONGEST_SOURCE);
            json.and_then(|json| serde_json::from_str::<Value>(json).ok()).as_ref() == Some(planned)
        };
        if let Some(config_map) = source("configMap") {
            is_same(self.config_map, config_map)
        } else if let Some(secret) = source("secret") {
            is_same(self.secret, secret)
        } else if let Some(image) = source("image") {
            self.image.as_ref().is_some_and(|Object(found)| {
                let policy = found.pull_policy.as_deref().unwrap_or_default();
                image["reference"] == *self.image().unwrap_or_default()
                    && (policy == "Always" || image["pullPolicy"] == *policy)
            })
        } else {
            let downward_api = self.downward_api.as_ref();
            downward_api.is_some_and(|Object(it)| it.items.as_ref().is_none_or(Vec::is_empty))
        }
    }

    /// Returns `true` for a `projected` volume that holds only ServiceAccount tokens. With `with_api_access`, the
    /// other sources that the ServiceAccount admission plugin adds are accepted too: the CA certificate of the API
    /// server and the namespace.
    pub(crate) fn has_tokens(&self, with_api_access: bool) -> bool {
        let json = self.projected.map(RawValue::get).filter(|json| json.len() <= LONGEST_SOURCE);
        let Some(projected) = json.and_then(|json| serde_json::from_str::<Value>(json).ok()) else {
            return false;
        };
        let authority = json!({"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]});
        let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
        let namespace = json!({"items": [{"path": "namespace", "fieldRef": field}]});
        let sources = projected["sources"].as_array().into_iter().flatten();
        sources.filter_map(Value::as_object).flatten().all(|(kind, source)| match kind.as_str() {
            "serviceAccountToken" => true,
            "configMap" => with_api_access && *source == authority,
            "downwardAPI" => with_api_access && *source == namespace,
            _ => source.is_null(),
        })
    }
}

/// One entry of a container's `volumeMounts`.
#[derive(Debug, Clone, Default)]
pub struct MountView<'a> {
    name: Option<Text<'a>>,
    mount_path: Option<Text<'a>>,
}

impl<'a> MountView<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, PodError> {
        let mut view = Self::default();
        reader.object(|reader, key| match key {
            "name" => reader.member(&mut view.name, Reader::text),
            "mountPath" => reader.member(&mut view.mount_path, Reader::text),
            _ => reader.skip(),
        })?;
        Ok(view)
    }

    /// `name` of the mounted volume; empty when absent.
    pub fn volume(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns `true` for a mount at the path of the ServiceAccount token.
    pub(crate) fn is_token(&self) -> bool {
        self.mount_path.as_deref().is_some_and(|path| path.trim_end_matches('/') == TOKEN_PATH)
    }
}
