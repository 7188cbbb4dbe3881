//! The init container that installs the network rules.

use std::{num::NonZeroU16, sync::LazyLock};

use lucid_text::json::to_string;
use serde_json::Value;

use super::{PlannedContainer, model_port::ModelPort};
use crate::{
    catalogue::Resources,
    configuration::Configuration,
    error::Error,
    keys,
    pod::ContainerView,
    redirect::{Hop, Redirect},
    template::{Filled, PLACE, Template},
    volume,
};

/// The injected init container that installs the network rules.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedInit {
    /// Name of the container, unique in the pod.
    pub name: String,
    /// Image reference.
    pub image: String,
    /// `imagePullPolicy`, as the API server derives it from the image.
    pub(crate) image_pull_policy: &'static str,
    pub(crate) redirect: Redirect,
    pub(crate) resources: Resources,
}

impl PlannedInit {
    pub(super) fn new(
        name: String,
        configuration: &Configuration,
        resources: &Resources,
        chain: &[PlannedContainer],
        model: &ModelPort,
        inbound: bool,
        outbound: Option<NonZeroU16>,
    ) -> Result<Self, Error> {
        let image = &configuration.init_image;
        let auditors = chain.iter().filter(|member| member.egress.is_none());
        let egress = chain.iter().find_map(|member| Some((member, member.egress.as_ref()?.intake?)));
        // `Redirect` refuses the uid 0.
        let hop = |member: &PlannedContainer, port| Hop { uid: member.uid.unwrap_or_default(), port };
        let intake = egress.map(|(egress, intake)| hop(egress, intake));
        let hops = intake.into_iter().chain(auditors.map(|auditor| hop(auditor, auditor.port)));
        let mut redirect = Redirect::new(hops, model.port, inbound, outbound)?;
        for (place, model) in model.further.iter().enumerate() {
            let ports = chain.iter().filter_map(|auditor| auditor.further_routes.get(place));
            redirect = redirect.with_route(ports.map(|(port, _)| *port), *model)?;
        }
        let redirect = match egress {
            Some((egress, _)) => redirect.with_exit(egress.port)?,
            None => redirect,
        };
        let resources = resources.clone();
        Ok(Self {
            name,
            image: image.to_string(),
            image_pull_policy: image.pull_policy(),
            redirect,
            resources,
        })
    }

    /// Returns this container with the rules of `found`, which matches if an earlier plan from other inputs created it.
    pub(crate) fn adapted_to(&self, found: &ContainerView<'_>) -> Option<Self> {
        let redirect = Redirect::from_json(&found.env(keys::REDIRECT_ENV)?).ok()?;
        Some(Self { redirect, ..self.clone() })
    }

    /// Returns the core/v1 container, including API server defaults.
    ///
    /// It runs as root, because the kernel grants an added capability to root only unless the program file carries
    /// it. NET_ADMIN is its only capability, and privilege escalation is disabled.
    pub fn manifest(&self) -> Value {
        self.filled().value()
    }

    pub(crate) fn filled(&self) -> Filled<'_> {
        let Self { name, image, image_pull_policy, redirect, resources } = self;
        let (redirect, image, name) = (to_string(&redirect.to_json()), to_string(image), to_string(name));
        let resources = to_string(&resources.manifest());
        TEMPLATE.fill([&redirect, &image, *image_pull_policy, &name, &resources].join("\0"))
    }
}

/// The container, with places for the network rules, image, pull policy, name and resources.
static TEMPLATE: LazyLock<Template> = LazyLock::new(|| {
    Template::new(format!(
        "{{\"env\":[{{\"name\":\"{}\",\"value\":{PLACE}}}],\"image\":{PLACE},\"imagePullPolicy\":\"{PLACE}\",\
         \"name\":{PLACE},\"resources\":{PLACE},\"securityContext\":{{\"allowPrivilegeEscalation\":false,\
         \"capabilities\":{{\"add\":[\"NET_ADMIN\"],\"drop\":[\"ALL\"]}},\"privileged\":false,\
         \"readOnlyRootFilesystem\":true,\"runAsGroup\":0,\"runAsNonRoot\":false,\"runAsUser\":0,\
         \"seccompProfile\":{{\"type\":\"RuntimeDefault\"}}}},\"terminationMessagePath\":\"/dev/termination-log\",\
         \"terminationMessagePolicy\":\"File\",\"volumeMounts\":[{}]}}",
        keys::REDIRECT_ENV,
        volume::NO_TOKEN_MOUNT
    ))
});
