//! A cache that fails: it is not written any more, and no request gets old data because of it (hazard 10).
//!
//! Volumes whose origin has all that was acknowledged go on with it alone, but only once the driver has noted
//! durably that their cache is given up: else an SSD that comes back would bring old data with it. Another
//! volume keeps answering for what the origin or the cache can still give, and fails its writes.

use crate::effect::{Effect, Errno, IoOp, Notice, Target};
use crate::machine::Machine;
use crate::machine::flight::Flight;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::{RequestKey, Route, Stage, Then};
use crate::machine::volume::Standing;
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::store::Store;
use crate::units::VolumeIndex;
use alloc::vec::Vec;

impl<S: Store> Machine<S> {
    /// Stops writing to the cache: it failed a write or a flush of the engine's, or is gone.
    pub(crate) fn latch<M: Memory>(&mut self, errno: Errno, memory: &mut M) {
        if self.latched.is_some() {
            return;
        }
        self.latched = Some(errno);
        self.push(Effect::Notice(Notice::CacheLatched { errno }));
        S::discard_pending(self, memory);
        self.neighbours.clear(None, memory);
        self.ahead.clear(None, memory);
        // HAZARD 10: no write passes a failed cache before that is durably noted: the cache may come back,
        // with old data.
        let is_hasty = self.is_mutated(Mutation::BypassBeforeAbandoned);
        let is_owing_given_up = self.is_mutated(Mutation::OwingGivenUp);
        for at in 0..self.volumes.end() {
            let Some(volume) = &mut self.volumes[at] else { continue };
            let index = volume.index;
            if volume.owes_origin() && !is_owing_given_up {
                volume.standing = Standing::Failed;
            } else {
                volume.standing = if is_hasty { Standing::Uncached } else { Standing::Abandoning };
                self.issue(Target::State, IoOp::Abandon(index), Flight::Abandon { volume: index });
            }
        }
        self.release_deferred(memory);
        let keys: Vec<RequestKey> = self.requests.iter().map(|(key, _)| key).collect();
        for key in keys {
            let Some(active) = self.requests.get(key) else { continue };
            match active.stage {
                Stage::Appending if !S::is_writing(self, key) => self.cut_off(key, memory),
                Stage::CacheFlush(_, Then::Forgotten) | Stage::Forgetting | Stage::Settling | Stage::Room => {
                    self.requests.unwatch(key);
                    self.cut_off(key, memory);
                }
                // It is not at the origin yet, and goes there once the cache is given up.
                Stage::CacheFlush(_, Then::Origin) if self.volume(active.volume).is_given_up() => {
                    self.requests.unwatch(key);
                    self.cut_off(key, memory);
                }
                Stage::Commit => self.start_flush(key, memory),
                // The failed cache can make nothing durable any more.
                Stage::CacheFlush(..) | Stage::Superblock(_) | Stage::Draining => {
                    self.requests.unwatch(key);
                    self.fail(key, errno, memory);
                }
                Stage::Barrier { .. } if self.volume(active.volume).standing == Standing::Failed => {
                    self.requests.unwatch(key);
                    self.fail(key, errno, memory);
                }
                _ => (),
            }
        }
    }

    /// Turns back a change that was on its way into the log.
    pub(crate) fn cut_off<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let volume_index = self.requests[key].volume;
        self.requests[key].unpublished = 0;
        if self.requests[key].is_answered {
            // The client has its answer already.
            self.reply(key, memory);
            return;
        }
        match self.volume(volume_index).standing {
            Standing::Abandoning => self.requests[key].stage = Stage::Abandoning,
            Standing::Uncached => self.begin_again(key, memory),
            _ => self.fail(key, Errno::IO, memory),
        }
    }

    /// Starts a change once more, by whatever way is open now.
    pub(crate) fn begin_again<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        self.requests.release_work(key, memory);
        let active = &mut self.requests[key];
        active.route = Route::Origin;
        if let Some(range) = active.written() {
            // It takes a row along anew, or none.
            active.blocks = Blocks::touched_by(range);
        }
        self.begin_change(key, memory);
    }

    /// Turns a shared hold into a merging one; false if the request has to wait for that in the guard's queue.
    pub(crate) fn unshare(&mut self, key: RequestKey) -> bool {
        self.requests[key].hold != Some(Hold::Shared) || self.merge_alone(key)
    }

    /// Turns a beside hold into a merging one; false if the request has to wait for that in the guard's queue.
    pub(crate) fn leave_others(&mut self, key: RequestKey) -> bool {
        self.requests[key].hold != Some(Hold::Beside) || self.merge_alone(key)
    }

    #[cold]
    fn merge_alone(&mut self, key: RequestKey) -> bool {
        self.release_hold(key);
        self.requests[key].hold = Some(Hold::Merging);
        if self.take_hold(key) {
            return true;
        }
        // The holder of these blocks may wait for a share: the one granted here goes back until the blocks are free.
        self.release_share(key, u64::MAX);
        self.share.wake();
        false
    }

    pub(crate) fn abandon_done<M: Memory>(
        &mut self,
        volume_index: VolumeIndex,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let is_hasty = self.is_mutated(Mutation::BypassBeforeAbandoned);
        let is_unnoted_fine = self.is_mutated(Mutation::BypassUnnoted);
        let volume = self.volume_mut(volume_index);
        assert!(
            volume.standing == Standing::Abandoning || is_hasty,
            "a volume is given up once, when the cache failed (hazard 10)"
        );
        // HAZARD 10: a failed cache of which that is not noted is not passed by.
        let is_noted = result.is_ok() || is_unnoted_fine;
        volume.standing = if is_noted { Standing::Uncached } else { Standing::Failed };
        if is_noted {
            S::drop_volume(self, volume_index);
            self.push(Effect::Notice(Notice::Uncached { volume: volume_index }));
        }
        let of_volume = self.requests.iter().filter(|(_, active)| active.volume == volume_index);
        let waiting: Vec<(RequestKey, Stage)> = of_volume.map(|(key, active)| (key, active.stage)).collect();
        for (key, stage) in waiting {
            match stage {
                Stage::Abandoning => self.begin_again(key, memory),
                Stage::Barrier { .. } if !is_noted => {
                    self.requests.unwatch(key);
                    self.fail(key, Errno::IO, memory);
                }
                _ => (),
            }
        }
    }
}
