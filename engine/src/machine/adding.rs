//! A volume that is put on the cache while others are served (rule 11).

use crate::effect::{Errno, WriteMode};
use crate::format::VolumeRecord;
use crate::machine::Machine;
use crate::machine::destage::order::ledger::Ledger;
use crate::machine::request::{RequestKey, Stage};
use crate::machine::volume::Volume;
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::store::Store;
use crate::units::{SECTORS_PER_BLOCK, VolumeId, VolumeIndex};
use alloc::boxed::Box;
use alloc::string::String;

/// A volume that is to be added.
pub(crate) struct Proposed {
    record: VolumeRecord,
    can_discard: bool,
}

impl<S: Store> Machine<S> {
    pub(crate) fn propose(&mut self, record: VolumeRecord, can_discard: bool) {
        self.proposed = Some(Proposed { record, can_discard });
    }

    /// Enters the proposed volume into the superblock; it begins when that is durable.
    pub(crate) fn add<M: Memory>(&mut self, key: RequestKey, index: VolumeIndex, memory: &mut M) {
        let Some(Proposed { record, can_discard }) = self.proposed.take() else {
            self.fail(key, Errno::INVAL, memory);
            return;
        };
        // Where one was taken off, that is durable: only then its place is empty.
        let is_empty = self.volumes[index.at()].is_none() && self.superblock.volumes[index.at()].is_none();
        // RULE 11: no number is used twice, or the entries of a volume that is gone would count for this one.
        let is_reused = self.is_mutated(Mutation::ReuseVolumeId);
        let number = if is_reused { to_u32(index.at()) + 1 } else { self.superblock.next_volume_id };
        let id = VolumeId(number);
        let mut superblock = self.superblock.clone();
        superblock.next_volume_id = superblock.next_volume_id.saturating_add(u32::from(!is_reused));
        superblock.volumes[index.at()] = Some(VolumeRecord { id, ..record.clone() });
        // RULE 14: what one volume has to keep in the ring would hold up the others.
        let changes_order = self.volumes.iter().flatten().any(|volume| volume.destage.order_changes > 0);
        let is_strict = self.config.order.is_some() || changes_order;
        let is_one_too_many = is_strict && self.superblock.volumes.iter().any(Option::is_some);
        // Nor does its order begin with a later change of the mode.
        let is_unordered = is_strict && record.mode != WriteMode::Writeback;
        if !is_empty || is_one_too_many || is_unordered || superblock.validate().is_err() {
            self.fail(key, Errno::INVAL, memory);
            return;
        }
        let blocks = record.size_sectors.div_ceil(SECTORS_PER_BLOCK);
        self.superblock = superblock;
        self.entered.push((index, can_discard));
        let floor = S::volume_comes(self, index, id, blocks);
        if let Some(record) = &mut self.superblock.volumes[index.at()] {
            record.clean_floor_sequence = floor;
        }
        let origin =
            self.superblock.volumes[index.at()].as_ref().map_or_else(String::new, |r| r.origin.clone());
        self.note_change(index, "origin", "", &origin);
        let update = self.superblock_writer.change(&mut self.superblock);
        // RULE 11: a volume takes requests when it is durably on the cache, or a crash would take it away with all
        // that was written to it.
        let is_hasty = self.is_mutated(Mutation::AddBeforeDurable);
        self.requests.watch(key, Stage::Superblock(if is_hasty { 0 } else { update }));
    }

    /// The superblock with the new volume is durable.
    pub(crate) fn begin_added(&mut self, index: VolumeIndex) {
        let entered = self.entered.iter().position(|(entered, _)| *entered == index);
        let (Some(at), Some(record)) = (entered, &self.superblock.volumes[index.at()]) else {
            unreachable!("a volume that begins was entered")
        };
        let mut volume = Volume::new(index, record);
        (_, volume.origin.can_discard) = self.entered.swap_remove(at);
        volume.guard.mutations = self.config.mutations;
        if self.config.order.is_some() {
            volume.destage.set_order(Some(Box::new(Ledger::new(self.store.completed()))));
        }
        // This request.
        volume.active = 1;
        self.volumes.enter(volume);
        self.neighbours.forget_lessons(index);
        self.outbox.count_anew(index);
        // One device does the work of both: it takes nothing dirty.
        self.follow_halves();
    }
}
