use std::fmt;

use lucid_chain::{Catalogue, ContainerView, PodView};
use lucid_notary::reference::ReferenceError;
use lucid_notary::{Digest, ImageReference};

/// The environment variable by which a container says that it is an auditor.
const AUDITOR_ID: &str = "LUCID_AUDITOR_ID";

/// Which list of the pod's spec a container stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// `spec.containers`
    Containers,
    /// `spec.initContainers`
    InitContainers,
    /// `spec.ephemeralContainers`
    EphemeralContainers,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Containers => "container",
            Self::InitContainers => "init container",
            Self::EphemeralContainers => "ephemeral container",
        })
    }
}

/// A container that works, or pretends to work, as an auditor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditorContainer<'a> {
    /// Where it stands.
    pub place: Place,
    /// Its name.
    pub name: &'a str,
    /// Its image as the pod names it; empty when the pod names none.
    pub image: &'a str,
    /// The image, parsed.
    pub reference: Result<ImageReference, ReferenceError>,
}

impl AuditorContainer<'_> {
    /// The digest its image is pinned to.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.reference.as_ref().ok()?.digest()
    }
}

/// Finds the auditors among all containers of `pod`.
///
/// What a container is follows from its spec, not from markers that anybody can write or leave out: it is an auditor
/// when its image comes from the repository of an auditor in one of the `catalogues`, when it bears the name of one
/// (`lucid-toxicity-auditor`, `lucid-toxicity-auditor-2`), or when it says so itself by `LUCID_AUDITOR_ID`.
#[must_use]
pub fn auditor_containers<'a, 'c>(
    pod: &'a PodView<'a>,
    catalogues: impl IntoIterator<Item = &'c Catalogue>,
) -> Vec<AuditorContainer<'a>> {
    let catalogues: Vec<&Catalogue> = catalogues.into_iter().collect();
    let places = [
        (Place::Containers, pod.containers()),
        (Place::InitContainers, pod.init_containers()),
        (Place::EphemeralContainers, pod.ephemeral_containers()),
    ];
    let all =
        places.into_iter().flat_map(|(place, list)| list.iter().map(move |container| (place, container)));
    all.filter_map(|(place, container)| {
        let image = container.image().unwrap_or_default();
        let reference = image.parse::<ImageReference>();
        let known = |catalogue: &&Catalogue| {
            let by_image = reference.as_ref().is_ok_and(|image| catalogue.auditor_of_image(image).is_some());
            by_image || catalogue.auditor_of_container(container.name()).is_some()
        };
        let is_auditor = catalogues.iter().any(known) || container.env(AUDITOR_ID).is_some();
        is_auditor.then(|| AuditorContainer { place, name: container.name(), image, reference })
    })
    .collect()
}

/// Leaves out the containers that run the same image under the same name in `old` already.
///
/// An update that does not touch an auditor was judged when the auditor came; to judge it again would let a Verifier
/// that is down, or a digest revoked since, block changes that have nothing to do with it.
#[must_use]
pub fn changed_since<'a>(
    auditors: Vec<AuditorContainer<'a>>,
    old: &PodView<'_>,
) -> Vec<AuditorContainer<'a>> {
    let list = |place| match place {
        Place::Containers => old.containers(),
        Place::InitContainers => old.init_containers(),
        Place::EphemeralContainers => old.ephemeral_containers(),
    };
    let stood = |auditor: &AuditorContainer<'_>| {
        let same = |container: &ContainerView<'_>| {
            container.name() == auditor.name && container.image() == Some(auditor.image)
        };
        list(auditor.place).iter().any(same)
    };
    auditors.into_iter().filter(|auditor| !stood(auditor)).collect()
}
