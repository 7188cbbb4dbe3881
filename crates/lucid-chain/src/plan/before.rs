//! Traces of earlier plans in a pod.

use std::num::NonZeroU16;

use lucid_notary::ImageReference;

use super::container::local_port;
use crate::{
    catalogue::{Auditor, Catalogue},
    keys,
    pod::{ContainerView, PodView},
    redirect::Redirect,
};

/// Returns `true` if the container is an auditor. A pod copied from a running one still contains auditors that are
/// not part of its chain.
pub(super) fn is_auditor(found: &ContainerView<'_>, catalogue: &Catalogue) -> bool {
    let of_image = || catalogue.auditor_of_image(&found.image()?.parse::<ImageReference>().ok()?);
    found.env(keys::AUDITOR_ID_ENV).is_some()
        && catalogue.auditor_of_container(found.name()).or_else(of_image).is_some()
}

/// Returns `true` if the container installs network rules, as `lucid-init` does.
pub(super) fn installs_rules(found: &ContainerView<'_>) -> bool {
    found.env(keys::REDIRECT_ENV).is_some_and(|redirect| Redirect::from_json(&redirect).is_ok())
}

/// Returns the container name of the last auditor and the port that it forwards to, if it is already in the pod.
///
/// A forged value gains nothing: pod authors also choose the model's port by the ports that their containers declare.
pub(super) fn forwarded_to<'n>(
    pod: &PodView<'_>,
    native: bool,
    chain: &[&Auditor],
    names: &'n [String],
) -> Option<(&'n str, NonZeroU16)> {
    let (auditor, name) = (chain.last()?, names.last()?);
    let list = if native { pod.init_containers() } else { pod.containers() };
    let found = list.iter().find(|found| found.name() == name)?;
    let ours =
        found.image() == Some(auditor.image()) && found.env(keys::AUDITOR_ID_ENV).as_deref() == Some(name);
    let port = local_port(&found.env("LUCID_CHAIN_NEXT")?)?;
    ours.then_some((name, port))
}
