//! A set of bytes of a disk, kept as ranges that neither overlap nor touch.

use alloc::collections::BTreeMap;
use core::ops::Bound::{Excluded, Unbounded};

/// Bytes from `start` up to, not including, `end`; never empty inside a [`RangeSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Range {
    pub(crate) fn bytes(self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn overlaps(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// The set.
#[derive(Debug, Default)]
pub(crate) struct RangeSet {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl RangeSet {
    /// The number of bytes in the set.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// In how many ranges they lie.
    pub(crate) fn runs(&self) -> u64 {
        self.ranges.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds the range, whatever part of it is in the set already.
    pub(crate) fn insert(&mut self, range: Range) {
        let Range { mut start, mut end } = range;
        while let Some((&left, &right)) = self.ranges.range(..=end).next_back() {
            if right < start {
                break;
            }
            start = start.min(left);
            end = end.max(right);
            self.ranges.remove(&left);
            self.bytes -= right - left;
        }
        self.ranges.insert(start, end);
        self.bytes += end - start;
    }

    /// Takes the range out, whatever part of it is in the set.
    pub(crate) fn remove(&mut self, range: Range) {
        while let Some((&left, &right)) = self.ranges.range(..range.end).next_back() {
            if right <= range.start {
                break;
            }
            self.ranges.remove(&left);
            self.bytes -= right - left;
            for rest in [Range { start: left, end: range.start }, Range { start: range.end, end: right }] {
                if rest.start < rest.end {
                    self.ranges.insert(rest.start, rest.end);
                    self.bytes += rest.bytes();
                }
            }
        }
    }

    /// Whether some byte of the range is in the set.
    pub(crate) fn overlaps(&self, range: Range) -> bool {
        self.ranges.range(..range.end).next_back().is_some_and(|(_, &right)| right > range.start)
    }

    /// Whether every byte of the range is in the set.
    pub(crate) fn covers(&self, range: Range) -> bool {
        self.ranges.range(..=range.start).next_back().is_some_and(|(_, &right)| right >= range.end)
    }

    /// Where [`RangeSet::take`] may begin: at the first byte that it would find, and then at the next ranges, in the
    /// order of addresses and round the end; each once.
    pub(crate) fn starts(&self, cursor: u64) -> impl Iterator<Item = u64> {
        let around = self.ranges.range(..=cursor).next_back().filter(|&(_, &right)| right > cursor);
        let behind = self.ranges.range((Excluded(cursor), Unbounded)).map(|(&left, _)| left);
        let before = self.ranges.range(..cursor).map(|(&left, _)| left);
        let is_around = around.is_some();
        // A range that begins before the cursor and reaches over it was met at the cursor.
        let wrapped = before.filter(move |&left| !is_around || Some(left) != around.map(|(&left, _)| left));
        is_around.then_some(cursor).into_iter().chain(behind).chain(wrapped)
    }

    /// Takes out up to `bytes_max` neighbouring bytes: the first ones at or after `cursor`, or, if
    /// there are none, the first of all.
    pub(crate) fn take(&mut self, cursor: u64, bytes_max: u64) -> Option<Range> {
        let around = self.ranges.range(..=cursor).next_back().filter(|&(_, &right)| right > cursor);
        let found = around
            .or_else(|| self.ranges.range((Excluded(cursor), Unbounded)).next())
            .or_else(|| self.ranges.first_key_value());
        let (&left, &right) = found?;
        let start = if left <= cursor && cursor < right { cursor } else { left };
        let taken = Range { start, end: right.min(start.saturating_add(bytes_max)) };
        self.remove(taken);
        Some(taken)
    }

    /// Moves everything into `other`.
    pub(crate) fn empty_into(&mut self, other: &mut RangeSet) {
        if other.is_empty() {
            core::mem::swap(self, other);
            return;
        }
        for (&start, &end) in &self.ranges {
            other.insert(Range { start, end });
        }
        *self = RangeSet::default();
    }
}

#[cfg(test)]
mod tests {
    use super::{Range, RangeSet};

    /// Goal: the set equals a plain array of flags. Method: random calls on 200 bytes, compared
    /// after each.
    #[test]
    fn the_set_agrees_with_an_array_of_flags() {
        let mut set = RangeSet::default();
        let mut flags = [false; 200];
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let start = random(199);
            let range = Range { start, end: start + 1 + random((200 - start).min(30)) };
            let touched = range.start as usize..range.end as usize;
            match random(5) {
                0 | 1 => {
                    set.insert(range);
                    flags[touched].fill(true);
                }
                2 => {
                    set.remove(range);
                    flags[touched].fill(false);
                }
                3 => {
                    assert_eq!(set.overlaps(range), flags[touched.clone()].contains(&true));
                    assert_eq!(set.covers(range), !flags[touched].contains(&false));
                }
                _ => {
                    let max = 1 + random(10);
                    let first = (start as usize..200).chain(0..200).find(|&at| flags[at]);
                    let taken = set.take(start, max);
                    assert_eq!(taken.map(|range| range.start as usize), first);
                    if let Some(taken) = taken {
                        let run = flags[taken.start as usize..].iter().take_while(|flag| **flag).count();
                        assert_eq!(taken.bytes(), max.min(run as u64));
                        flags[taken.start as usize..taken.end as usize].fill(false);
                    }
                }
            }
            assert_eq!(set.bytes(), flags.iter().filter(|flag| **flag).count() as u64);
            let runs = (0..200).filter(|&at| flags[at] && (at == 0 || !flags[at - 1])).count();
            assert_eq!(set.runs(), runs as u64);
        }
    }

    #[test]
    fn emptying_into_a_set_joins_both() {
        let (mut one, mut other) = (RangeSet::default(), RangeSet::default());
        one.insert(Range { start: 0, end: 10 });
        other.insert(Range { start: 5, end: 20 });
        one.empty_into(&mut other);
        assert!(one.is_empty());
        assert!(other.covers(Range { start: 0, end: 20 }));
        assert_eq!((other.bytes(), other.runs()), (20, 1));
    }
}
