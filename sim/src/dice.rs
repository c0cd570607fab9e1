//! The one source of chance.

/// `SplitMix64`: small, fast, and the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 where there is none.
    pub(crate) fn under(&mut self, bound: usize) -> usize {
        // The high half, multiplied: cheaper than a division, and as even for bounds this small.
        (((self.roll() >> 32) * bound as u64) >> 32) as usize
    }

    /// Both ends included.
    pub(crate) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.under(most.saturating_sub(least) + 1)
    }

    /// Never for 0, always for 1.
    pub(crate) fn one_in(&mut self, n: u32) -> bool {
        n > 0 && self.under(n as usize) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.under(from.len())]
    }

    /// Dice of their own for a part of the world, so that it can be thought about alone.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.roll())
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let roll = self.roll().to_le_bytes();
            chunk.copy_from_slice(&roll[..chunk.len()]);
        }
    }
}
