//! Reproducible random numbers.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(super) fn one_in(&mut self, odds: u64) -> bool {
        odds != 0 && self.below(odds) == 0
    }

    /// Returns a clock offset in milliseconds; two clocks differ by up to 5 minutes.
    pub(super) fn skew(&mut self) -> i64 {
        self.below(300_001) as i64 - 150_000
    }
}
