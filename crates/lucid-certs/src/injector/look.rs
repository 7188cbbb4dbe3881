//! One look at one object: what it asks for, what it holds, and a write if that differs

use std::{collections::BTreeSet, time::SystemTime};

use kube::{
    Client, ResourceExt,
    api::{Patch, PatchParams},
};
use snafu::ResultExt;

use super::{
    FIELD_MANAGER,
    authority::{Authorities, Dependency},
    object::{self, Object},
    problem::{ApiSnafu, Problem},
    wish::Wish,
};
use crate::{bundle::TrustBundle, target::Slot};

pub(super) struct Looker {
    pub(super) client: Client,
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
    Written { wish: Wish, bundle: TrustBundle },
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
        let api = object.api(&self.client);
        let found = api.get_opt(&object.name).await;
        let found = found.with_context(|_| ApiSnafu { action: "get", object: object.to_string() })?;
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
        let held = object::slots(object.kind, &found.data)?;
        if held.is_empty() {
            return Ok(Found::Right);
        }
        let now = SystemTime::now();
        let bundle = self.authorities.find(&wish, now, &mut look.on).await?;
        let wanted: Vec<Slot> = held.iter().map(|slot| object::merged(slot, &bundle, now)).collect();
        if held == wanted {
            return Ok(Found::Right);
        }
        let version = found.resource_version().unwrap_or_default();
        let patch = Patch::Apply(object::patch(object, &version, &wanted));
        // By force: a field that was asked for is ours, whoever wrote it before.
        match api.patch(&object.name, &PatchParams::apply(FIELD_MANAGER).force(), &patch).await {
            Ok(_) => Ok(Found::Written { wish, bundle }),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Ok(Found::Overtaken)
            }
            Err(error) => {
                Err(error).with_context(|_| ApiSnafu { action: "write", object: object.to_string() })
            }
        }
    }
}
