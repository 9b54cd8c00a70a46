//! Requests that wait until their volume may hold more dirty blocks.

use crate::machine::request::RequestKey;
use crate::units::VolumeIndex;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The requests that wait for their volume's share.
#[derive(Debug, Default)]
pub(crate) struct ShareQueue {
    /// In [`crate::machine::request::Stage::Share`], first come first.
    waiting: VecDeque<RequestKey>,
    /// Volumes whose origins began to fail, or became absent: their writes queued for the log are looked at again.
    failed: Vec<VolumeIndex>,
    /// Something happened that may let a request go on.
    is_changed: bool,
}

impl ShareQueue {
    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A request joins the queue, after it was given [`crate::machine::request::Stage::Share`].
    pub fn wait(&mut self, key: RequestKey) {
        self.waiting.push_back(key);
    }

    /// Whether something happened that concerns requests on the queue.
    #[inline]
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The volumes whose origins got worse, if something happened that concerns requests on the queue.
    #[inline]
    pub fn take_failed(&mut self) -> Option<Vec<VolumeIndex>> {
        core::mem::take(&mut self.is_changed).then(|| core::mem::take(&mut self.failed))
    }

    /// The requests to look at again, first come first; those that still have to wait join the queue once more.
    pub fn take_waiting(&mut self) -> VecDeque<RequestKey> {
        core::mem::take(&mut self.waiting)
    }

    /// Marks that something happened that may let a request go on, or makes waiting hopeless.
    pub fn wake(&mut self) {
        self.is_changed = true;
    }

    /// Notes that a working origin failed, or that a failing one is absent.
    pub fn origin_got_worse(&mut self, volume: VolumeIndex) {
        self.failed.push(volume);
        self.is_changed = true;
    }
}
