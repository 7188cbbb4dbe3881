//! Reconciliation of a single object.

use std::{collections::BTreeSet, time::SystemTime};

use kube::{Client, ResourceExt, runtime::events::Recorder};

use super::{
    annotation::CaReference,
    authority::{Authorities, Dependency},
    object::{self, Object},
    problem::Problem,
};
use crate::{
    bundle::TrustBundle,
    target::{ObjectTarget, Reading, Slot, TargetError},
};

pub(super) struct Reconciler {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) authorities: Authorities,
}

#[derive(Debug)]
pub(super) struct Reconciliation {
    /// Objects that the result depends on.
    pub(super) dependencies: BTreeSet<Dependency>,
    pub(super) uid: Option<String>,
    pub(super) outcome: Result<Outcome, Problem>,
}

#[derive(Debug)]
pub(super) enum Outcome {
    /// The object does not exist or has no annotation.
    NotRequested,
    /// The bundle is up to date, or the object has no field for one.
    UpToDate,
    Written {
        reference: CaReference,
        bundle: TrustBundle,
        target: Box<ObjectTarget>,
        before: Reading,
    },
    /// Another client changed the object at the same time.
    Conflict,
}

impl Reconciler {
    pub(super) async fn reconcile(&self, object: &Object) -> Reconciliation {
        let mut result =
            Reconciliation { dependencies: BTreeSet::new(), uid: None, outcome: Ok(Outcome::NotRequested) };
        result.outcome = self.try_reconcile(object, &mut result).await;
        result
    }

    async fn try_reconcile(&self, object: &Object, result: &mut Reconciliation) -> Result<Outcome, Problem> {
        let target = object.target(&self.client, &self.recorder);
        let found = target.get().await?;
        let Some(found) = found.filter(|found| found.metadata.deletion_timestamp.is_none()) else {
            return Ok(Outcome::NotRequested);
        };
        result.uid = found.uid();
        // Annotations and slots are from one reading, and the write is conditional on it: removing the
        // annotation meanwhile causes a conflict.
        let Some(reference) = CaReference::of(object.kind, found.annotations())? else {
            return Ok(Outcome::NotRequested);
        };
        if reference == CaReference::OpenShift && !self.authorities.knows_openshift() {
            return Ok(Outcome::NotRequested);
        }
        let before = target.reading(&found)?;
        let Reading::Present { version, slots, .. } = &before else { return Ok(Outcome::UpToDate) };
        let now = SystemTime::now();
        let bundle = self.authorities.find(&reference, now, &mut result.dependencies).await?;
        let wanted: Vec<Slot> = slots.iter().map(|slot| object::merged(slot, &bundle, now)).collect();
        if *slots == wanted {
            return Ok(Outcome::UpToDate);
        }
        match target.apply(&wanted, version).await {
            Ok(_) => Ok(Outcome::Written { reference, bundle, target: Box::new(target), before }),
            Err(TargetError::Changed { .. }) => Ok(Outcome::Conflict),
            Err(error) => Err(error.into()),
        }
    }
}
