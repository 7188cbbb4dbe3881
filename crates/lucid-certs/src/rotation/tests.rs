//! Table tests of the rotation steps, and a simulation of the protocol.

mod simulation;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use super::{Ca, Request, Seen, Shared, Step, Timing};
use crate::{fingerprint::Fingerprint, source::Phase, validity::Validity};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + 20_000 * DAY
}

fn timing() -> Timing {
    Timing::default()
}

fn ca(number: u8, at: SystemTime) -> Ca {
    let validity = Validity { not_before: at - HOUR, not_after: at + timing().ca_lifetime };
    Ca { fingerprint: Fingerprint::from([number; 32]), validity }
}

fn trusted_for(authorities: &[(Ca, Duration)]) -> BTreeMap<Fingerprint, Duration> {
    authorities.iter().map(|(ca, trusted)| (ca.fingerprint, *trusted)).collect()
}

static FOR_LONG: LazyLock<BTreeMap<Fingerprint, Duration>> =
    LazyLock::new(|| (0..=u8::MAX).map(|number| (Fingerprint::from([number; 32]), HOUR)).collect());

/// Observations of a replica that has known all former signers for a long time.
fn seen(trusted_for: &BTreeMap<Fingerprint, Duration>, issuer: Option<Ca>) -> Seen<'_> {
    Seen { trusted_for, issuer, superseded_for: &FOR_LONG }
}

fn previous(ca: Ca, retire_at: SystemTime) -> BTreeMap<Ca, SystemTime> {
    BTreeMap::from([(ca, retire_at)])
}

fn request(signer: Ca, urgent: bool) -> Option<Request> {
    Some(Request { signer: signer.fingerprint, urgent })
}

fn after(shared: &Shared, step: Step, new: Ca, now: SystemTime) -> Shared {
    shared.after(step, new, &timing(), now)
}

#[test]
fn rotation_steps_are_taken_in_order() {
    let timing = timing();
    let state = |shared: &Shared, trusted_for, issuer, now| {
        let seen = seen(trusted_for, Some(issuer));
        (shared.step(seen, &timing, now), shared.phase(seen, &timing, now))
    };
    let (old, new) = (ca(1, start()), ca(2, start() + 335 * DAY));
    let nothing = trusted_for(&[]);
    let unsettled = trusted_for(&[(old, 300 * DAY), (new, timing.settle - Duration::from_millis(1))]);
    let settled = trusted_for(&[(old, 300 * DAY), (new, timing.settle)]);

    // 0. Stable
    let shared = Shared::new(old);
    let now = start() + 334 * DAY;
    assert_eq!(state(&shared, &nothing, old, now), (Step::None, Phase::Stable));
    assert_eq!(shared.due_in(seen(&nothing, Some(old)), &timing, now), None);
    assert_eq!(shared.trusted(Some(old), now), BTreeSet::from([old]));

    // 1. Publish
    let now = start() + 335 * DAY + HOUR;
    assert_eq!(state(&shared, &nothing, old, now), (Step::Publish, Phase::Publish));
    let shared = after(&shared, Step::Publish, new, now);
    assert_eq!((shared.signer, shared.next), (old, Some(new)));

    // 2. Trust
    assert_eq!(state(&shared, &nothing, old, now), (Step::None, Phase::Trust));
    assert_eq!(shared.trusted(Some(old), now), BTreeSet::from([old, new]));

    // 3. Settle
    assert_eq!(state(&shared, &unsettled, old, now), (Step::None, Phase::Settle));
    assert_eq!(shared.due_in(seen(&unsettled, Some(old)), &timing, now), Some(Duration::from_millis(1)));

    // 4. Activate
    assert_eq!(state(&shared, &settled, old, now), (Step::Activate, Phase::Activate));
    let shared = after(&shared, Step::Activate, new, now);
    assert_eq!((shared.signer, shared.next), (new, None));
    assert_eq!(shared.previous, previous(old, now + timing.drain));

    // 5. Drain
    assert_eq!(state(&shared, &settled, old, now), (Step::None, Phase::Drain));
    assert_eq!(shared.due_in(seen(&settled, Some(old)), &timing, now), Some(timing.drain));
    assert_eq!(shared.trusted(None, now), BTreeSet::from([old, new]));

    // 6. Retire
    let now = now + timing.drain;
    assert_eq!(state(&shared, &settled, new, now), (Step::Retire, Phase::Retire));
    let shared = after(&shared, Step::Retire, new, now);
    assert_eq!((&shared.previous, &shared.retired), (&BTreeMap::new(), &BTreeSet::from([old])));
    assert_eq!(shared.trusted(Some(old), now), BTreeSet::from([new]));
    assert_eq!(shared.step(seen(&settled, Some(new)), &timing, now), Step::None);

    // Expired CAs need no record.
    let later = old.validity.not_after + HOUR;
    assert_eq!(after(&shared, Step::None, new, later).retired, BTreeSet::new());
}

#[test]
fn the_state_of_the_cas_determines_the_step() {
    let timing = timing();
    let now = start();
    let settled = |ca: Ca| trusted_for(&[(ca, timing.settle)]);
    let good = ca(1, now - DAY);
    let expired = ca(2, now - 366 * DAY);
    let due = ca(3, now - 336 * DAY);
    // The clock was set back after it was issued.
    let early = ca(4, now + 2 * HOUR);
    let next = ca(5, now - HOUR);

    for (signer, next, is_settled, step) in [
        (good, None, false, Step::None),
        (due, None, false, Step::Publish),
        (early, None, false, Step::Publish),
        (expired, None, false, Step::Replace),
        // Nothing is in service, so waiting has no benefit.
        (expired, Some(next), false, Step::Activate),
        (expired, Some(expired), true, Step::Replace),
        (expired, Some(due), true, Step::Replace),
        // An unfit CA is not activated, however long it was trusted.
        (good, Some(expired), true, Step::Publish),
        (good, Some(due), true, Step::Publish),
        (good, Some(early), true, Step::Publish),
        (good, Some(next), false, Step::None),
        (good, Some(next), true, Step::Activate),
        (due, Some(next), true, Step::Activate),
    ] {
        let trusted = next.filter(|_| is_settled).map(settled).unwrap_or_default();
        let shared = Shared { next, ..Shared::new(signer) };
        assert_eq!(shared.step(seen(&trusted, Some(signer)), &timing, now), step, "{shared:?}");
    }
}

#[test]
fn an_expired_signer_is_replaced_immediately() {
    let now = start();
    let (expired, draining, new) = (ca(1, now - 366 * DAY), ca(2, now - 100 * DAY), ca(3, now));
    let shared = Shared {
        next: Some(ca(4, now - 350 * DAY)),
        previous: previous(draining, now + DAY),
        ..Shared::new(expired)
    };
    assert_eq!(shared.phase(seen(&trusted_for(&[]), None), &timing(), now), Phase::Emergency);
    let shared = after(&shared, Step::Replace, new, now);
    assert_eq!((shared.signer, shared.next), (new, None));
    // All certificates of the expired signer have expired, too.
    assert_eq!(shared.previous, previous(draining, now + DAY));
}

#[test]
fn a_request_is_fulfilled_once_another_ca_signs() {
    let now = start();
    let (old, new) = (ca(1, now - DAY), ca(2, now));
    let nothing = trusted_for(&[]);
    let requested = Shared { request: request(old, false), ..Shared::new(old) };
    assert_eq!(requested.step(seen(&nothing, None), &timing(), now), Step::Publish);
    let published = after(&requested, Step::Publish, new, now);
    assert_eq!(published.request, requested.request);
    assert_eq!(after(&published, Step::Activate, new, now).request, None);

    let stale = Shared { request: request(new, true), ..Shared::new(old) };
    assert_eq!(stale.step(seen(&nothing, None), &timing(), now), Step::None);
    assert_eq!(stale.phase(seen(&nothing, None), &timing(), now), Phase::Stable);
}

#[test]
fn an_urgent_request_shortens_the_drain_of_all_former_signers() {
    let timing = timing();
    let now = start();
    let (before, old, new) = (ca(1, now - 9 * DAY), ca(2, now - DAY), ca(3, now));
    let shared = Shared {
        next: Some(new),
        previous: previous(before, now + 9 * DAY),
        request: request(old, true),
        ..Shared::new(old)
    };
    let settled = trusted_for(&[(new, timing.settle)]);
    assert_eq!(shared.phase(seen(&settled, None), &timing, now), Phase::Emergency);
    assert_eq!(shared.step(seen(&settled, None), &timing, now), Step::Activate);

    let shared = after(&shared, Step::Activate, new, now);
    let soon = now + timing.urgent_drain();
    assert_eq!(shared.previous, BTreeMap::from([(before, soon), (old, soon)]));
    let shared = after(&shared, Step::Retire, new, soon);
    assert_eq!(shared.retired, BTreeSet::from([before, old]));
}

#[test]
fn a_fast_clock_does_not_retire_cas_early() {
    let timing = timing();
    let now = start();
    let (old, new) = (ca(1, now - DAY), ca(2, now));
    let shared = Shared { previous: previous(old, now), ..Shared::new(new) };
    let nothing = trusted_for(&[]);
    let ahead = now + 5 * HOUR;
    let second = Duration::from_secs(1);
    for (superseded_for, step, due_in) in [
        (Duration::ZERO, Step::None, timing.urgent_drain()),
        (timing.urgent_drain() - second, Step::None, second),
        (timing.urgent_drain(), Step::Retire, Duration::ZERO),
    ] {
        let superseded_for = BTreeMap::from([(old.fingerprint, superseded_for)]);
        let seen = Seen { trusted_for: &nothing, issuer: Some(new), superseded_for: &superseded_for };
        assert_eq!(shared.step(seen, &timing, ahead), step);
        assert_eq!(shared.due_in(seen, &timing, ahead), Some(due_in));
    }
}

#[test]
fn several_cas_drain_independently() {
    let timing = timing();
    let nothing = trusted_for(&[]);
    let mut shared = Shared::new(ca(0, start()));
    for number in 1..=4u8 {
        let now = start() + u32::from(number) * DAY;
        shared.next = Some(ca(number, now));
        shared = after(&shared, Step::Activate, shared.signer, now);
    }
    assert_eq!(shared.trusted(None, start() + 4 * DAY).len(), 5);
    for number in 0..4u8 {
        let now = start() + u32::from(number + 1) * DAY + timing.drain;
        assert_eq!(shared.step(seen(&nothing, None), &timing, now - HOUR), Step::None);
        assert_eq!(shared.step(seen(&nothing, None), &timing, now), Step::Retire);
        shared = after(&shared, Step::Retire, shared.signer, now);
        assert_eq!(shared.retired.len(), usize::from(number) + 1);
    }
    assert_eq!(shared.trusted(None, start() + 20 * DAY), BTreeSet::from([shared.signer]));
}

#[test]
fn an_unrecorded_issuer_is_recorded() {
    let timing = timing();
    let now = start();
    let (issuer, signer) = (ca(1, now - DAY), ca(2, now));
    let nothing = trusted_for(&[]);
    let unknown = Shared::new(signer);
    for (shared, step) in [
        (unknown.clone(), Step::RecordIssuer(issuer)),
        // `next` does not record use, because it can be replaced.
        (Shared { next: Some(issuer), ..unknown.clone() }, Step::RecordIssuer(issuer)),
        (Shared::new(issuer), Step::None),
        (Shared { previous: previous(issuer, now + DAY), ..unknown.clone() }, Step::None),
        (Shared { retired: BTreeSet::from([issuer]), ..unknown.clone() }, Step::None),
    ] {
        assert_eq!(shared.step(seen(&nothing, Some(issuer)), &timing, now), step, "{shared:?}");
    }
    assert_eq!(unknown.trusted(Some(issuer), now), BTreeSet::from([issuer, signer]));
    let recorded = after(&unknown, Step::RecordIssuer(issuer), signer, now);
    assert_eq!(recorded.previous, previous(issuer, now + timing.drain));

    let late = issuer.validity.not_after + HOUR;
    assert!(!matches!(unknown.step(seen(&nothing, Some(issuer)), &timing, late), Step::RecordIssuer(_)));
}

#[test]
fn trusted_cas_include_the_signer_and_no_expired_ones() {
    let now = start();
    let expired = ca(1, now - 366 * DAY);
    let shared = Shared {
        next: Some(ca(2, now - 366 * DAY)),
        previous: previous(ca(3, now - 367 * DAY), now + DAY),
        ..Shared::new(expired)
    };
    assert_eq!(shared.trusted(Some(ca(4, now - 400 * DAY)), now), BTreeSet::from([expired]));
}

#[test]
fn missing_records_are_detected() {
    let now = start();
    let (a, b, c) = (ca(1, now - 30 * DAY), ca(2, now - 20 * DAY), ca(3, now));
    let expired = ca(4, now - 366 * DAY);
    let memory = Shared { previous: previous(a, now + DAY), ..Shared::new(b) };
    let went_on = after(&Shared { next: Some(c), ..memory.clone() }, Step::Activate, c, now);
    let retired = after(&went_on, Step::Retire, c, now + 2 * DAY);
    for (found, lacks_records_of) in [
        (memory.clone(), false),
        (went_on, false),
        (retired, false),
        (Shared::new(b), true),
        (Shared::new(c), true),
        (Shared { next: Some(b), ..Shared::new(a) }, true),
    ] {
        assert_eq!(found.lacks_records_of(&memory, now), lacks_records_of, "{found:?}");
    }
    let revoked = Shared { retired: BTreeSet::from([a]), ..Shared::new(b) };
    assert!(Shared::new(b).lacks_records_of(&revoked, now));
    assert!(
        !Shared::new(b).lacks_records_of(&Shared { previous: previous(expired, now), ..Shared::new(b) }, now)
    );
    assert!(!Shared::new(b).lacks_records_of(&Shared::new(expired), now));
}

#[test]
fn a_foreign_signer_becomes_next_if_the_former_one_is_in_memory() {
    let timing = timing();
    let now = start();
    let (a, b, foreign) = (ca(1, now - 30 * DAY), ca(2, now - 20 * DAY), ca(3, now));
    let memory = Shared { previous: previous(a, now + DAY), ..Shared::new(b) };
    let merged = Shared::new(foreign).with_memory(&memory, &timing, now);
    assert_eq!((merged.signer, merged.next), (b, Some(foreign)));
    assert_eq!(merged.trusted(None, now), BTreeSet::from([a, b, foreign]));
    assert!(!merged.lacks_records_of(&memory, now));

    let activated = after(&merged, Step::Activate, foreign, now);
    assert_eq!(activated.signer, foreign);
    assert!(!activated.previous.contains_key(&foreign));
    // Replacing it as `next` does not end trust in certificates that it may have issued elsewhere.
    let replaced = after(&merged, Step::Publish, ca(4, now), now);
    assert!(replaced.trusted(None, now).contains(&foreign));
}

#[test]
fn retired_cas_do_not_return_with_an_old_secret() {
    let timing = timing();
    let now = start();
    let (a, b, c) = (ca(1, now - 30 * DAY), ca(2, now - 20 * DAY), ca(3, now));
    let memory = Shared { retired: BTreeSet::from([a, b]), ..Shared::new(c) };
    for found in [
        Shared { next: Some(b), ..Shared::new(c) },
        Shared { previous: previous(a, now + DAY), ..Shared::new(c) },
    ] {
        assert!(found.lacks_records_of(&memory, now));
        assert_eq!(found.with_memory(&memory, &timing, now), memory);
    }
    assert_eq!(memory.adopting(&BTreeSet::from([a, b, c]), &timing, now), memory);
    let adopted = ca(4, now);
    let expired = ca(5, now - 366 * DAY);
    let others = BTreeSet::from([a, adopted, expired]);
    assert_eq!(memory.adopting(&others, &timing, now).previous, previous(adopted, now + timing.drain));
}

#[test]
fn a_drained_ca_that_is_next_is_not_retired() {
    let now = start();
    let (signer, next) = (ca(1, now - DAY), ca(2, now - 2 * DAY));
    let shared = Shared { next: Some(next), previous: previous(next, now), ..Shared::new(signer) };
    let drained = after(&shared, Step::Retire, signer, now);
    assert_eq!((drained.next, drained.retired), (Some(next), BTreeSet::new()));
}
