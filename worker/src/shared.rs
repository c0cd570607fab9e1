//! Values that many clients have alike: one copy for all of them.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// What is in use, and what was until the last sweep. A `T` is a counted reference.
pub(crate) struct Shared<T> {
    values: HashSet<T>,
    /// Whether nobody else has it.
    is_alone: fn(&T) -> bool,
    sweep_at: usize,
}

/// So few that nobody needs to sweep them.
const FEW: usize = 1024;

impl<T: Clone + Eq + Hash> Shared<T> {
    pub(crate) fn new(is_alone: fn(&T) -> bool) -> Self {
        Self { values: HashSet::new(), is_alone, sweep_at: FEW }
    }

    /// The copy of `value` that all have.
    pub(crate) fn share(&mut self, value: T) -> T {
        if let Some(known) = self.values.get(&value) {
            return known.clone();
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| !(self.is_alone)(value));
            self.sweep_at = (2 * self.values.len()).max(FEW);
        }
        self.values.insert(value.clone());
        value
    }
}

impl<T: Eq + Hash> Shared<Arc<T>> {
    pub(crate) fn of_arcs() -> Self {
        Self::new(|value| Arc::strong_count(value) == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_unused_ones_go() {
        let mut shared = Shared::of_arcs();
        let kept: Vec<_> = (0..10).map(|number| shared.share(Arc::new(number))).collect();
        assert!(Arc::ptr_eq(&kept[3], &shared.share(Arc::new(3))));
        for number in 0..10 * FEW {
            let _gone = shared.share(Arc::new(number));
        }
        assert!(shared.values.len() <= FEW + kept.len(), "what nobody has is forgotten");
        for (number, one) in kept.iter().enumerate() {
            assert!(Arc::ptr_eq(one, &shared.share(Arc::new(number))), "what somebody has is not");
        }
    }
}
