//! Volumes and volume mounts of a pod.

use lucid_text::json::{Error, Reader, Text};
use serde_json::{Value, json};

/// Path at which the ServiceAccount admission plugin mounts the token, unless a container already has a mount there.
pub(crate) const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Maximum size of a source that is parsed, in bytes of JSON.
const LONGEST_SOURCE: usize = 4096;

/// JSON of the mount that hides the ServiceAccount token, at [`TOKEN_PATH`], from a container.
pub(crate) const NO_TOKEN_MOUNT: &str = "{\"mountPath\":\"/var/run/secrets/kubernetes.io/serviceaccount\",\
                                         \"name\":\"lucid-no-token\",\"readOnly\":true}";

/// JSON of the volume for [`NO_TOKEN_MOUNT`]: an empty `downwardAPI`, which containers cannot write to.
pub(crate) const NO_TOKEN_VOLUME: &str = "{\"downwardAPI\":{},\"name\":\"lucid-no-token\"}";

#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeView<'a> {
    name: Option<Text<'a>>,
    projected: Option<&'a str>,
    config_map: Option<&'a str>,
    secret: Option<&'a str>,
    /// `true` if it has no items.
    downward_api: Option<bool>,
    image: Option<Image<'a>>,
    host_path: Option<Text<'a>>,
}

#[derive(Debug, Clone, Default)]
struct Image<'a> {
    reference: Option<Text<'a>>,
    pull_policy: Option<Text<'a>>,
}

impl<'a> Image<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut image = Self::default();
        reader.object(|reader, key| match key {
            "reference" => reader.member(&mut image.reference, Reader::text),
            "pullPolicy" => reader.member(&mut image.pull_policy, Reader::text),
            _ => reader.skip(),
        })?;
        Ok(image)
    }
}

impl<'a> VolumeView<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut view = Self::default();
        reader.object(|reader, key| match key {
            "name" => reader.member(&mut view.name, Reader::text),
            "projected" => reader.member(&mut view.projected, Reader::raw),
            "configMap" => reader.member(&mut view.config_map, Reader::raw),
            "secret" => reader.member(&mut view.secret, Reader::raw),
            "downwardAPI" => reader.member(&mut view.downward_api, |reader| {
                let items = reader.only_member("items", |reader| reader.list(Reader::skip))?;
                Ok(items.is_none_or(|items| items.is_empty()))
            }),
            "image" => reader.member(&mut view.image, Image::read),
            "hostPath" => reader.member(&mut view.host_path, |reader| {
                Ok(reader.only_member("path", Reader::text)?.unwrap_or_default())
            }),
            _ => reader.skip(),
        })?;
        Ok(view)
    }

    /// `name`; empty when absent.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// `image.reference` of an image volume (KEP-4639); empty if the volume has none, `None` for other volumes.
    pub(crate) fn image(&self) -> Option<&str> {
        Some(self.image.as_ref()?.reference.as_deref().unwrap_or_default())
    }

    /// `hostPath.path`; empty if the volume has none, `None` for other volumes.
    pub(crate) fn host_path(&self) -> Option<&str> {
        self.host_path.as_deref()
    }

    /// Returns `true` if the source is that of `planned`, the JSON of a core/v1 volume. A `downwardAPI` is planned
    /// without items, and the plugin AlwaysPullImages may have changed the pull policy of an image. The API server
    /// rejects several sources.
    pub(crate) fn is_planned(&self, planned: &str) -> bool {
        let planned: Value = serde_json::from_str(planned).unwrap_or_default();
        let source = |key: &str| planned.get(key).filter(|source| !source.is_null());
        let is_same = |found: Option<&str>, planned: &Value| {
            let json = found.filter(|json| json.len() <= LONGEST_SOURCE);
            json.and_then(|json| serde_json::from_str::<Value>(json).ok()).as_ref() == Some(planned)
        };
        if let Some(config_map) = source("configMap") {
            is_same(self.config_map, config_map)
        } else if let Some(secret) = source("secret") {
            is_same(self.secret, secret)
        } else if let Some(image) = source("image") {
            self.image.as_ref().is_some_and(|found| {
                let policy = found.pull_policy.as_deref().unwrap_or_default();
                image["reference"] == *self.image().unwrap_or_default()
                    && (policy == "Always" || image["pullPolicy"] == *policy)
            })
        } else {
            self.downward_api == Some(true)
        }
    }

    /// Returns `true` for a `projected` volume that holds only ServiceAccount tokens and, with `with_api_access`, the
    /// other sources that the ServiceAccount admission plugin adds.
    pub(crate) fn has_tokens(&self, with_api_access: bool) -> bool {
        let json = self.projected.filter(|json| json.len() <= LONGEST_SOURCE);
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

#[derive(Debug, Clone, Default)]
pub(crate) struct MountView<'a> {
    name: Option<Text<'a>>,
    mount_path: Option<Text<'a>>,
}

impl<'a> MountView<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let mut view = Self::default();
        reader.object(|reader, key| match key {
            "name" => reader.member(&mut view.name, Reader::text),
            "mountPath" => reader.member(&mut view.mount_path, Reader::text),
            _ => reader.skip(),
        })?;
        Ok(view)
    }

    /// `name` of the mounted volume; empty when absent.
    pub(crate) fn volume(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_token(&self) -> bool {
        self.mount_path.as_deref().is_some_and(|path| path.trim_end_matches('/') == TOKEN_PATH)
    }
}
