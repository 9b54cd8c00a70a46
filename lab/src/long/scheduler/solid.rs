//! CFQ on an SSD: asynchronous commands begin when nothing else is under way, and then all at once.
//!
//! Source, as remembered and not looked up: Linux 3.10, CFQ's `cfq_may_dispatch` (asynchronous requests are held back
//! while a synchronous one is in flight, and are not limited once their queue is the only busy one) and
//! `cfq_should_preempt` (a synchronous request takes their turn away).

use engine::units::Nanos;
use models::{Completion, Disk, Submit};
use std::collections::VecDeque;

/// Commands that are held back, and those under way.
#[derive(Default)]
pub(in crate::long) struct Solid {
    /// Asynchronous commands that were not handed over yet, in order of arrival.
    held: VecDeque<(u64, Submit)>,
    /// Asynchronous commands in the disk, in no order.
    async_in_disk: Vec<u64>,
    /// Other commands in the disk.
    sync_in_disk: usize,
}

impl Solid {
    pub(super) fn submit(&mut self, now: Nanos, token: u64, submit: Submit, is_async: bool, disk: &mut Disk) {
        if is_async {
            self.held.push_back((token, submit));
        } else {
            self.sync_in_disk += 1;
            disk.submit(now.0, token, submit);
        }
    }

    pub(super) fn poll(&mut self, now: Nanos, disk: &mut Disk) -> Option<Completion> {
        let done = disk.poll(now.0)?;
        if let Some(at) = self.async_in_disk.iter().position(|token| *token == done.token) {
            self.async_in_disk.swap_remove(at);
        } else {
            self.sync_in_disk -= 1;
        }
        self.go_on(now, disk);
        Some(done)
    }

    /// Hands over the commands held back, if nothing else is under way.
    pub(super) fn go_on(&mut self, now: Nanos, disk: &mut Disk) {
        if self.sync_in_disk == 0 {
            for (token, submit) in self.held.drain(..) {
                self.async_in_disk.push(token);
                disk.submit(now.0, token, submit);
            }
        }
    }
}
