//! Whether the numbers of lines follow one another.

use std::collections::BTreeMap;

/// What the number of a line says about its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the next one.
    Next,
    /// It comes after some that are missing, so far.
    Ahead,
    /// It was missing further up.
    Late,
    /// It was there already.
    Again,
}

/// The numbers that were seen.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The number that comes next.
    pub(super) expected: u64,
    /// Those that are missing: first, and the one after the last.
    missing: BTreeMap<u64, u64>,
}

impl Order {
    pub(super) fn see(&mut self, seq: u64) -> Place {
        if seq == self.expected {
            self.expected = self.expected.saturating_add(1);
            return Place::Next;
        }
        if seq > self.expected {
            self.missing.insert(self.expected, seq);
            self.expected = seq.saturating_add(1);
            return Place::Ahead;
        }
        if self.found(seq) { Place::Late } else { Place::Again }
    }

    /// Takes a number from those that are missing; returns whether it was one of them.
    pub(super) fn found(&mut self, seq: u64) -> bool {
        let range = self.missing.range(..=seq).next_back().map(|(first, end)| (*first, *end));
        let Some((first, end)) = range.filter(|(_, end)| seq < *end) else { return false };
        self.missing.remove(&first);
        if first < seq {
            self.missing.insert(first, seq);
        }
        if seq + 1 < end {
            self.missing.insert(seq + 1, end);
        }
        true
    }

    /// The ranges that are missing: first and last.
    pub(super) fn missing(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.missing.iter().map(|(first, end)| (*first, end - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_may_come_late_and_what_was_there_comes_again() {
        let mut order = Order::default();
        let places = [0, 4, 2, 5, 2, 1, 0].map(|seq| order.see(seq));
        use Place::{Again, Ahead, Late, Next};
        assert_eq!(places, [Next, Ahead, Late, Next, Again, Late, Again]);
        assert_eq!(order.missing().collect::<Vec<_>>(), [(3, 3)]);
        assert_eq!(order.expected, 6);
    }
}
