//! Events to come inside a disk, in the order of time.

use alloc::collections::BinaryHeap;
use core::cmp::Ordering;

/// Events with their times. Events of the same time come out in the order they went in.
#[derive(Debug)]
pub(crate) struct Timeline<E> {
    heap: BinaryHeap<Entry<E>>,
    pushed: u64,
}

impl<E> Timeline<E> {
    pub(crate) fn new() -> Timeline<E> {
        Timeline { heap: BinaryHeap::new(), pushed: 0 }
    }

    pub(crate) fn push(&mut self, at_ns: u64, event: E) {
        self.heap.push(Entry { at_ns, order: self.pushed, event });
        self.pushed += 1;
    }

    /// The next event at or before `now_ns`, with its time.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<(u64, E)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at_ns, entry.event))
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at_ns)
    }
}

#[derive(Debug)]
struct Entry<E> {
    at_ns: u64,
    order: u64,
    event: E,
}

/// Reversed, because the heap gives its greatest entry first.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::Timeline;

    #[test]
    fn events_come_in_order_of_time_and_then_of_arrival() {
        let mut timeline = Timeline::new();
        timeline.push(20, 'c');
        timeline.push(10, 'a');
        timeline.push(20, 'd');
        timeline.push(10, 'b');
        assert_eq!(timeline.next_ns(), Some(10));
        assert_eq!(timeline.pop_due(9), None);
        assert_eq!(timeline.pop_due(10), Some((10, 'a')));
        assert_eq!(timeline.pop_due(30), Some((10, 'b')));
        assert_eq!(timeline.pop_due(30), Some((20, 'c')));
        assert_eq!(timeline.pop_due(30), Some((20, 'd')));
        assert_eq!(timeline.pop_due(30), None);
    }
}
