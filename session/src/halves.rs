//! What is remembered within bounds: what was used lately, and what was used before that. When the one is full it takes the
//! other's place, so that what is used stays and nothing has to be counted.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;

use hashbrown::HashMap;

pub(crate) struct Halves<K, V, S> {
    young: HashMap<K, V, S>,
    old: HashMap<K, V, S>,
    /// What the young ones weigh, and may.
    weight: usize,
    most: usize,
    weigh: fn(&K) -> usize,
}

impl<K: Eq + Hash, V: Clone, S: BuildHasher + Clone> Halves<K, V, S> {
    /// Each half holds up to `most` by what `weigh` says of keys.
    pub(crate) fn new(hasher: &S, most: usize, weigh: fn(&K) -> usize) -> Self {
        let half = || HashMap::with_hasher(hasher.clone());
        Self { young: half(), old: half(), weight: 0, most, weigh }
    }

    pub(crate) fn find<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.keep(key, value.clone());
        Some(value)
    }

    pub(crate) fn keep(&mut self, key: K, value: V) {
        let weight = (self.weigh)(&key);
        if self.weight + weight > self.most {
            let empty = HashMap::with_hasher(self.young.hasher().clone());
            (self.old, self.weight) = (mem::replace(&mut self.young, empty), 0);
        }
        self.old.remove(&key);
        if self.young.insert(key, value).is_none() {
            self.weight += weight;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

impl<K, V, S> std::fmt::Debug for Halves<K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Halves").field("len", &(self.young.len() + self.old.len())).finish()
    }
}
