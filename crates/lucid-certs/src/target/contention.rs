//! Somebody else who keeps overwriting a target

use std::time::{Duration, Instant};

/// How many times in a row a target is healed at once
const BURST: u32 = 12;

/// How often it is healed while the other goes on
const RETRY: Duration = Duration::from_mins(1);

/// Says when a target that lost our bundle is to be written again: one for each target.
///
/// An accident is healed at once, and so is a dozen of them. Who overwrites it again and again, such as
/// another operator with an authority of its own, is not met with a loop of writes, of which each makes every API
/// server open new connections: then it is healed once in a minute. Each minute of quiet makes one more healing
/// at once possible. Every replica counts by itself.
///
/// ```
/// # use std::time::{Duration, Instant};
/// # use lucid_certs::target::Contention;
/// let mut contention = Contention::default();
/// let now = Instant::now();
/// assert_eq!(contention.heal_after(now), Duration::ZERO);
/// contention.note_healed(now);
/// assert!(!contention.is_contended(now));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Contention {
    /// When all that was healed is forgotten: each time moves it on by [`RETRY`].
    forgotten_at: Option<Instant>,
    /// Since the budget was used up, until all is forgotten
    contended: bool,
}

impl Contention {
    /// How long to wait before the target is written: zero unless it was written too often of late. Asking costs
    /// nothing.
    #[must_use]
    pub fn heal_after(&self, now: Instant) -> Duration {
        (self.remembered(now) + RETRY).saturating_sub(RETRY * BURST)
    }

    /// Counts that the target was written because somebody had changed it. Returns whether a contention begins
    /// with it: then people want to [hear](super::TrustTarget::report_contention) of it, once.
    pub fn note_healed(&mut self, now: Instant) -> bool {
        let was_contended = self.is_contended(now);
        self.forgotten_at = Some(now + self.remembered(now) + RETRY);
        self.contended = was_contended || !self.heal_after(now).is_zero();
        self.contended && !was_contended
    }

    /// Whether somebody else keeps overwriting the target. It is over when the target was left alone for as long as it
    /// takes to forget everything, which is at most twelve minutes.
    #[must_use]
    pub fn is_contended(&self, now: Instant) -> bool {
        self.contended && !self.remembered(now).is_zero()
    }

    /// How long until everything is forgotten
    fn remembered(&self, now: Instant) -> Duration {
        self.forgotten_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Somebody overwrites it every `pause`, for as long as `lasting`. Returns when it was healed, and how many
    /// contentions began.
    fn fight(
        contention: &mut Contention,
        begin: Instant,
        pause: Duration,
        lasting: Duration,
    ) -> (Vec<Duration>, usize) {
        let (mut healed, mut begun) = (Vec::new(), 0);
        let mut at = begin;
        while at < begin + lasting {
            at += contention.heal_after(at);
            begun += usize::from(contention.note_healed(at));
            healed.push(at - begin);
            at += pause;
        }
        (healed, begun)
    }

    #[test]
    fn accidents_are_healed_at_once_and_a_fight_once_a_minute() {
        struct Case {
            what: &'static str,
            pause: Duration,
            lasting: Duration,
            healed: usize,
            contentions: usize,
        }
        let cases = [
            Case { what: "one accident", pause: 2 * SECOND, lasting: SECOND, healed: 1, contentions: 0 },
            Case { what: "a burst of ten", pause: SECOND / 10, lasting: SECOND, healed: 10, contentions: 0 },
            Case {
                what: "one every minute",
                pause: 60 * SECOND,
                lasting: 3600 * SECOND,
                healed: 60,
                contentions: 0,
            },
            Case {
                what: "one every 5 minutes, for a day",
                pause: 300 * SECOND,
                lasting: 86_400 * SECOND,
                healed: 288,
                contentions: 0,
            },
            // 12 at once, and 1 in each minute after that.
            Case {
                what: "at once, always",
                pause: SECOND / 10,
                lasting: 3600 * SECOND,
                healed: 12 + 60,
                contentions: 1,
            },
            Case {
                what: "every 30 s",
                pause: 30 * SECOND,
                lasting: 3600 * SECOND,
                healed: 12 + 60,
                contentions: 1,
            },
        ];
        for Case { what, pause, lasting, healed, contentions } in cases {
            let (times, begun) = fight(&mut Contention::default(), Instant::now(), pause, lasting);
            assert!(times.len().abs_diff(healed) <= 1, "{what}: healed {} times", times.len());
            assert_eq!(begun, contentions, "{what}");
        }
    }

    #[test]
    fn in_a_fight_a_minute_lies_between_two_writes() {
        let (times, _) = fight(&mut Contention::default(), Instant::now(), SECOND / 10, 3600 * SECOND);
        let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let (burst, retries) = pauses.split_at(BURST as usize - 1);
        assert!(burst.iter().all(|pause| *pause < SECOND), "{burst:?}");
        assert!(retries.iter().skip(1).all(|pause| *pause == RETRY), "{retries:?}");
    }

    #[test]
    fn asking_costs_nothing() {
        let contention = Contention::default();
        let now = Instant::now();
        assert!((0..100).all(|_| contention.heal_after(now).is_zero()));
    }

    #[test]
    fn quiet_time_recovers_and_the_next_fight_is_another_contention() {
        let mut contention = Contention::default();
        let begin = Instant::now();
        let (times, _) = fight(&mut contention, begin, SECOND, 600 * SECOND);
        let last = begin + *times.last().unwrap();
        assert!(contention.is_contended(last));
        assert!(!contention.heal_after(last).is_zero());

        assert!(contention.is_contended(last + 300 * SECOND), "it may just be slow");
        assert_eq!(contention.heal_after(last + 60 * SECOND), Duration::ZERO);
        let rested = last + RETRY * BURST;
        assert!(!contention.is_contended(rested));
        let (times, begun) = fight(&mut contention, rested, SECOND / 10, SECOND);
        assert_eq!((times.len(), begun), (10, 0));
        let (_, begun) = fight(&mut contention, rested + 2 * SECOND, SECOND / 10, 60 * SECOND);
        assert_eq!(begun, 1);
    }
}
