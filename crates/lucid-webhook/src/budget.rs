//! Memory for request bodies and their responses, shared by all connections.
//!
//! | caller, body | may fill the budget up to |
//! |---|---|
//! | without a client certificate, above 64 KiB | 4/8 |
//! | without a client certificate | 5/8 |
//! | with a client certificate, above 64 KiB | 7/8 |
//! | with a client certificate | 8/8 |
//!
//! A body beyond its part takes the place of bodies that have been arriving for a second or longer, the oldest first.
//! It never takes the place of a complete body, nor, without a client certificate, of an authenticated caller's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Size above which a request has no room reserved for its body, and is handled on a blocking thread.
pub(crate) const LARGE: usize = 64 * 1024;
/// Charged for each request until its response: its task, and its head until that is parsed.
pub(crate) const HEAD: usize = 16 * 1024;
/// Minimum age at which an incomplete body may be evicted.
const SLOW: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct Budget {
    size: usize,
    slow: Duration,
    pool: Arc<Mutex<Pool>>,
}

#[derive(Debug, Default)]
struct Pool {
    used: usize,
    next: u64,
    charges: BTreeMap<u64, Charge>,
}

#[derive(Debug)]
struct Charge {
    bytes: usize,
    authenticated: bool,
    /// `None` once the body is complete.
    arriving_since: Option<Instant>,
    dropped: Arc<Notify>,
}

#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    id: u64,
    authenticated: bool,
    dropped: Arc<Notify>,
}

impl Budget {
    pub(crate) fn new(size: usize) -> Self {
        Self { size, slow: SLOW, pool: Arc::default() }
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a body, of which nothing has arrived yet. Returns `None` if there is no room for its request.
    pub(crate) fn share(&self, authenticated: bool) -> Option<Share> {
        let dropped = Arc::new(Notify::new());
        let arriving_since = Some(Instant::now());
        let charge = Charge { bytes: 0, authenticated, arriving_since, dropped: Arc::clone(&dropped) };
        let mut pool = self.pool();
        let id = pool.next;
        pool.next += 1;
        pool.charges.insert(id, charge);
        drop(pool);
        let share = Share { budget: self.clone(), id, authenticated, dropped };
        share.raise(0).map(|()| share)
    }

    #[cfg(test)]
    pub(crate) const fn with_slow(mut self, age: Duration) -> Self {
        self.slow = age;
        self
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.pool().used
    }
}

impl Pool {
    fn remove(&mut self, id: u64) -> Option<Charge> {
        let charge = self.charges.remove(&id)?;
        self.used -= charge.bytes;
        Some(charge)
    }
}

impl Share {
    /// Raises the charge to a body of `bytes`. Returns `None` if there is no room, or the body was dropped.
    pub(crate) fn raise(&self, bytes: usize) -> Option<()> {
        let eighths = match (self.authenticated, bytes <= LARGE) {
            (false, false) => 4,
            (false, true) => 5,
            (true, false) => 7,
            (true, true) => 8,
        };
        let room = self.budget.size.saturating_mul(eighths) / 8;
        let bytes = bytes.saturating_add(HEAD);
        let mut pool = self.budget.pool();
        let held = pool.charges.get(&self.id)?.bytes;
        let used = |pool: &Pool| pool.used + bytes.saturating_sub(held);
        if used(&pool) > room {
            let is_slow = |charge: &Charge| {
                charge.arriving_since.is_some_and(|since| since.elapsed() >= self.budget.slow)
            };
            let slow = pool.charges.iter().filter(|(id, charge)| {
                **id != self.id && charge.authenticated <= self.authenticated && is_slow(charge)
            });
            let mut slow: Vec<_> =
                slow.map(|(id, charge)| (charge.authenticated, *id, charge.bytes)).collect();
            let freed: usize = slow.iter().map(|(_, _, bytes)| bytes).sum();
            if used(&pool).saturating_sub(freed) > room {
                return None;
            }
            slow.sort_unstable();
            let mut slow = slow.into_iter();
            while used(&pool) > room {
                let (_, id, _) = slow.next()?;
                if let Some(charge) = pool.remove(id) {
                    charge.dropped.notify_one();
                }
            }
        }
        pool.used = used(&pool);
        let charge = pool.charges.get_mut(&self.id)?;
        charge.bytes = charge.bytes.max(bytes);
        Some(())
    }

    /// Marks the body complete, so that it stays. Returns `None` if it was dropped.
    pub(crate) fn complete(&self) -> Option<()> {
        self.budget.pool().charges.get_mut(&self.id)?.arriving_since = None;
        Some(())
    }

    /// Sets the charge to `bytes`, even beyond the budget; for data already in memory.
    pub(crate) fn settle(&self, bytes: usize) {
        let mut pool = self.budget.pool();
        if let Some(charge) = pool.charges.get_mut(&self.id) {
            let before = std::mem::replace(&mut charge.bytes, bytes);
            pool.used = pool.used - before + bytes;
        }
    }

    /// Completes when the body has to make room for others; its charge is gone by then.
    pub(crate) async fn dropped(&self) {
        self.dropped.notified().await;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.pool().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    /// A share that holds as much as it gets, up to `bytes`.
    fn filled(budget: &Budget, authenticated: bool, bytes: usize) -> Option<Share> {
        let share = budget.share(authenticated)?;
        share.raise(bytes - HEAD).map(|()| share)
    }

    #[tokio::test]
    async fn large_and_anonymous_bodies_leave_room_for_others() {
        let budget = Budget::new(8192 * KIB);
        let mut held = Vec::new();
        for (authenticated, bytes, count) in
            [(false, 512 * KIB, 8), (false, 64 * KIB, 16), (true, 512 * KIB, 4), (true, 64 * KIB, 16)]
        {
            held.extend(std::iter::from_fn(|| filled(&budget, authenticated, bytes)).take(count));
            assert!(filled(&budget, authenticated, bytes).is_none(), "{authenticated} {bytes}");
        }
        assert_eq!((held.len(), budget.used()), (44, budget.size()));
        held.pop();
        assert!(filled(&budget, true, 64 * KIB).is_some(), "returned room is used again");
        held.clear();
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn the_oldest_slow_body_is_evicted_and_complete_ones_stay() {
        let budget = Budget::new(8192 * KIB).with_slow(Duration::ZERO);
        let body = |authenticated| filled(&budget, authenticated, 1024 * KIB).unwrap();
        let (complete, trusted) = (body(false), body(true));
        complete.complete().unwrap();
        let (first, second) = (body(false), body(false));
        let early = budget.clone().with_slow(SLOW * 1000);
        assert!(filled(&early, false, 1024 * KIB).is_none(), "no body is slow yet");
        let third = body(false);
        first.dropped().await;
        assert!(first.raise(1).is_none() && first.complete().is_none());
        assert_eq!(budget.used(), 4096 * KIB);
        let fourth = body(false);
        second.dropped().await;
        for share in [&complete, &trusted, &third, &fourth] {
            share.complete().expect("it was dropped");
        }
        assert!(filled(&budget, false, 1024 * KIB).is_none(), "a complete body is dropped");
    }

    #[tokio::test]
    async fn requests_without_a_body_are_charged() {
        let budget = Budget::new(16 * HEAD).with_slow(Duration::ZERO);
        let mut open: Vec<_> = std::iter::from_fn(|| budget.share(false)).take(10).collect();
        assert!(open.last().unwrap().raise(10 * HEAD).is_none());
        assert!(open.iter().all(|share| budget.pool().charges.contains_key(&share.id)), "dropped in vain");
        open.push(budget.share(false).unwrap());
        open[0].dropped().await;
        for share in &open[1..] {
            share.complete().unwrap();
        }
        assert!(budget.share(false).is_none(), "10 of 16 are for callers without a certificate");
        assert!(budget.share(true).is_some());
    }

    #[tokio::test]
    async fn an_authenticated_body_replaces_anonymous_ones_first() {
        let budget = Budget::new(8192 * KIB).with_slow(Duration::ZERO);
        let bodies = |authenticated, count| -> Vec<_> {
            (0..count).map(|_| filled(&budget, authenticated, 1024 * KIB).unwrap()).collect()
        };
        let (trusted, anonymous, newest) = (bodies(true, 2), bodies(false, 2), bodies(true, 5));
        assert!(anonymous.iter().all(|share| share.complete().is_none()));
        assert!(budget.share(false).is_none(), "an anonymous body drops an authenticated one");
        assert!(trusted.iter().chain(&newest).all(|share| share.complete().is_some()));
    }
}
