//! One look at one object: what it asks for, what it holds, and a write if that differs

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

/// What came of it
#[derive(Debug)]
pub(super) struct Look {
    /// What may change this
    pub(super) on: BTreeSet<Dependency>,
    /// Of the object, for events
    pub(super) uid: Option<String>,
    pub(super) found: Result<Found, Problem>,
}

#[derive(Debug)]
pub(super) enum Found {
    /// There is no such object any more, or it asks for nothing
    NothingAsked,
    /// It holds what it should, or has no place for a CA
    Right,
    /// It was written
    Written { wish: Wish, bundle: TrustBundle, target: Box<ObjectTarget>, before: Reading },
    /// Somebody else wrote it at the same time
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
        // Annotations and places are those of one reading, and the write depends on it: who takes the annotation
        // away meanwhile is heard.
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
