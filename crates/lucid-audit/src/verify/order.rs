//! Order and completeness of sequence numbers.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Order {
    pub(super) expected: u64,
    /// Missing ranges: the first number, and the one after the last.
    missing: BTreeMap<u64, u64>,
}

impl Order {
    /// Adds a number that is not less than the expected one. Skipped numbers become missing.
    pub(super) fn see(&mut self, seq: u64) {
        if seq > self.expected {
            self.missing.insert(self.expected, seq);
        }
        self.expected = seq.saturating_add(1);
    }

    /// Removes a number from the missing ones. Returns `true` if it was missing.
    pub(super) fn found(&mut self, seq: u64) -> bool {
        let Some((first, end)) = self.gap(seq) else { return false };
        self.missing.remove(&first);
        if first < seq {
            self.missing.insert(first, seq);
        }
        if seq + 1 < end {
            self.missing.insert(seq + 1, end);
        }
        true
    }

    pub(super) fn has(&self, seq: u64) -> bool {
        seq < self.expected && self.gap(seq).is_none()
    }

    fn gap(&self, seq: u64) -> Option<(u64, u64)> {
        let range = self.missing.range(..=seq).next_back().map(|(first, end)| (*first, *end));
        range.filter(|(_, end)| seq < *end)
    }

    /// Returns the missing ranges: first and last number.
    pub(super) fn missing(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.missing.iter().map(|(first, end)| (*first, end - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_and_repeated_records_are_ordered() {
        let mut order = Order::default();
        [0, 4, 5].into_iter().for_each(|seq| order.see(seq));
        assert_eq!([2, 2, 1, 0, 6].map(|seq| order.found(seq)), [true, false, true, false, false]);
        assert_eq!(order.missing().collect::<Vec<_>>(), [(3, 3)]);
        assert_eq!([0, 1, 3, 5, 6].map(|seq| order.has(seq)), [true, true, false, true, false]);
        assert_eq!(order.expected, 6);
    }
}
