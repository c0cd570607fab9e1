//! Texts that came a moment ago, and what they were read as.

use std::sync::Arc;

use crate::reading::Reading;

/// A small table in front of a large one: applications say the same few things over and over, and comparing a text
/// with itself costs less than taking its literals out and its hash.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Empty until there is something to remember.
    places: Box<[Place]>,
}

/// One text, and the print of the last that came here: what differs each time is never copied.
#[derive(Clone, Debug, Default)]
struct Place {
    print: u64,
    text: Vec<u8>,
    reading: Option<Arc<Reading>>,
}

const PLACES_LOG: u32 = 6;
/// How many there are.
pub(crate) const PLACES: usize = 1 << PLACES_LOG;

/// Longer texts are not for here: 64 places of a KiB are little beside what else is remembered.
const TEXT_MAX: usize = 1024;

impl Recent {
    /// What `text` was read as, if it is still here.
    pub(crate) fn find(&self, text: &[u8]) -> Option<&Arc<Reading>> {
        let print = print(text);
        let place = self.places.get(index(print))?;
        (place.print == print && place.text == text).then_some(place.reading.as_ref())?
    }

    /// `text`, which was not here, was read as this. It gets in when it comes the second time.
    pub(crate) fn came(&mut self, text: &[u8], reading: &Arc<Reading>) {
        if text.len() > TEXT_MAX {
            return;
        }
        if self.places.is_empty() {
            self.places = vec![Place::default(); PLACES].into();
        }
        let print = print(text);
        let Some(place) = self.places.get_mut(index(print)) else { return };
        if place.print != print {
            (place.print, place.reading) = (print, None);
            return;
        }
        place.text.clear();
        place.text.extend_from_slice(text);
        place.reading = Some(Arc::clone(reading));
    }
}

/// Which of the places is that of a print, or of several put together.
pub(crate) fn index(print: u64) -> usize {
    (print >> (u64::BITS - PLACES_LOG)) as usize
}

/// A number for a text, from its length and a few of its bytes, and not that of an empty place. Others may have
/// the same.
pub(crate) fn print(text: &[u8]) -> u64 {
    let word = |at: usize| {
        let word = text.get(at..).and_then(|rest| rest.first_chunk());
        u64::from_le_bytes(word.copied().unwrap_or_default())
    };
    let mixed = if let Some(last) = text.len().checked_sub(8) {
        word(0) ^ word(last / 2).rotate_left(21) ^ word(last).rotate_left(42)
    } else {
        text.iter().fold(0, |mixed, byte| mixed << 8 | u64::from(*byte))
    };
    spread(mixed ^ text.len() as u64) | 1
}

/// Every bit of a number has its part in the highest.
pub(crate) fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who comes twice is known, also when others come between; who differs in one byte is not.
    #[test]
    fn what_comes_twice_is_known() {
        let (mut recent, reading) = (Recent::default(), Arc::new(Reading::unknown()));
        for text in ["", "begin", "select 1", "select a from t where b = 'some longer text'"] {
            let text = text.as_bytes();
            assert!(recent.find(text).is_none());
            recent.came(text, &reading);
            assert!(recent.find(text).is_none(), "it came once only");
            recent.came(text, &reading);
            assert!(recent.find(text).is_some_and(|found| Arc::ptr_eq(found, &reading)));
            for at in 0..text.len() {
                let mut other = text.to_vec();
                other[at] ^= 1;
                assert!(recent.find(&other).is_none());
            }
        }
    }

    /// A thousand texts that are never the same leave the ones that are alone, or take their places; they are
    /// never taken for one another.
    #[test]
    fn nobody_is_taken_for_another() {
        let mut recent = Recent::default();
        let text = |number: usize| format!("select {} from t where x = {}", number % 7, number);
        let readings: Vec<_> = (0..1000).map(|_| Arc::new(Reading::unknown())).collect();
        for round in 0..4 {
            for (number, reading) in readings.iter().enumerate() {
                let text = text(number).into_bytes();
                match recent.find(&text) {
                    Some(found) => {
                        assert!(Arc::ptr_eq(found, reading), "{number} in round {round}")
                    }
                    None => recent.came(&text, reading),
                }
            }
        }
    }

    #[test]
    fn long_texts_are_not_kept() {
        let (mut recent, text) = (Recent::default(), [b'x'; TEXT_MAX + 1]);
        for _ in 0..3 {
            recent.came(&text, &Arc::new(Reading::unknown()));
        }
        assert!(recent.find(&text).is_none());
    }
}
