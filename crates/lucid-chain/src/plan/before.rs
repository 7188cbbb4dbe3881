//! What earlier plannings left in the pod.

use std::num::NonZeroU16;

use lucid_notary::ImageReference;

use super::container::local_port;
use crate::{
    catalogue::{Auditor, Catalogue},
    keys,
    pod::{ContainerView, PodView},
    redirect::Redirect,
};

/// Whether the container is an auditor, though not of the present chain: a pod that was copied from a running one brings
/// the auditors of that one along.
pub(super) fn is_auditor(found: &ContainerView<'_>, catalogue: &Catalogue) -> bool {
    let of_image = || catalogue.auditor_of_image(&found.image()?.parse::<ImageReference>().ok()?);
    found.env("LUCID_AUDITOR_ID").is_some()
        && catalogue.auditor_of_container(found.name()).or_else(of_image).is_some()
}

/// Whether the container installs network rules, as `lucid-init` does.
pub(super) fn installs_rules(found: &ContainerView<'_>) -> bool {
    found.env(keys::REDIRECT_ENV).is_some_and(|redirect| Redirect::from_json(redirect).is_ok())
}

/// Where the last auditor, if it is in the pod already, forwards to. Somebody may have forged that, to no avail: where
/// the chain ends is the pod author's to say anyway, by [`keys::TARGET_PORT`](crate::keys::TARGET_PORT).
pub(super) fn forwarded_to<'n>(
    pod: &PodView<'_>,
    native: bool,
    chain: &[&Auditor],
    names: &'n [String],
) -> Option<(&'n str, NonZeroU16)> {
    let (auditor, name) = (chain.last()?, names.last()?);
    let list = if native { pod.init_containers() } else { pod.containers() };
    let found = list.iter().find(|found| found.name() == name)?;
    let ours = found.image() == Some(auditor.image()) && found.env("LUCID_AUDITOR_ID") == Some(name);
    let port = local_port(found.env("LUCID_CHAIN_NEXT")?)?;
    ours.then_some((name, port))
}
