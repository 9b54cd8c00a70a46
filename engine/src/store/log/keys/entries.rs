//! Appends and publications that a log of keys alone has.

use super::super::LogStore;
use super::super::appender::Appender;
use super::super::draft::{Draft, range_entry};
use crate::format::EntryKind;
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::RequestKey;
use crate::memory::Memory;
use crate::units::{BlockKey, Place, VolumeId, VolumeIndex};

/// Waits on behalf of the log itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyAppend {
    /// Keys that stay when their segment is emptied.
    Rekey { segment: u32, first: BlockKey, blocks: u64, place: Place },
    /// A bucket is about to be written anew.
    Freed { bucket: u32 },
    /// Frames are void; by the number of their record.
    Leave { number: u64 },
}

/// Part of a batch's publication.
pub(in crate::store::log) enum KeyPublish {
    /// The data in a bucket up to a block has its key.
    Placed {
        /// By the number of `Segments`; none for zeroes.
        space: Option<(u32, u32)>,
        /// Blocks that a start verifies until a flush covers the key.
        verified_blocks: u64,
    },
    /// A key that the index has already; of a fill, if there is no request.
    Applied { request: Option<RequestKey>, volume: VolumeIndex, blocks: Blocks },
    /// Keys were appended again.
    Rekeyed { segment: u32, volume: VolumeIndex, blocks: Blocks },
    /// A bucket's places are void.
    Freed { bucket: u32 },
    /// Frames are void; by the number of their record.
    Left { number: u64 },
}

impl KeyAppend {
    /// The volume that has to stay for it.
    pub fn volume(&self) -> Option<VolumeIndex> {
        match self {
            KeyAppend::Rekey { first, .. } => Some(first.volume()),
            KeyAppend::Freed { .. } | KeyAppend::Leave { .. } => None,
        }
    }

    /// Whether it takes something out of the oldest segment.
    pub fn empties(&self) -> bool {
        match self {
            KeyAppend::Rekey { .. } => true,
            KeyAppend::Freed { .. } | KeyAppend::Leave { .. } => false,
        }
    }
}

impl KeyPublish {
    /// The request that waits for it.
    pub fn request(&self) -> Option<RequestKey> {
        match self {
            KeyPublish::Applied { request, .. } => *request,
            KeyPublish::Placed { .. }
            | KeyPublish::Rekeyed { .. }
            | KeyPublish::Freed { .. }
            | KeyPublish::Left { .. } => None,
        }
    }

    /// The volume that has to stay for it.
    pub fn volume(&self) -> Option<VolumeIndex> {
        match self {
            KeyPublish::Applied { volume, .. } | KeyPublish::Rekeyed { volume, .. } => Some(*volume),
            KeyPublish::Placed { .. } | KeyPublish::Freed { .. } | KeyPublish::Left { .. } => None,
        }
    }
}

impl Machine<LogStore> {
    /// Puts an append into a batch. Returns it if the batch has no room for it.
    pub(in crate::store::log) fn gather_key_append(
        &mut self,
        append: KeyAppend,
        draft: &mut Draft,
    ) -> Option<KeyAppend> {
        match append {
            KeyAppend::Rekey { segment, first, blocks, place } => {
                let has_room = self.gather_rekey(segment, (first, blocks, place), draft);
                (!has_room).then_some(append)
            }
            KeyAppend::Leave { number } => {
                let has_room = self.gather_leave(number, draft);
                if has_room {
                    draft.push_key_publish(KeyPublish::Left { number });
                }
                (!has_room).then_some(append)
            }
            KeyAppend::Freed { bucket } => {
                let (place, blocks) = self.store.appender.keys().buckets.run_of(bucket);
                let all = Blocks { first: 0, count: u64::from(blocks) };
                let volume = VolumeId(u32::MAX);
                draft.entries.push(range_entry(EntryKind::Freed, volume, all, 0, u64::from(place.0)));
                draft.push_key_publish(KeyPublish::Freed { bucket });
                None
            }
        }
    }

    /// An append never gets into a batch.
    pub(in crate::store::log) fn forget_key_append(&mut self, append: KeyAppend) {
        match append {
            KeyAppend::Rekey { segment, .. } => self.rekeyed(segment),
            KeyAppend::Freed { .. } | KeyAppend::Leave { .. } => (),
        }
    }

    /// A batch is on the device, and so are all before it.
    pub(in crate::store::log) fn publish_keys<M: Memory>(&mut self, publish: KeyPublish, memory: &mut M) {
        let published = self.store.log.published;
        match publish {
            KeyPublish::Placed { space, verified_blocks } => {
                self.flush_keys_in_time(verified_blocks);
                self.key_left_batch(space);
                self.store.log.ends.extend(space.map(|(segment, end_block)| (published, segment, end_block)));
            }
            KeyPublish::Applied { request, volume, blocks } => {
                self.publish_applied(request, volume, blocks, memory);
            }
            KeyPublish::Rekeyed { segment, volume, blocks } => {
                self.release_guard(volume, blocks, Hold::Copying);
                self.rekeyed(segment);
            }
            KeyPublish::Freed { bucket } => {
                self.store.appender.keys_mut().buckets.recorded(bucket, published);
            }
            KeyPublish::Left { number } => {
                self.store.appender.frames_mut().places.recorded(number, published);
            }
        }
    }

    /// Wants a flush if a start had to verify too much that keys lead to.
    fn flush_keys_in_time(&mut self, blocks: u64) {
        let LogStore { log, appender: Appender::Keys(_), .. } = &mut self.store else { return };
        log.unflushed_key_blocks += blocks;
        if log.unflushed_key_blocks > self.config.unflushed_blocks_max {
            log.unflushed_key_blocks = 0;
            self.barrier.want(log.published);
        }
    }

    /// The cache failed: a batch never was. The request that was to be published with it.
    pub(in crate::store::log) fn discard_key_publish(&mut self, publish: KeyPublish) -> Option<RequestKey> {
        match publish {
            KeyPublish::Placed { space, .. } => self.key_left_batch(space),
            KeyPublish::Applied { request: Some(request), volume, blocks } => {
                self.release_guard(volume, blocks, Hold::Publishing);
                return Some(request);
            }
            KeyPublish::Applied { request: None, volume, blocks } => {
                self.release_guard(volume, blocks, Hold::Copying);
            }
            KeyPublish::Rekeyed { segment, volume, blocks } => {
                self.release_guard(volume, blocks, Hold::Copying);
                self.rekeyed(segment);
            }
            KeyPublish::Freed { .. } | KeyPublish::Left { .. } => (),
        }
        None
    }

    /// A key's batch was published, or never was.
    fn key_left_batch(&mut self, space: Option<(u32, u32)>) {
        let LogStore { appender, segments, .. } = &mut self.store;
        let keys = appender.keys_mut();
        keys.published_keys += 1;
        match space {
            Some((segment, _)) => segments.get_mut(segment).pins -= 1,
            None => keys.count_zeroes(false),
        }
    }
}
