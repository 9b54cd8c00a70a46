//! CFQ on a disk that turns: reads, which are waited for, go before writes, which are not.
//!
//! Source: CFQ of Linux 4.4, read in part; its times for idling, turns of writes and expiry are its defaults as remembered, not
//! looked up. It was the default of its time for disks that turn. Its time goes in turns to kinds of
//! requests. Reads at random places are one kind, whoever asks; what the page cache and kernel threads write is another
//! (asynchronous), and all of it is one queue.
//!
//! * A turn of the reads lasts their part of [`LATENCY_NS`], as they are so many queues of all. Within it the disk rather
//!   waits for the next read, for [`IDLE_NS`], than begins a write.
//! * When it is over, writes begin as soon as no read is in the disk. A read that comes before that takes the turn away
//!   from them: beside several readers writes hardly ever begin.
//! * No read begins before the writes in the disk are done.
//! * Writes leave in the order of an elevator, but one that has waited for [`EXPIRY_NS`] comes first, once in
//!   [`WRITES_TURN_NS`].
//!
//! Left out: sequential readers are a kind of their own, with turns for each; fewer writes at a time after a read that took
//! long; what a process writes and waits for (direct, or `fsync`) counts as a read does. How many readers there are is
//! taken from how many reads were under way at a time.

use engine::units::Nanos;
use models::{Completion, Disk, Submit};
use std::collections::{BTreeMap, VecDeque};

/// `target_latency`: in so long each kind has its turn.
const LATENCY_NS: u64 = 300 * Nanos::MILLISECOND;
/// `slice_idle`.
const IDLE_NS: u64 = 8 * Nanos::MILLISECOND;
/// `slice_async`.
const WRITES_TURN_NS: u64 = 40 * Nanos::MILLISECOND;
/// `fifo_expire_async`.
const EXPIRY_NS: u64 = 250 * Nanos::MILLISECOND;
/// Writes in the disk at a time: its queue has 32 places, of which Linux uses one less.
const WRITES_MAX: usize = 31;

/// Commands that wait, and whose turn it is.
#[derive(Default)]
pub(in crate::long) struct Turning {
    /// Writes by place, and those at one place by their number.
    writes: BTreeMap<(u64, u64), Submit>,
    /// The same in the order in which they came: when, and the key.
    arrivals: VecDeque<(Nanos, (u64, u64))>,
    /// Reads, and other commands that are waited for, that came while writes were in the disk.
    reads: VecDeque<(u64, Submit)>,
    /// Writes in the disk, in no order.
    writes_in_disk: Vec<u64>,
    reads_in_disk: usize,
    /// The most reads at a time in this turn, and in the one before.
    readers: [usize; 2],
    /// When the turn of the reads is over.
    turn_ends: Nanos,
    last_read: Option<Nanos>,
    /// When a write that waited too long may be next.
    expiry_at: Nanos,
    /// The end of the last write.
    head_byte: u64,
}

impl Turning {
    pub(super) fn submit(&mut self, now: Nanos, token: u64, submit: Submit, is_async: bool, disk: &mut Disk) {
        if is_async {
            let key = (submit.offset_bytes, token);
            self.writes.insert(key, submit);
            self.arrivals.push_back((now, key));
        } else {
            if now >= self.turn_ends {
                self.begin_turn(now);
            }
            self.reads.push_back((token, submit));
        }
        self.go_on(now, disk);
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        let is_waiting = !self.writes.is_empty() && self.reads_in_disk == 0 && self.reads.is_empty();
        (is_waiting && self.writes_in_disk.len() < WRITES_MAX).then(|| self.idle_until().0)
    }

    pub(super) fn poll(&mut self, now: Nanos, disk: &mut Disk) -> Option<Completion> {
        self.go_on(now, disk);
        let done = disk.poll(now.0)?;
        if let Some(at) = self.writes_in_disk.iter().position(|token| *token == done.token) {
            self.writes_in_disk.swap_remove(at);
        } else {
            self.reads_in_disk -= 1;
            self.last_read = Some(now);
        }
        self.go_on(now, disk);
        Some(done)
    }

    /// Until when a read is rather waited for than a write begun.
    fn idle_until(&self) -> Nanos {
        let idle_until = self.last_read.map_or(Nanos(0), |at| at.plus(IDLE_NS));
        idle_until.min(self.turn_ends)
    }

    fn begin_turn(&mut self, now: Nanos) {
        self.readers = [0, self.readers[0]];
        let readers = self.readers[1].max(1) as u64;
        self.turn_ends = now.plus(LATENCY_NS * readers / (readers + 1));
    }

    /// Hands over what may be.
    fn go_on(&mut self, now: Nanos, disk: &mut Disk) {
        if self.writes_in_disk.is_empty() {
            while let Some((token, submit)) = self.reads.pop_front() {
                self.reads_in_disk += 1;
                disk.submit(now.0, token, submit);
            }
            self.readers[0] = self.readers[0].max(self.reads_in_disk);
        }
        let is_reading = self.reads_in_disk > 0 || !self.reads.is_empty();
        if is_reading || now < self.idle_until() {
            return;
        }
        while self.writes_in_disk.len() < WRITES_MAX {
            let Some((token, submit)) = self.next_write(now) else { break };
            self.writes_in_disk.push(token);
            disk.submit(now.0, token, submit);
        }
    }

    fn next_write(&mut self, now: Nanos) -> Option<(u64, Submit)> {
        while self.arrivals.front().is_some_and(|(_, key)| !self.writes.contains_key(key)) {
            self.arrivals.pop_front();
        }
        let mut next = None;
        if now >= self.expiry_at {
            let overdue = self.arrivals.front().filter(|(came, _)| now >= came.plus(EXPIRY_NS));
            next = overdue.map(|(_, key)| *key);
            self.expiry_at = now.plus(WRITES_TURN_NS);
        }
        let ahead =
            || self.writes.range((self.head_byte, 0)..).next().or_else(|| self.writes.first_key_value());
        let key = next.or_else(|| ahead().map(|(key, _)| *key))?;
        let submit = self.writes.remove(&key)?;
        self.head_byte = submit.offset_bytes + submit.len_bytes;
        Some((key.1, submit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::Op;

    const BLOCK_BYTES: u64 = 256 << 10;

    /// Reads and writes done in 10 s, by so many readers without a pause and three writes under way.
    fn done(readers: u64, is_scheduled: bool) -> (u64, u64) {
        let parameters = models::find("samsung-hd155ui").expect("built in");
        let mut disk = Disk::new(&parameters, 1 << 40, 1);
        let mut scheduler = Turning::default();
        let mut due: Vec<(u64, bool, u64)> = (0..readers).map(|at| (at, true, at)).collect();
        due.extend((0..3).map(|at| (at, false, readers + at)));
        let (mut now, mut reads, mut writes, mut number) = (Nanos(0), 0, 0, 0u64);
        while now.0 < 10 * Nanos::SECOND {
            due.sort_unstable();
            while due.first().is_some_and(|(at, ..)| *at <= now.0) {
                let (_, is_read, token) = due.remove(0);
                number += 1;
                let offset_bytes = number * 7_919_999_999 % (1 << 40) / BLOCK_BYTES * BLOCK_BYTES;
                let op = if is_read { Op::Read } else { Op::Write };
                let len_bytes = if is_read { 4096 } else { BLOCK_BYTES };
                let submit = Submit { op, offset_bytes, len_bytes };
                match is_scheduled {
                    true => scheduler.submit(now, token, submit, !is_read, &mut disk),
                    false => disk.submit(now.0, token, submit),
                }
            }
            let mut next_ns = disk.next_ns().unwrap_or(u64::MAX);
            next_ns = next_ns.min(due.first().map_or(u64::MAX, |due| due.0));
            next_ns = next_ns.min(scheduler.next_ns().unwrap_or(u64::MAX));
            now = now.max(Nanos(next_ns));
            loop {
                let completion = if is_scheduled { scheduler.poll(now, &mut disk) } else { disk.poll(now.0) };
                let Some(completion) = completion else { break };
                let is_read = completion.token < readers;
                *if is_read { &mut reads } else { &mut writes } += 1;
                let pause_ns = if is_read { 0 } else { Nanos::MILLISECOND };
                due.push((now.0 + pause_ns, is_read, completion.token));
            }
        }
        (reads, writes)
    }

    #[test]
    fn a_reader_keeps_most_of_the_disk_to_itself() {
        let (alone, beside) = (done(1, false), done(1, true));
        // Three in some 150 ms.
        assert!((150..=200).contains(&beside.1), "{beside:?}");
        assert!(beside.0 * 2 > alone.0 * 3, "{beside:?} {alone:?}");
    }

    #[test]
    fn the_next_read_is_waited_for() {
        let mut disk = Disk::new(&models::find("samsung-hd155ui").expect("built in"), 1 << 40, 1);
        let mut scheduler = Turning::default();
        let read = Submit { op: Op::Read, offset_bytes: 1 << 39, len_bytes: 4096 };
        scheduler.submit(Nanos(0), 0, read, false, &mut disk);
        let mut now = Nanos(0);
        while scheduler.poll(now, &mut disk).is_none() {
            now = Nanos(disk.next_ns().expect("a read is under way"));
        }
        let write = Submit { op: Op::Write, offset_bytes: 0, len_bytes: BLOCK_BYTES };
        scheduler.submit(now, 1, write, true, &mut disk);
        assert_eq!((scheduler.writes_in_disk.len(), scheduler.next_ns()), (0, Some(now.0 + IDLE_NS)));
        scheduler.poll(now.plus(IDLE_NS), &mut disk);
        assert_eq!(scheduler.writes_in_disk.len(), 1);
    }

    #[test]
    fn beside_several_readers_writes_hardly_begin() {
        let (one, three) = (done(1, true), done(3, true));
        assert!(three.1 * 10 < one.1, "{three:?} {one:?}");
    }

    #[test]
    fn writes_have_the_disk_when_nobody_reads() {
        let mut disk = Disk::new(&models::find("samsung-hd155ui").expect("built in"), 1 << 40, 1);
        let mut scheduler = Turning::default();
        let write = |at| Submit { op: Op::Write, offset_bytes: at * BLOCK_BYTES, len_bytes: BLOCK_BYTES };
        (0..100).for_each(|token| scheduler.submit(Nanos(0), token, write(100 - token), true, &mut disk));
        assert_eq!(scheduler.writes_in_disk.len(), WRITES_MAX);
        let read = Submit { op: Op::Read, offset_bytes: 1 << 39, len_bytes: 4096 };
        scheduler.submit(Nanos(1), 100, read, false, &mut disk);
        let mut order = Vec::new();
        let mut now = Nanos(0);
        while order.len() < 101 {
            while let Some(completion) = scheduler.poll(now, &mut disk) {
                order.push(completion.token);
            }
            let next_ns = disk.next_ns().into_iter().chain(scheduler.next_ns()).min().unwrap_or(now.0);
            now = now.max(Nanos(next_ns));
        }
        // The read waits for those that were in the disk before it, and no others.
        assert_eq!(order.iter().position(|token| *token == 100), Some(WRITES_MAX));
    }
}
