//! Values that many clients have alike: one copy for all of them.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// What is in use, and what was until the last sweep.
pub(crate) struct Shared<T> {
    values: HashSet<Arc<T>>,
    sweep_at: usize,
}

/// So few that nobody needs to sweep them.
const FEW: usize = 1024;

impl<T: Eq + Hash> Shared<T> {
    pub(crate) fn new() -> Self {
        Self { values: HashSet::new(), sweep_at: FEW }
    }

    /// The copy of `value` that all have.
    pub(crate) fn share(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.values.get(&value) {
            return Arc::clone(known);
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = (2 * self.values.len()).max(FEW);
        }
        let value = Arc::new(value);
        self.values.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_unused_ones_go() {
        let mut shared = Shared::new();
        let kept: Vec<_> = (0..10).map(|number| shared.share(number)).collect();
        assert!(Arc::ptr_eq(&kept[3], &shared.share(3)));
        for number in 0..10 * FEW {
            let _gone = shared.share(number);
        }
        assert!(shared.values.len() <= FEW + kept.len(), "what nobody has is forgotten");
        for (number, one) in kept.iter().enumerate() {
            assert!(Arc::ptr_eq(one, &shared.share(number)), "what somebody has is not");
        }
    }
}
