//! Registers hub and spokes, and checks that every version has a path.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::{ApiResource, GroupVersionKind, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use snafu::{Snafu, ensure};

use super::converter::{Converter, Inner};
use super::paths::{ConversionFn, Version, through_hub};

/// The converter cannot serve the definition: a version has no conversion or two, or a spoke or the
/// CustomResourceDefinition does not fit the hub.
#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub struct ConverterError {
    problem: String,
}

fn mismatch(problem: String) -> ConverterSnafu<String> {
    ConverterSnafu { problem }
}

fn names(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Collects the hub and the spokes of a [`Converter`].
#[must_use = "a builder does nothing before `build`"]
pub struct ConverterBuilder<H> {
    group: String,
    kind: String,
    plural: String,
    versions: Vec<Version<H>>,
    stamp: fn(&mut H, &str),
    /// Group, kind and version of spokes of another group or kind.
    mismatched: Vec<[String; 3]>,
}

impl<H: 'static> fmt::Debug for ConverterBuilder<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConverterBuilder")
            .field("group", &self.group)
            .field("kind", &self.kind)
            .field("versions", &self.names())
            .finish_non_exhaustive()
    }
}

impl Converter {
    /// Starts with the hub, the version that all others convert to and from.
    ///
    /// The hub has to represent everything that the other versions can; it need not be the storage version. A spoke has
    /// to keep the fields that it cannot represent elsewhere, usually in an annotation: `round_trip` of
    /// `lucid-webhook-test` finds lost fields.
    ///
    /// ```
    /// use k8s_openapi::api::autoscaling::{v1, v2};
    /// use lucid_webhook::Converter;
    ///
    /// fn to_v2(old: v1::HorizontalPodAutoscaler) -> Result<v2::HorizontalPodAutoscaler, std::num::ParseIntError> {
    ///     // ... the fields of the specification
    ///     Ok(v2::HorizontalPodAutoscaler { metadata: old.metadata, ..Default::default() })
    /// }
    ///
    /// fn to_v1(new: v2::HorizontalPodAutoscaler) -> v1::HorizontalPodAutoscaler {
    ///     v1::HorizontalPodAutoscaler { metadata: new.metadata, ..Default::default() }
    /// }
    ///
    /// let converter =
    ///     Converter::hub::<v2::HorizontalPodAutoscaler>().spoke(to_v2, to_v1).build_for(["v1", "v2"])?;
    /// # Ok::<(), lucid_webhook::ConverterError>(())
    /// ```
    pub fn hub<H>() -> ConverterBuilder<H>
    where
        H: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static,
    {
        ConverterBuilder::new(ApiResource::erase::<H>(&()), |_, _| ())
    }

    /// Starts with an untyped hub.
    ///
    /// ```
    /// use lucid_webhook::Converter;
    /// use serde_json::{Value, json};
    ///
    /// // Absent fields stay absent, and other fields are kept.
    /// fn renamed(mut object: Value, from: &str, to: &str) -> Value {
    ///     if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    ///         && let Some(value) = spec.remove(from)
    ///     {
    ///         spec.insert(to.to_owned(), value);
    ///     }
    ///     object
    /// }
    ///
    /// let converter = Converter::dynamic("example.com", "Tab", "v2")
    ///     .spoke_dynamic(
    ///         "v1",
    ///         |v1: Value| renamed(v1, "lines", "rows"),
    ///         |v2: Value| renamed(v2, "rows", "lines"),
    ///     )
    ///     .build_for(["v1", "v2"])?;
    /// let v1 = json!({"apiVersion": "example.com/v1", "kind": "Tab", "metadata": {"name": "a"}, "spec": {"lines": 3}});
    /// assert_eq!(converter.convert_object(&v1, "v2")?["spec"], json!({"rows": 3}));
    /// # Ok::<(), lucid_webhook::BoxError>(())
    /// ```
    pub fn dynamic(
        group: impl Into<String>,
        kind: impl Into<String>,
        version: impl Into<String>,
    ) -> ConverterBuilder<Value> {
        let kind = GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
        ConverterBuilder::new(ApiResource::from_gvk(&kind), |hub, api_version| {
            if let Value::Object(hub) = hub {
                hub.insert("apiVersion".to_owned(), api_version.into());
            }
        })
    }
}

impl<H: 'static> ConverterBuilder<H> {
    fn new(resource: ApiResource, stamp: fn(&mut H, &str)) -> Self
    where
        H: Serialize + DeserializeOwned,
    {
        let ApiResource { group, kind, plural, version, .. } = resource;
        Self { group, kind, plural, versions: vec![Version::hub(version)], stamp, mismatched: Vec::new() }
    }

    /// Adds a version. The functions are infallible or return a `Result` of any error. `From` works as well:
    /// `.spoke::<V1>(V2::from, V1::from)`.
    ///
    /// They receive the whole object without `metadata.managedFields`, and have to keep its metadata. Of the returned
    /// metadata, only labels and annotations are used; missing labels are removed. A changed name, namespace or uid
    /// fails the conversion; everything else is restored from the original. (These are the rules of the API server.)
    ///
    /// Fields required by the schema may be missing, see [partial objects](Converter#partial-objects).
    /// `lucid_webhook_test::round_trip::partial` tests that such objects are converted.
    ///
    /// One object that cannot be converted fails every LIST in another version. So accept what users can write into
    /// annotations. An object nested more than 127 levels deep does not decode (`serde_json`'s limit). The
    /// definition's schema should therefore limit nesting, which
    /// `x-kubernetes-preserve-unknown-fields` and `type: object` without listed fields do not.
    pub fn spoke<S>(mut self, to_hub: impl ConversionFn<S, H>, from_hub: impl ConversionFn<H, S>) -> Self
    where
        S: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static,
    {
        let [group, kind, version] = [S::group(&()), S::kind(&()), S::version(&())].map(String::from);
        if group != self.group || kind != self.kind {
            self.mismatched.push([group, kind, version.clone()]);
        }
        self.versions.push(Version::spoke(version, to_hub, from_hub));
        self
    }

    /// Adds an untyped version; see [`Self::spoke`]. The functions may leave `apiVersion` and `kind` alone: they are
    /// set automatically.
    pub fn spoke_dynamic(
        mut self,
        version: impl Into<String>,
        to_hub: impl ConversionFn<Value, H>,
        from_hub: impl ConversionFn<H, Value>,
    ) -> Self {
        self.versions.push(Version::spoke(version.into(), to_hub, from_hub));
        self
    }

    /// Builds the converter for a CustomResourceDefinition. Every version that is served, stored, or in
    /// `status.storedVersions` has to be registered. Further versions may be, for definitions older than this program.
    ///
    /// `spec.conversion` may be absent, as before the webhook is set up; a strategy has to be `Webhook`.
    ///
    /// # Errors
    ///
    /// A [`ConverterError`] if a version has no path, or if the definition is of another kind or would not call this
    /// webhook.
    pub fn build(self, definition: &CustomResourceDefinition) -> Result<Converter, ConverterError> {
        let spec = &definition.spec;
        let (group, kind) = (&self.group, &self.kind);
        let (found_group, found_kind) = (&spec.group, &spec.names.kind);
        let definition_of = format!("the CustomResourceDefinition of {kind}.{group}");
        ensure!(
            group == found_group && kind == found_kind,
            mismatch(format!(
                "the CustomResourceDefinition is of {found_kind}.{found_group}, the converter of {kind}.{group}"
            ))
        );
        if let Some(conversion) = &spec.conversion {
            let strategy = &conversion.strategy;
            ensure!(
                strategy == "Webhook",
                mismatch(format!(
                    "{definition_of} has spec.conversion.strategy {strategy:?}: the API server calls a webhook only with \
                     \"Webhook\""
                ))
            );
            if let Some(webhook) = &conversion.webhook {
                // The API server uses the first version that it supports, including v1beta1.
                let found = &webhook.conversion_review_versions;
                let first = found.iter().find(|version| ["v1", "v1beta1"].contains(&version.as_str()));
                ensure!(
                    first.is_some_and(|version| version == "v1"),
                    mismatch(format!(
                        "{definition_of} has spec.conversion.webhook.conversionReviewVersions {}; expected v1 in \
                         the first place",
                        names(found)
                    ))
                );
            }
        }
        let live = spec.versions.iter().filter(|version| version.served || version.storage);
        let stored = definition.status.iter().flat_map(|status| status.stored_versions.iter().flatten());
        let needed: Vec<_> = live.map(|version| &version.name).chain(stored).cloned().collect();
        Self { plural: spec.names.plural.clone(), ..self }.build_for(needed)
    }

    /// Builds the converter for these versions, such as `["v1", "v2"]`. The plural of an untyped resource is guessed
    /// from its kind.
    ///
    /// # Errors
    ///
    /// A [`ConverterError`] if a version has no path, or the registered ones are inconsistent.
    pub fn build_for(
        self,
        versions: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Converter, ConverterError> {
        let registered = self.names();
        let Self { group, kind, plural, versions: paths, stamp, mismatched } = self;
        if let Some([found_group, found_kind, version]) = mismatched.first() {
            let problem = format!(
                "the spoke {found_kind}.{found_group} in {version} is not of the hub's {kind}.{group}"
            );
            return mismatch(problem).fail();
        }
        let mut seen = BTreeSet::new();
        if let Some(version) = registered.iter().find(|version| !seen.insert(*version)).cloned() {
            let registered = names(&registered);
            let problem =
                format!("{version} of {kind}.{group} is registered twice; registered are {registered}");
            return mismatch(problem).fail();
        }
        let needed: BTreeSet<String> = versions.into_iter().map(Into::into).collect();
        let missing: Vec<_> = needed.into_iter().filter(|version| !registered.contains(version)).collect();
        ensure!(
            missing.is_empty(),
            mismatch(format!(
                "no conversion is registered for {} of {kind}.{group}; registered are {} (the first is the hub)",
                names(&missing),
                names(&registered),
            ))
        );
        let hub = registered.first().map(|version| format!("{group}/{version}")).unwrap_or_default();
        let convert = through_hub(paths, move |object| stamp(object, &hub));
        Ok(Converter { inner: Arc::new(Inner { group, kind, plural, versions: registered, convert }) })
    }

    fn names(&self) -> Vec<String> {
        self.versions.iter().map(|version| version.name.clone()).collect()
    }
}
