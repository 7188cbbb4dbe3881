//! Traces of earlier plans in a pod.

use lucid_notary::ImageReference;

use crate::{catalogue::Catalogue, keys, pod::ContainerView, redirect::Redirect};

/// Returns `true` if the container is an auditor. A pod copied from a running one still contains auditors that are
/// not part of its chain.
pub(super) fn is_auditor(found: &ContainerView<'_>, catalogue: &Catalogue) -> bool {
    let of_image = || catalogue.auditor_of_image(&found.image()?.parse::<ImageReference>().ok()?);
    found.env(keys::AUDITOR_ID_ENV).is_some()
        && catalogue.auditor_of_container(found.name()).or_else(of_image).is_some()
}

pub(super) fn installs_rules(found: &ContainerView<'_>) -> bool {
    found.env(keys::REDIRECT_ENV).is_some_and(|redirect| Redirect::from_json(&redirect).is_ok())
}
