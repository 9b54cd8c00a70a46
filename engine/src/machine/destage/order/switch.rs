//! The operator's change of a volume's order, while clients use it.
//!
//! Order begins and ends when everything is home: then the origin is a state that its clients flushed, whatever order led
//! there. Changes wait until the new order is durable.

use crate::composition::Composition;
use crate::composition::axes::Axis;
use crate::effect::{Errno, RequestOp, WriteMode};
use crate::limits::Config;
use crate::machine::Machine;
use crate::machine::destage::order::ledger::Ledger;
use crate::machine::request::{RequestKey, Stage};
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::store::Store;
use crate::units::VolumeIndex;
use alloc::boxed::Box;

fn order_of(is_strict: bool) -> &'static str {
    if is_strict { "strict" } else { "free" }
}

impl<S: Store> Machine<S> {
    /// The composition with the order that is asked for, if this cache can have it.
    fn composition_with_order(&self, is_strict: bool) -> Option<Composition> {
        let mut composition = Composition::of(&self.superblock).ok()?;
        composition.choose(Axis::Order, order_of(is_strict)).ok()?;
        // What one volume has to keep until its origin takes it would hold up the ring for the others (rule 9).
        // One that is being added counts.
        let is_alone = self.superblock.volumes.iter().flatten().count() == 1;
        let may_be = composition.validate().is_ok() && (is_alone || !is_strict);
        may_be.then_some(composition)
    }

    pub(crate) fn set_order<M: Memory>(
        &mut self,
        key: RequestKey,
        index: VolumeIndex,
        is_strict: bool,
        memory: &mut M,
    ) {
        let is_writeback = self.volume(index).mode == WriteMode::Writeback;
        if self.composition_with_order(is_strict).is_none() || (is_strict && !is_writeback) {
            self.fail(key, Errno::INVAL, memory);
        } else if self.volume(index).is_ordered() == is_strict {
            self.reply(key, memory);
        } else {
            let volume = self.volume_mut(index);
            volume.destage.begin_drain(volume.dirty_blocks);
            volume.destage.order_changes += 1;
            self.requests.watch(key, Stage::Draining);
            self.want_tick(self.now.plus(self.config.tick_ns));
        }
    }

    /// Looks whether everything is home, so that the order may change.
    pub(crate) fn look_at_order<M: Memory>(&mut self, key: RequestKey, index: VolumeIndex, memory: &mut M) {
        let RequestOp::SetOrder(is_strict) = self.requests[key].op else { unreachable!("a change of order") };
        if self.latched.is_some() {
            self.end_order_change(index);
            self.fail(key, Errno::IO, memory);
            return;
        }
        let volume = self.volume(index);
        // What is on its way into the log is not in the order that begins.
        let is_home = !volume.has_destageable()
            && volume.owed_blocks == 0
            && volume.destage.is_quiet()
            && !S::concerns(self, index)
            && self.store.answered_sequence() <= self.store.completed();
        if !is_home || volume.origin.is_unflushed() {
            // RULE 9: clients do not wait for an origin that is absent. So far nothing has changed.
            if volume.origin.is_absent() && volume.is_ordered() != is_strict {
                self.end_order_change(index);
                self.fail(key, Errno::IO, memory);
                return;
            }
            if is_home {
                let epoch = volume.origin.client_epoch;
                self.want_origin_flush(index, epoch);
            }
            self.requests.watch_on(key);
            return;
        }
        if is_strict && !volume.is_ordered() {
            // What was published up to now is home. Without that record a crash would bring it home once more, beginning with
            // the oldest.
            let published = self.store.completed();
            let mut ledger = Ledger::new(published);
            ledger.record_waits();
            self.volume_mut(index).destage.set_order(Some(Box::new(ledger)));
            self.config.order =
                self.composition_with_order(true).and_then(|c| Config::order_of(&c, &self.config));
            // RULE 14: where a half went out meanwhile, writes go to the origin at once; they would overtake what is to go home.
            self.follow_halves();
            S::record_home(self, index, published);
        }
        let flushed = self.barrier.flushed;
        let ledger = self.volume_mut(index).destage.order.as_mut();
        if ledger.is_some_and(|ledger| !ledger.is_recorded(flushed)) {
            self.requests.watch_on(key);
            return;
        }
        let Some(composition) = self.composition_with_order(is_strict) else {
            self.end_order_change(index);
            self.fail(key, Errno::INVAL, memory);
            return;
        };
        self.superblock.composition = composition.text();
        if !is_strict && !self.is_mutated(Mutation::ForgetOrderEnd) {
            // RULE 14: what went home in order was not recorded piece by piece.
            self.superblock.ordered_sequence = self.store.completed();
        }
        self.note_change(index, "order", order_of(!is_strict), order_of(is_strict));
        let update = self.superblock_writer.change(&mut self.superblock);
        self.requests.watch(key, Stage::Superblock(update));
    }

    /// The new order is durable.
    pub(crate) fn order_is_durable(&mut self, index: VolumeIndex, is_strict: bool) {
        if !is_strict {
            // A write that read the rest of its block when all else was home may have come since: it goes home in any order.
            let ledger = self.volume_mut(index).destage.order.take();
            for left in ledger.into_iter().flat_map(|ledger| ledger.into_intervals()) {
                S::interval_is_free(self, &left);
            }
            self.volume_mut(index).destage.set_order(None);
            self.config.order = None;
            self.follow_halves();
        }
        self.end_order_change(index);
    }

    /// Lets changes go on that waited for a change of order.
    pub(crate) fn end_order_change(&mut self, index: VolumeIndex) {
        let destage = &mut self.volume_mut(index).destage;
        destage.order_changes -= 1;
        destage.drains -= 1;
        self.share.wake();
    }
}
