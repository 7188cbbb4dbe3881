//! Reconciliation of a single object.

use std::{collections::BTreeSet, time::SystemTime};

use kube::{Client, ResourceExt, runtime::events::Recorder};

use super::{
    authority::{Authorities, Dependency},
    object::{self, Object},
    problem::Problem,
    wish::Wish,
};
use crate::{
    bundle::TrustBundle,
    target::{ObjectTarget, Reading, Slot, TargetError},
};

pub(super) struct Looker {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) authorities: Authorities,
}

/// Result of a reconciliation.
#[derive(Debug)]
pub(super) struct Look {
    /// Objects that the result depends on.
    pub(super) on: BTreeSet<Dependency>,
    /// UID of the object, for events.
    pub(super) uid: Option<String>,
    pub(super) found: Result<Found, Problem>,
}

#[derive(Debug)]
pub(super) enum Found {
    /// The object does not exist or has no annotation.
    NothingAsked,
    /// The bundle is up to date, or the object has no field for one.
    Right,
    /// The bundle was written.
    Written { wish: Wish, bundle: TrustBundle, target: Box<ObjectTarget>, before: Reading },
    /// Another client changed the object at the same time.
    Overtaken,
}

impl Looker {
    pub(super) async fn look(&self, object: &Object) -> Look {
        let mut look = Look { on: BTreeSet::new(), uid: None, found: Ok(Found::NothingAsked) };
        look.found = self.try_look(object, &mut look).await;
        look
    }

    async fn try_look(&self, object: &Object, look: &mut Look) -> Result<Found, Problem> {
        let target = object.target(&self.client, &self.recorder);
        let found = target.get().await?;
        let Some(found) = found.filter(|found| found.metadata.deletion_timestamp.is_none()) else {
            return Ok(Found::NothingAsked);
        };
        look.uid = found.uid();
        // Annotations and slots are from one reading, and the write is conditional on it: removing the
        // annotation meanwhile causes a conflict.
        let Some(wish) = Wish::of(object.kind, found.annotations())? else { return Ok(Found::NothingAsked) };
        if wish == Wish::OpenShift && !self.authorities.knows_openshift() {
            return Ok(Found::NothingAsked);
        }
        let before = target.reading(&found)?;
        let Reading::Present { version, slots, .. } = &before else { return Ok(Found::Right) };
        let now = SystemTime::now();
        let bundle = self.authorities.find(&wish, now, &mut look.on).await?;
        let wanted: Vec<Slot> = slots.iter().map(|slot| object::merged(slot, &bundle, now)).collect();
        if *slots == wanted {
            return Ok(Found::Right);
        }
        match target.apply(&wanted, version).await {
            Ok(_) => Ok(Found::Written { wish, bundle, target: Box::new(target), before }),
            Err(TargetError::Changed { .. }) => Ok(Found::Overtaken),
            Err(error) => Err(error.into()),
        }
    }
}
