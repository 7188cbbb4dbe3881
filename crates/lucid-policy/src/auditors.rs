//! Which containers are auditors.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;

use lucid_chain::{ContainerView, MountView, PodView, keys};
use lucid_notary::reference::ReferenceError;
use lucid_notary::{Digest, ImageReference};

use crate::case::{Case, says_auditor, says_init};

/// The environment variable by which a container says that it is an auditor.
pub(crate) const AUDITOR_ID: &str = "LUCID_AUDITOR_ID";

/// Which list of the pod's spec a container stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// `spec.containers`
    Containers,
    /// `spec.initContainers`
    InitContainers,
    /// `spec.ephemeralContainers`
    EphemeralContainers,
    /// `spec.volumes[].image`, which is no container, but an image whose files are in the pod (KEP-4639).
    ImageVolumes,
}

impl Place {
    /// The lists of containers.
    pub(crate) const CONTAINERS: [Self; 3] =
        [Self::Containers, Self::InitContainers, Self::EphemeralContainers];

    /// The containers of `pod` that stand there.
    pub(crate) fn of<'p, 'a>(self, pod: &'p PodView<'a>) -> &'p [ContainerView<'a>] {
        match self {
            Self::Containers => pod.containers(),
            Self::InitContainers => pod.init_containers(),
            Self::EphemeralContainers => pod.ephemeral_containers(),
            Self::ImageVolumes => &[],
        }
    }

    /// The containers and init containers of `pod`, among which a chain stands, each with its list.
    pub(crate) fn of_chain<'p, 'a>(
        pod: &'p PodView<'a>,
    ) -> impl Iterator<Item = (Self, &'p ContainerView<'a>)> {
        let places = [Self::Containers, Self::InitContainers].into_iter();
        places.flat_map(move |place| place.of(pod).iter().map(move |found| (place, found)))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Containers => "container",
            Self::InitContainers => "init container",
            Self::EphemeralContainers => "ephemeral container",
            Self::ImageVolumes => "image volume",
        })
    }
}

/// A container that works, or pretends to work, as an auditor, or an image volume with an auditor's files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditorContainer<'a> {
    /// Where it stands.
    pub place: Place,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its image as the pod names it; empty when the pod names none.
    pub image: Cow<'a, str>,
    /// The image, parsed.
    pub reference: Result<ImageReference, ReferenceError>,
}

impl<'a> AuditorContainer<'a> {
    fn new(
        place: Place,
        name: &'a str,
        image: &'a str,
        reference: Result<ImageReference, ReferenceError>,
    ) -> Self {
        Self { place, name: name.into(), image: image.into(), reference }
    }

    /// The digest its image is pinned to.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.reference.as_ref().ok()?.digest()
    }
}

/// The auditors of a [`Case`], which alone can name them: to judge images takes all of them.
#[derive(Clone, Debug)]
pub struct Auditors<'a>(Vec<AuditorContainer<'a>>);

impl<'a> Deref for Auditors<'a> {
    type Target = [AuditorContainer<'a>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Case<'_> {
    /// The auditors among all containers and image volumes.
    ///
    /// What a container is follows from its spec, not from markers that anybody can write or leave out. It is an auditor
    ///
    /// - under the name of a planned container,
    /// - when its image comes from the repository of an auditor in one of the catalogues, or of lucid-init,
    /// - when it bears the name of one (`lucid-toxicity-auditor`, `lucid-toxicity-auditor-2`), or
    /// - when it says so itself by `LUCID_AUDITOR_ID`, or by `LUCID_REDIRECT` as lucid-init does.
    ///
    /// An image volume is one when it comes from such a repository, or when an auditor mounts it.
    ///
    /// Of a pod that is updated only what the update changes is named: the image of a running container is mutable, but
    /// what was judged when it came is not judged again, or a Verifier that is down would block changes that have nothing
    /// to do with auditors. Of a template the planned containers are named as they will be injected.
    #[must_use]
    pub fn auditors(&self) -> Auditors<'_> {
        let pod = self.pod();
        let planned: BTreeSet<_> = self.planned().into_iter().collect();
        let planned_names: BTreeSet<_> = planned.iter().map(|(name, _)| *name).collect();
        let image_volumes: BTreeSet<_> = pod.image_volumes().map(|(name, _)| name).collect();
        let will_be_injected = |place, name: &str| !self.is_pod() && planned.contains(&(name, place));
        let mut auditors = Vec::new();
        let mut mounted = BTreeSet::new();
        for place in Place::CONTAINERS {
            for container in place.of(pod) {
                let image = container.image().unwrap_or_default();
                let reference = image.parse::<ImageReference>();
                if !self.is_auditor(container, reference.as_ref().ok(), &planned_names)
                    || will_be_injected(place, container.name())
                {
                    continue;
                }
                let volumes = container.mounts().map(MountView::volume);
                mounted.extend(volumes.filter(|volume| image_volumes.contains(volume)));
                if !self.stood_with_image(place, container) {
                    auditors.push(AuditorContainer::new(place, container.name(), image, reference));
                }
            }
        }
        for (name, image) in pod.image_volumes() {
            let reference = image.parse::<ImageReference>();
            let known = reference.as_ref().is_ok_and(|image| self.is_image_of_auditor(image));
            // Volumes do not change after a pod is created.
            if (known || mounted.contains(name)) && (self.is_created() || !self.is_pod()) {
                auditors.push(AuditorContainer::new(Place::ImageVolumes, name, image, reference));
            }
        }
        if let Some(plan) = self.plan().filter(|_| !self.is_pod()) {
            let init = plan.init.iter().map(|init| (init.name.as_str(), init.image.as_str()));
            let images = plan.containers.iter().map(|planned| (planned.name.as_str(), planned.image()));
            for ((name, image), (_, place)) in images.chain(init).zip(self.planned()) {
                auditors.push(AuditorContainer::new(place, name, image, image.parse()));
            }
        }
        Auditors(auditors)
    }

    fn is_auditor(
        &self,
        container: &ContainerView<'_>,
        image: Option<&ImageReference>,
        planned: &BTreeSet<&str>,
    ) -> bool {
        let name = container.name();
        image.is_some_and(|image| self.is_image_of_auditor(image))
            || self.is_name_of_auditor(name)
            || says_auditor(container)
            || says_init(container)
            || planned.contains(name)
    }

    /// Whether an auditor of one of the catalogues, or lucid-init, goes by this name.
    pub(crate) fn is_name_of_auditor(&self, name: &str) -> bool {
        name == keys::INIT_CONTAINER
            || self.catalogues.iter().any(|catalogue| catalogue.auditor_of_container(name).is_some())
    }

    fn is_image_of_auditor(&self, image: &ImageReference) -> bool {
        self.catalogues.iter().any(|catalogue| catalogue.auditor_of_image(image).is_some())
            || image.has_repository_of(self.init_image)
    }
}
