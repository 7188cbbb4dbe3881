//! Identifies the auditors of a pod.

use std::collections::BTreeSet;
use std::ops::Deref;

use lucid_chain::{ContainerView, keys};
use lucid_notary::reference::ReferenceError;
use lucid_notary::{Digest, ImageReference};

use crate::case::Case;
use crate::container_list::{ContainerList, declares_auditor, declares_init};

/// A container that is, or claims to be, an auditor, or an image volume with an auditor's files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditorContainer<'a> {
    /// List that contains it.
    pub list: ContainerList,
    /// Name of the container or volume.
    pub name: &'a str,
    /// Image as written in the pod; empty if the pod names none.
    pub image: &'a str,
    /// Parsed image.
    pub reference: Result<ImageReference, ReferenceError>,
}

impl AuditorContainer<'_> {
    /// Returns the digest to which the image is pinned, if any.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.reference.as_ref().ok()?.digest()
    }
}

/// The auditors of a [`Case`]. Only [`Case::auditors`] creates this type, so that no auditor is left out of the
/// evaluation.
#[derive(Clone, Debug)]
pub struct Auditors<'a>(Vec<AuditorContainer<'a>>);

impl<'a> Deref for Auditors<'a> {
    type Target = [AuditorContainer<'a>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Case<'_> {
    /// Returns the auditors among all containers and image volumes.
    ///
    /// Auditors are identified by the pod spec, not by markers alone, which anyone can add or omit. A container is an
    /// auditor if
    ///
    /// - it has the name of a planned container,
    /// - its image comes from the repository of lucid-init or of an auditor in one of the catalogues,
    /// - it has the name of such an auditor (`lucid-toxicity-auditor`, `lucid-toxicity-auditor-2`), or
    /// - it sets `LUCID_AUDITOR_ID`, or `LUCID_REDIRECT` as lucid-init does.
    ///
    /// An image volume is an auditor if its image comes from such a repository or an auditor mounts it.
    ///
    /// For an updated pod, only auditors whose image the update changes are returned. Images that were accepted
    /// before are not evaluated again: an unavailable Verifier must not block unrelated updates. For a template, the
    /// planned containers and image volumes are returned as they will be injected.
    #[must_use]
    pub fn auditors(&self) -> Auditors<'_> {
        let pod = self.pod();
        let planned: BTreeSet<_> = self.planned().into_iter().collect();
        let planned_names: BTreeSet<_> = planned.iter().map(|(name, _)| *name).collect();
        let image_volumes: BTreeSet<_> = pod.image_volumes().map(|(name, _)| name).collect();
        let will_be_injected = |list, name: &str| !self.is_pod() && planned.contains(&(name, list));
        let mut auditors = Vec::new();
        let mut mounted = BTreeSet::new();
        for list in ContainerList::CONTAINERS {
            for container in list.containers(pod) {
                let image = container.image().unwrap_or_default();
                let reference = image.parse::<ImageReference>();
                if !self.is_auditor(container, reference.as_ref().ok(), &planned_names)
                    || will_be_injected(list, container.name())
                {
                    continue;
                }
                let volumes = container.mounted_volumes();
                mounted.extend(volumes.filter(|volume| image_volumes.contains(volume)));
                if !self.had_image(list, container) {
                    let name = container.name();
                    auditors.push(AuditorContainer { list, name, image, reference });
                }
            }
        }
        for (name, image) in pod.image_volumes() {
            let reference = image.parse::<ImageReference>();
            let known = reference.as_ref().is_ok_and(|image| self.is_image_of_auditor(image));
            // Volumes of a pod are immutable.
            if (known || mounted.contains(name)) && (self.is_created() || !self.is_pod()) {
                let list = ContainerList::ImageVolumes;
                auditors.push(AuditorContainer { list, name, image, reference });
            }
        }
        if let Some(plan) = self.plan().filter(|_| !self.is_pod()) {
            let init = plan.init.iter().map(|init| (init.name.as_str(), init.image.as_str()));
            let images =
                plan.containers.iter().map(|planned| (planned.name.as_str(), planned.auditor.image()));
            let lists = self.planned().into_iter().map(|(_, list)| list);
            let containers = lists.zip(images.chain(init));
            let volumes = plan.containers.iter().flat_map(|planned| planned.image_volumes());
            // Auditors may share a volume.
            let volumes: BTreeSet<_> = volumes.collect();
            let volumes = volumes.into_iter().map(|volume| (ContainerList::ImageVolumes, volume));
            for (list, (name, image)) in containers.chain(volumes) {
                auditors.push(AuditorContainer { list, name, image, reference: image.parse() });
            }
        }
        Auditors(auditors)
    }

    /// Returns `true` if the pod names a digest for an auditor that is planned without one.
    pub(crate) fn has_added_digest(&self, auditor: &AuditorContainer<'_>) -> bool {
        let Some(plan) = self.plan().filter(|_| self.is_pod() && auditor.digest().is_some()) else {
            return false;
        };
        let init = plan.init.iter().map(|init| (init.name.as_str(), init.image.as_str()));
        let mut planned = plan
            .containers
            .iter()
            .map(|planned| (planned.name.as_str(), planned.auditor.image()))
            .chain(init);
        planned.any(|(name, image)| name == auditor.name && !image.contains('@'))
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
            || declares_auditor(container)
            || declares_init(container)
            || planned.contains(name)
    }

    pub(crate) fn is_name_of_auditor(&self, name: &str) -> bool {
        name == keys::INIT_CONTAINER
            || self.catalogues.iter().any(|catalogue| catalogue.auditor_of_container(name).is_some())
    }

    fn is_image_of_auditor(&self, image: &ImageReference) -> bool {
        self.catalogues.iter().any(|catalogue| catalogue.auditor_of_image(image).is_some())
            || image.same_repository(self.init_image)
    }
}
