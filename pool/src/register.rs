//! Records found by number, and strung on lists.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Records of `T`. Each has a number by which the caller knows it, and hangs on one [`List`].
///
/// Finding, moving and removing one costs the same whether there are ten or ten thousand, and once
/// the register has grown to its working size nothing is allocated any more.
///
/// ```text
///   number ──hash──▶ seats: [ . 2 . 0 . 1 . . ]        (twice as many seats as nodes, or more)
///                               │
///   nodes: [ 0 ][ 1 ][ 2 ][ 3 ] ◀┘   first ⇄ … ⇄ last   (lists run through the nodes)
/// ```
#[derive(Debug)]
pub(crate) struct Register<T> {
    nodes: Vec<Node<T>>,
    /// The first node without a record; `next` leads to the others.
    spare: u32,
    /// Where in `nodes` a number's record lies: open addressing, linear probing.
    seats: Vec<u32>,
    len: u32,
}

/// Records in an order. It holds the ends; the nodes hold the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
    len: u32,
}

/// Where a record lies in its register, until it is removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct At(u32);

#[derive(Debug)]
struct Node<T> {
    number: u32,
    previous: u32,
    next: u32,
    value: T,
}

const NOWHERE: u32 = u32::MAX;
const SEATS_MIN: usize = 8;

impl<T: Copy> Register<T> {
    pub(crate) const fn new() -> Self {
        Self { nodes: Vec::new(), spare: NOWHERE, seats: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn find(&self, number: u32) -> Option<At> {
        if self.len == 0 {
            return None;
        }
        let seat = self.seat_of(number);
        let at = self.seats[seat];
        (at != NOWHERE).then_some(At(at))
    }

    /// Adds a record at the end of `list`. Its number must be new.
    pub(crate) fn insert(&mut self, number: u32, value: T, list: &mut List) -> At {
        debug_assert!(self.find(number).is_none(), "number {number} is taken");
        if (self.len as usize + 1) * 2 > self.seats.len() {
            self.grow();
        }
        let node = Node { number, previous: NOWHERE, next: NOWHERE, value };
        let at = if self.spare == NOWHERE {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let at = self.spare;
            self.spare = self.nodes[at as usize].next;
            self.nodes[at as usize] = node;
            at
        };
        let seat = self.seat_of(number);
        self.seats[seat] = at;
        self.len += 1;
        self.append(At(at), list);
        At(at)
    }

    pub(crate) fn remove(&mut self, at: At, list: &mut List) -> T {
        self.unhook(at, list);
        self.empty_seat(self.nodes[at.0 as usize].number);
        self.len -= 1;
        let node = &mut self.nodes[at.0 as usize];
        node.next = self.spare;
        self.spare = at.0;
        node.value
    }

    /// Moves a record to the end of another list, or of the same.
    pub(crate) fn append(&mut self, at: At, list: &mut List) {
        let node = &mut self.nodes[at.0 as usize];
        node.previous = list.last;
        node.next = NOWHERE;
        match list.last {
            NOWHERE => list.first = at.0,
            last => self.nodes[last as usize].next = at.0,
        }
        list.last = at.0;
        list.len += 1;
    }

    /// Takes a record off its list, to be appended to another.
    pub(crate) fn unhook(&mut self, at: At, list: &mut List) {
        let Node { previous, next, .. } = self.nodes[at.0 as usize];
        match previous {
            NOWHERE => list.first = next,
            previous => self.nodes[previous as usize].next = next,
        }
        match next {
            NOWHERE => list.last = previous,
            next => self.nodes[next as usize].previous = previous,
        }
        list.len -= 1;
    }

    pub(crate) fn number(&self, at: At) -> u32 {
        self.nodes[at.0 as usize].number
    }

    pub(crate) fn next(&self, at: At) -> Option<At> {
        let next = self.nodes[at.0 as usize].next;
        (next != NOWHERE).then_some(At(next))
    }

    pub(crate) fn previous(&self, at: At) -> Option<At> {
        let previous = self.nodes[at.0 as usize].previous;
        (previous != NOWHERE).then_some(At(previous))
    }

    /// The records of `list`, last to first.
    pub(crate) fn iter_back(&self, list: &List) -> impl Iterator<Item = At> {
        core::iter::successors(list.last(), |at| self.previous(*at))
    }

    /// The records of `list`, first to last.
    pub(crate) fn iter(&self, list: &List) -> impl Iterator<Item = At> {
        core::iter::successors(list.first(), |at| self.next(*at))
    }

    /// The seat that holds `number`, or the empty one where it would go.
    fn seat_of(&self, number: u32) -> usize {
        let mask = self.seats.len() - 1;
        let mut seat = self.home(number);
        loop {
            let at = self.seats[seat];
            if at == NOWHERE || self.nodes[at as usize].number == number {
                return seat;
            }
            seat = (seat + 1) & mask;
        }
    }

    /// Numbers are small and dense; multiplying by 2^32 divided by the golden ratio spreads them.
    fn home(&self, number: u32) -> usize {
        let bits = self.seats.len().trailing_zeros();
        (number.wrapping_mul(0x9E37_79B9) >> (32 - bits)) as usize
    }

    /// Empties the seat of `number`, and moves up those that had to pass it by.
    fn empty_seat(&mut self, number: u32) {
        let mask = self.seats.len() - 1;
        let mut hole = self.seat_of(number);
        let mut seat = hole;
        loop {
            seat = (seat + 1) & mask;
            let at = self.seats[seat];
            if at == NOWHERE {
                break;
            }
            let home = self.home(self.nodes[at as usize].number);
            let from_home = seat.wrapping_sub(home) & mask;
            let from_hole = seat.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.seats[hole] = at;
                hole = seat;
            }
        }
        self.seats[hole] = NOWHERE;
    }

    fn grow(&mut self) {
        let size = (self.seats.len() * 2).max(SEATS_MIN);
        let old = core::mem::replace(&mut self.seats, alloc::vec![NOWHERE; size]);
        for at in old.into_iter().filter(|at| *at != NOWHERE) {
            let seat = self.seat_of(self.nodes[at as usize].number);
            self.seats[seat] = at;
        }
    }
}

impl<T> Index<At> for Register<T> {
    type Output = T;
    fn index(&self, at: At) -> &T {
        &self.nodes[at.0 as usize].value
    }
}

impl<T> IndexMut<At> for Register<T> {
    fn index_mut(&mut self, at: At) -> &mut T {
        &mut self.nodes[at.0 as usize].value
    }
}

impl List {
    pub(crate) const fn new() -> Self {
        Self { first: NOWHERE, last: NOWHERE, len: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn first(&self) -> Option<At> {
        (self.first != NOWHERE).then_some(At(self.first))
    }

    pub(crate) fn last(&self) -> Option<At> {
        (self.last != NOWHERE).then_some(At(self.last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use super::*;

    /// Ten thousand random comings and goings, with numbers that collide: the register tells the
    /// same as a map, and each list keeps its order.
    #[test]
    fn it_agrees_with_a_map() {
        let mut register = Register::new();
        let mut lists = [List::new(), List::new()];
        let mut model: BTreeMap<u32, usize> = BTreeMap::new();
        let mut order: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
        let mut dice = 1_u64;
        for _ in 0..10_000 {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let number = (dice >> 33) as u32 % 64 * 4096;
            let side = (dice >> 60) as usize % 2;
            match (register.find(number), model.get(&number).copied()) {
                (None, None) => {
                    register.insert(number, number, &mut lists[side]);
                    model.insert(number, side);
                    order[side].push(number);
                }
                (Some(at), Some(old)) if dice >> 59 & 1 == 0 => {
                    register.unhook(at, &mut lists[old]);
                    register.append(at, &mut lists[side]);
                    model.insert(number, side);
                    order[old].retain(|other| *other != number);
                    order[side].push(number);
                }
                (Some(at), Some(old)) => {
                    assert_eq!(register.remove(at, &mut lists[old]), number);
                    model.remove(&number);
                    order[old].retain(|other| *other != number);
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(register.len() as usize, model.len());
            for (list, order) in lists.iter().zip(&order) {
                let numbers: Vec<u32> = register.iter(list).map(|at| register.number(at)).collect();
                assert_eq!(numbers, *order);
                assert_eq!(list.len() as usize, order.len());
            }
        }
        assert!(register.nodes.len() <= 64, "nodes are used again");
    }
}
