//! The commands a disk has been given: waiting for a place in its queue, under way, done.

use crate::operation::{Completion, Op, Submit};
use alloc::collections::VecDeque;

/// A command as the disk keeps it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) token: u64,
    pub(crate) op: Op,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

impl Command {
    pub(crate) fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.len_bytes
    }
}

/// The host's side of a disk.
#[derive(Debug)]
pub(crate) struct Commands {
    waiting: VecDeque<Command>,
    done: VecDeque<Completion>,
    under_way: u64,
    flushes_under_way: u64,
    depth: u64,
    /// A flush is begun when nothing else is under way, and nothing else is begun before it is
    /// done. That is how a host must treat the flush command of SATA, which cannot be queued.
    flush_exclusive: bool,
    size_bytes: u64,
    now_ns: u64,
}

impl Commands {
    pub(crate) fn new(size_bytes: u64, depth: u64, flush_exclusive: bool) -> Commands {
        Commands {
            waiting: VecDeque::new(),
            done: VecDeque::new(),
            under_way: 0,
            flushes_under_way: 0,
            depth,
            flush_exclusive,
            size_bytes,
            now_ns: 0,
        }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Notes that the time is `now_ns`.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        assert!(now_ns >= self.now_ns, "time went back from {} to {now_ns} ns", self.now_ns);
        self.now_ns = now_ns;
    }

    /// Queues a command.
    pub(crate) fn submit(&mut self, token: u64, submit: Submit) {
        let Submit { op, offset_bytes, len_bytes } = submit;
        if op == Op::Flush {
            self.waiting.push_back(Command { token, op, offset_bytes: 0, len_bytes: 0 });
            return;
        }
        assert!(len_bytes > 0, "an operation has at least one byte");
        assert!(
            offset_bytes <= self.size_bytes && len_bytes <= self.size_bytes - offset_bytes,
            "{len_bytes} bytes at {offset_bytes} are outside a disk of {} bytes",
            self.size_bytes
        );
        self.waiting.push_back(Command { token, op, offset_bytes, len_bytes });
    }

    /// The next command that the disk may begin.
    pub(crate) fn admit(&mut self) -> Option<Command> {
        if self.under_way >= self.depth {
            return None;
        }
        let is_flush = self.waiting.front()?.op == Op::Flush;
        if self.flush_exclusive && (self.flushes_under_way > 0 || (is_flush && self.under_way > 0)) {
            return None;
        }
        self.under_way += 1;
        self.flushes_under_way += u64::from(is_flush);
        self.waiting.pop_front()
    }

    /// Notes that an admitted command is done. Must be called in the order of time.
    pub(crate) fn complete(&mut self, command: Command, done_ns: u64) {
        assert!(self.under_way > 0, "only a command that is under way can be done");
        self.under_way -= 1;
        self.flushes_under_way -= u64::from(command.op == Op::Flush);
        self.done.push_back(Completion { token: command.token, done_ns });
    }

    /// The next completion to hand out.
    pub(crate) fn pop_done(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    /// The time of the driver's next poll, if the disk itself will next change at `event_ns`.
    pub(crate) fn next_ns(&self, event_ns: Option<u64>) -> Option<u64> {
        if let Some(completion) = self.done.front() {
            return Some(completion.done_ns);
        }
        if self.under_way == 0 {
            return None;
        }
        assert!(event_ns.is_some(), "a command is under way that nothing will ever end");
        event_ns
    }
}

#[cfg(test)]
mod tests {
    use super::Commands;
    use crate::operation::{Op, Submit};

    fn submit(op: Op) -> Submit {
        Submit { op, offset_bytes: 0, len_bytes: 4096 }
    }

    #[test]
    fn the_queue_is_as_deep_as_stated() {
        let mut commands = Commands::new(1 << 20, 2, false);
        for token in 0..3 {
            commands.submit(token, submit(Op::Read));
        }
        let first = commands.admit().unwrap();
        assert!(commands.admit().is_some());
        assert!(commands.admit().is_none());
        commands.complete(first, 5);
        assert_eq!(commands.admit().unwrap().token, 2);
    }

    #[test]
    fn an_exclusive_flush_is_alone() {
        let mut commands = Commands::new(1 << 20, 8, true);
        commands.submit(0, submit(Op::Write));
        commands.submit(1, submit(Op::Flush));
        commands.submit(2, submit(Op::Read));
        let write = commands.admit().unwrap();
        assert!(commands.admit().is_none());
        commands.complete(write, 5);
        let flush = commands.admit().unwrap();
        assert_eq!(flush.token, 1);
        assert!(commands.admit().is_none());
        commands.complete(flush, 9);
        assert_eq!(commands.admit().unwrap().token, 2);
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn a_range_outside_the_disk_is_refused() {
        let mut commands = Commands::new(1 << 20, 8, true);
        commands.submit(0, Submit { op: Op::Read, offset_bytes: u64::MAX - 1, len_bytes: 4096 });
    }
}
