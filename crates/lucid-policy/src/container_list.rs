//! The lists of a pod spec that contain containers and images.

use std::fmt;

use lucid_chain::{ContainerView, PodView, keys};

/// List of the pod spec that contains a container or image volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ContainerList {
    /// `spec.containers`
    Containers,
    /// `spec.initContainers`
    InitContainers,
    /// `spec.ephemeralContainers`
    EphemeralContainers,
    /// `spec.volumes[].image`: an image whose files are mounted into containers (KEP-4639).
    ImageVolumes,
}

impl ContainerList {
    pub(crate) const CONTAINERS: [Self; 3] =
        [Self::Containers, Self::InitContainers, Self::EphemeralContainers];

    pub(crate) fn containers<'p, 'a>(self, pod: &'p PodView<'a>) -> &'p [ContainerView<'a>] {
        match self {
            Self::Containers => pod.containers(),
            Self::InitContainers => pod.init_containers(),
            Self::EphemeralContainers => pod.ephemeral_containers(),
            Self::ImageVolumes => &[],
        }
    }

    /// Returns the containers and init containers of `pod` with their lists. A chain uses no other lists.
    pub(crate) fn chain_containers<'p, 'a>(
        pod: &'p PodView<'a>,
    ) -> impl Iterator<Item = (Self, &'p ContainerView<'a>)> {
        let lists = [Self::Containers, Self::InitContainers].into_iter();
        lists.flat_map(move |list| list.containers(pod).iter().map(move |found| (list, found)))
    }
}

impl fmt::Display for ContainerList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Containers => "container",
            Self::InitContainers => "init container",
            Self::EphemeralContainers => "ephemeral container",
            Self::ImageVolumes => "image volume",
        })
    }
}

/// Returns `true` if the container declares itself an auditor through `LUCID_AUDITOR_ID`.
pub(crate) fn declares_auditor(container: &ContainerView<'_>) -> bool {
    container.env(keys::AUDITOR_ID_ENV).is_some()
}

/// Returns `true` if the container declares itself lucid-init through `LUCID_REDIRECT`.
pub(crate) fn declares_init(container: &ContainerView<'_>) -> bool {
    container.env(keys::REDIRECT_ENV).is_some()
}
