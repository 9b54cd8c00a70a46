//! Neighbouring operations that are handed over together go to the disk as one, as in a block layer.
//!
//! Source: Linux, which puts what a task asks for in one go into a plug, where neighbours are joined before any of them
//! begins; what follows from an answer is not in it. In the logs of geomflash-2015 a write that flashcache cuts into 32
//! reaches the SSD as one, and what it fills after a read as 32.
//!
//! Whether somebody waits for an operation is the driver's word: a kernel thread that writes without `REQ_SYNC` says
//! that nobody does. Such operations are *asynchronous*; which command begins next is the scheduler's decision.

use super::scheduler::Scheduler;
use engine::units::Nanos;
use models::{Disk, Op, Submit};
use slab::Slab;
use std::collections::VecDeque;

/// A command of a disk is not longer. Source: Linux, `max_sectors_kb` of SATA disks.
const COMMAND_BYTES_MAX: u64 = 512 << 10;

/// An operation that waits for its neighbours.
#[derive(Clone, Copy)]
struct Waiting {
    token: u64,
    submit: Submit,
    is_async: bool,
}

/// Operations that wait for their neighbours, and the commands that they became.
#[derive(Default)]
pub(super) struct Plug {
    waiting: Vec<Waiting>,
    /// The operations of each command.
    commands: Slab<Vec<u64>>,
    done: VecDeque<u64>,
    scheduler: Scheduler,
}

impl Plug {
    /// A block layer with this scheduler.
    pub(super) fn new(scheduler: Scheduler) -> Plug {
        Plug { scheduler, ..Plug::default() }
    }

    /// Takes an operation; `is_async` if no request waits for it.
    pub(super) fn submit(&mut self, token: u64, submit: Submit, is_async: bool) {
        self.waiting.push(Waiting { token, submit, is_async });
    }

    /// Hands over the waiting operations, in order of arrival.
    pub(super) fn release(&mut self, now: Nanos, disk: &mut Disk) {
        let mut at = 0;
        while let Some(&first) = self.waiting.get(at) {
            at += 1;
            let (mut start, mut end) = (first.submit.offset_bytes, end_of(&first.submit));
            let mut tokens = vec![first.token];
            while let Some(next) = self.waiting.get(at) {
                let is_same = next.submit.op == first.submit.op
                    && next.is_async == first.is_async
                    && matches!(first.submit.op, Op::Read | Op::Write)
                    && end - start + next.submit.len_bytes <= COMMAND_BYTES_MAX;
                if is_same && next.submit.offset_bytes == end {
                    end = end_of(&next.submit);
                } else if is_same && end_of(&next.submit) == start {
                    start = next.submit.offset_bytes;
                } else {
                    break;
                }
                tokens.push(next.token);
                at += 1;
            }
            let command = self.commands.insert(tokens) as u64;
            let submit = Submit { op: first.submit.op, offset_bytes: start, len_bytes: end - start };
            self.scheduler.submit(now, command, submit, first.is_async, disk);
        }
        self.waiting.clear();
        self.scheduler.unplug(now, disk);
    }

    /// When to poll next.
    pub(super) fn next_ns(&self, disk: &Disk) -> Option<u64> {
        disk.next_ns().into_iter().chain(self.scheduler.next_ns()).min()
    }

    /// The next operation that is done by now.
    pub(super) fn poll(&mut self, now: Nanos, disk: &mut Disk) -> Option<u64> {
        if self.done.is_empty() {
            let completion = self.scheduler.poll(now, disk)?;
            self.done.extend(self.commands.remove(completion.token as usize));
        }
        self.done.pop_front()
    }
}

fn end_of(submit: &Submit) -> u64 {
    submit.offset_bytes + submit.len_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(operations: &[(Op, u64, u64)]) -> Vec<u64> {
        done_async(operations, |_| false)
    }

    /// When operations that are handed over together are done; some are asynchronous.
    fn done_async(operations: &[(Op, u64, u64)], is_async: impl Fn(usize) -> bool) -> Vec<u64> {
        let parameters = models::find("samsung-850-pro").expect("built in");
        let mut disk = Disk::new(&parameters, 1 << 30, 1);
        let mut plug = Plug::new(Scheduler::solid());
        for (token, &(op, offset_bytes, len_bytes)) in (0..).zip(operations) {
            plug.submit(token, Submit { op, offset_bytes, len_bytes }, is_async(token as usize));
        }
        plug.release(Nanos(0), &mut disk);
        let mut times = vec![0; operations.len()];
        while let Some(now_ns) = disk.next_ns() {
            while let Some(token) = plug.poll(Nanos(now_ns), &mut disk) {
                times[token as usize] = now_ns;
            }
        }
        times
    }

    #[test]
    fn neighbours_are_one_command_in_either_direction() {
        let block = 4096;
        let up: Vec<_> = (0..32).map(|at| (Op::Write, at * block, block)).collect();
        let down: Vec<_> = up.iter().rev().copied().collect();
        let apart: Vec<_> = (0..32).map(|at| (Op::Write, at * 2 * block, block)).collect();
        let (up, down, apart) = (done(&up), done(&down), done(&apart));
        assert!(up.iter().all(|time| *time == up[0]) && up == down, "{up:?} {down:?}");
        assert!(apart[31] > apart[0] && apart[31] > up[0], "{apart:?}");
    }

    #[test]
    fn what_differs_or_is_too_long_is_not_joined() {
        let mixed = done(&[(Op::Write, 0, 4096), (Op::Read, 4096, 4096)]);
        assert_ne!(mixed[0], mixed[1]);
        let long = done(&[(Op::Write, 0, COMMAND_BYTES_MAX), (Op::Write, COMMAND_BYTES_MAX, 4096)]);
        assert_ne!(long[0], long[1]);
    }

    #[test]
    fn asynchronous_writes_begin_when_nothing_else_is_under_way() {
        let operations = [(Op::Write, 0, 4096), (Op::Read, 1 << 20, 4096), (Op::Read, 2 << 20, 4096)];
        let together = done(&operations);
        let held = done_async(&operations, |at| at == 0);
        assert!(together[0] < together[1].max(together[2]), "{together:?}");
        assert!(held[0] > held[1].max(held[2]), "{held:?}");
        // Alone it does not wait.
        assert_eq!(done_async(&operations[..1], |_| true), done(&operations[..1]));
    }
}
