use std::time::{Duration, SystemTime};

use super::{Rotation, RotationError};
use crate::{CA_OVERLAP, CertificateAuthority, ServingNames, TrustBundle};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
const TICK: Duration = Duration::from_mins(1);

fn names() -> ServingNames {
    ServingNames::for_services("lucid-system", &["lucid-operator"]).unwrap()
}

fn authority(now: SystemTime) -> CertificateAuthority {
    CertificateAuthority::generate(&names(), now).unwrap()
}

/// A replica that serves under the authority it returns
fn serving(now: SystemTime) -> (Rotation, TrustBundle) {
    let ca = authority(now);
    let bundle = ca.trust_bundle();
    (Rotation::new(names(), ca, None, bundle.clone(), now, 0.0).unwrap(), bundle)
}

fn is_served_under(rotation: &Rotation, bundle: &TrustBundle, now: SystemTime) -> bool {
    rotation.leaf().verify_for(&names(), bundle, now).is_ok()
}

#[test]
fn a_new_authority_is_published_beside_the_old_then_served_then_alone() {
    let now = SystemTime::now();
    let (mut rotation, old) = serving(now);
    let next = authority(now);
    let new = next.trust_bundle();
    let both = new.merge(&old);

    rotation.adopt(next, None);
    assert_eq!(rotation.bundle(now), both);
    assert!(matches!(rotation.next_leaf(now), Err(RotationError::Untrusted { .. })), "not published yet");

    rotation.record_published(both.clone());
    let leaf = rotation.next_leaf(now).unwrap().unwrap();
    assert!(is_served_under(&rotation, &old, now) && rotation.is_trusted(now));

    rotation.install(leaf, now, 0.0);
    assert!(is_served_under(&rotation, &new, now) && rotation.is_trusted(now));
    assert!(rotation.next_leaf(now).unwrap().is_none());
    assert_eq!(rotation.bundle(now + CA_OVERLAP - TICK), both);
    assert_eq!(rotation.bundle(now + CA_OVERLAP), new);
}

#[test]
fn the_old_authority_stays_trusted_as_long_as_publishing_fails() {
    let now = SystemTime::now();
    let (mut rotation, old) = serving(now);
    let next = authority(now);
    let both = next.trust_bundle().merge(&old);
    rotation.adopt(next, None);
    for hours in 0..48 {
        let now = now + hours * HOUR;
        assert_eq!(rotation.bundle(now), both);
        assert!(rotation.next_leaf(now).is_err());
        assert!(rotation.is_trusted(now));
    }
}

#[test]
fn the_same_authority_again_changes_nothing() {
    let now = SystemTime::now();
    let ca = authority(now);
    let again =
        CertificateAuthority::from_pem(ca.certificate_pem().as_bytes(), ca.private_key_pem().as_bytes(), now);
    let bundle = ca.trust_bundle();
    let mut rotation = Rotation::new(names(), ca, None, bundle.clone(), now, 0.0).unwrap();
    rotation.adopt(again.unwrap(), None);
    assert_eq!(rotation.bundle(now), bundle);
    assert!(rotation.next_leaf(now).unwrap().is_none());
}

#[test]
fn several_authorities_in_a_row_all_stay_newest_first() {
    let now = SystemTime::now();
    let (mut rotation, first) = serving(now);
    let (second, third) = (authority(now), authority(now));
    let expected = third.trust_bundle().merge(&second.trust_bundle()).merge(&first);
    rotation.adopt(second, None);
    rotation.adopt(third, None);
    assert_eq!(rotation.bundle(now), expected);
}

#[test]
fn what_other_replicas_may_serve_under_is_trusted_as_long_as_they_say_so() {
    let now = SystemTime::now();
    let [first, second] = [0; 2].map(|_| authority(now).trust_bundle());
    let ca = authority(now);
    let again = || {
        let (certificate, key) = (ca.certificate_pem(), ca.private_key_pem());
        CertificateAuthority::from_pem(certificate.as_bytes(), key.as_bytes(), now).unwrap()
    };
    let alone = ca.trust_bundle();
    let both = alone.merge(&first);
    let mut rotation = Rotation::new(names(), again(), Some(first.clone()), both.clone(), now, 0.0).unwrap();
    assert_eq!(rotation.bundle(now), both);
    rotation.adopt(again(), Some(second.merge(&first)));
    assert_eq!(rotation.bundle(now), alone.merge(&second).merge(&first));
    rotation.adopt(again(), None);
    assert_eq!(rotation.bundle(now), alone);
}

#[test]
fn nothing_is_served_that_the_published_bundle_does_not_hold() {
    let now = SystemTime::now();
    let published = authority(now).trust_bundle();
    let error = Rotation::new(names(), authority(now), None, published, now, 0.0).unwrap_err();
    assert!(matches!(error, RotationError::Untrusted { .. }), "{error:?}");
}

#[test]
fn a_leaf_is_renewed_after_two_thirds_of_its_life_and_a_spread() {
    let now = SystemTime::now();
    // Two thirds of 168 hours, then up to a quarter of the rest.
    let due = now + Duration::from_mins(168 * 40);
    let latest = due + Duration::from_mins(168 * 5);
    for (spread, at) in [(0.0, due), (1.0, latest)] {
        let ca = authority(now);
        let bundle = ca.trust_bundle();
        let mut rotation = Rotation::new(names(), ca, None, bundle, now, spread).unwrap();
        assert!(rotation.next_leaf(at - TICK).unwrap().is_none());
        let leaf = rotation.next_leaf(at + TICK).unwrap().unwrap();
        rotation.install(leaf, at + TICK, spread);
        assert!(rotation.next_leaf(at + TICK).unwrap().is_none());
        assert!(rotation.is_trusted(at + 6 * DAY));
    }
}

#[test]
fn an_expired_authority_leaves_the_bundle() {
    let now = SystemTime::now();
    let (mut rotation, _) = serving(now);
    let later = now + 364 * DAY;
    let next = authority(later);
    let new = next.trust_bundle();
    rotation.adopt(next, None);
    assert_eq!(rotation.bundle(later).certificates().count(), 2);
    assert_eq!(rotation.bundle(later + 2 * DAY), new);
}

/// Two years in steps from a minute to half a day, with new authorities and failing publication in
/// between: whatever is served is accepted by who trusts the bundle that was published last.
#[test]
fn the_leaf_in_service_is_always_trusted() {
    let start = SystemTime::now();
    let mut random = Random(7);
    for _ in 0..3 {
        let (mut now, (mut rotation, _)) = (start, serving(start));
        let (mut newest, mut failed) = (start, false);
        while now < start + 730 * DAY {
            now += [TICK, TICK, HOUR, DAY / 4, DAY / 2][random.below(5)];
            if random.below(8) == 0 || now > newest + 335 * DAY {
                rotation.adopt(authority(now), None);
                newest = now;
            }
            let bundle = rotation.bundle(now);
            // Never twice in a row: what fails for days on end outlives any leaf.
            failed = !failed && random.below(3) == 0;
            if !failed {
                rotation.record_published(bundle);
            }
            assert!(rotation.is_trusted(now), "before the swap, {random:?}");
            if let Ok(Some(leaf)) = rotation.next_leaf(now) {
                rotation.install(leaf, now, [0.0, 0.5, 1.0][random.below(3)]);
            }
            assert!(rotation.is_trusted(now), "after the swap, {random:?}");
        }
    }
}

/// A linear congruential generator: the same run each time
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % bound).unwrap()
    }
}
