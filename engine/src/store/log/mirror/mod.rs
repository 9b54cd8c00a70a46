//! `mirror`: dirty data lies in the ring and in memory, both. After gflash.
//!
//! | | inline | mirror |
//! | --- | --- | --- |
//! | a batch | what waits | the same, of so many writes at the most |
//! | dirty data is read, goes home and is moved | from the device | from memory; after a crash from the device |
//! | writes wait for room | in the ring | in the ring and in memory |
//! | a write is answered | when its batch is published | without `safe` when it is in memory, as long as few such are unpublished |
//!
//! A write that is answered early keeps its blocks until it is published, so that all that is decided by the index
//! waits for it: partial writes, whatever goes around the cache. Reads look into memory first. What a crash loses of
//! them is what was answered last: nobody is answered early while a change of the same volume is under way that
//! could be answered later and survive.
//!
//! | file | subject |
//! | --- | --- |
//! | `memory.rs` | the frames |
//! | `groups.rs` | what goes into a batch and when; early answers |
//!
//! Source: gflash 14 of 2015, observed from outside (guide and logs): one block of metadata for four writes of any length,
//! "up to four last writes" lost in a crash, no reads of the SSD by what goes home. Ours: how long a group that nobody waits
//! for is held open, that FLUSH waits for what was answered early, that a clean stop leaves what is dirty in the
//! ring. Not imitated: gflash goes on from memory when its SSD fails.

mod groups;
mod memory;

use super::LogStore;
use crate::composition::Composition;
use crate::composition::axes::PersistenceChoice;
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::machine::request::RequestKey;
use crate::memory::{BufferId, Memory};
use crate::number::to_u32;
use crate::units::{BLOCK_BYTES, Nanos};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
pub(super) use groups::Mirrored;
pub(crate) use memory::Frames;

/// A write, or what is left of it, that is in memory and in no batch.
#[derive(Debug)]
struct Taken {
    request: RequestKey,
    blocks: Blocks,
    /// One for each block, with the batch's reference.
    frames: Vec<BufferId>,
    /// The others are in a batch before.
    is_rest: bool,
}

/// State of a log whose dirty data lies in memory, too.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub frames: Frames,
    /// Writes and fills of a batch at the most.
    batch_writes_max: u32,
    /// Writes that may be answered and not published.
    early_writes_max: u32,
    /// In the order of the log.
    taken: VecDeque<Taken>,
    /// Writes that are answered and not published.
    owed_writes: u32,
    /// Somebody waits until there are none.
    is_hurried: bool,
    /// A write waits for room in memory.
    is_waited_for: bool,
    /// Since when a write waits for group commit that no client waits for.
    since: Option<Nanos>,
    /// When that is over, if nothing else happens before.
    until: Option<Nanos>,
}

impl Mirror {
    /// The mirror of a composition over `blocks` blocks of cache; `None` if it has none.
    pub fn new(composition: &Composition, blocks: u64) -> Option<Mirror> {
        let PersistenceChoice::Mirror(choice) = composition.persistence else { return None };
        let room = (choice.ram_bytes / BLOCK_BYTES).min(blocks);
        Some(Mirror {
            frames: Frames::new(to_u32(room)),
            batch_writes_max: choice.batch_writes_max,
            // SAFE: answered when published.
            early_writes_max: if composition.safe { 0 } else { choice.early_ack_writes },
            taken: VecDeque::new(),
            owed_writes: 0,
            is_hurried: false,
            is_waited_for: false,
            since: None,
            until: None,
        })
    }

    /// Whether anything is answered for that is not published.
    pub fn owes(&self) -> bool {
        self.owed_writes > 0
    }

    /// Asks for all that to be published soon. True if there is any.
    pub fn hurry(&mut self) -> bool {
        self.is_hurried = self.owes();
        self.is_hurried
    }

    /// When to ask again whether a batch may go, if nothing else happens before.
    pub fn deadline(&self) -> Option<Nanos> {
        self.until
    }

    /// Whether nothing waits for a batch.
    pub fn is_quiet(&self) -> bool {
        self.taken.is_empty()
    }

    fn was_published(&mut self) {
        self.owed_writes -= 1;
        self.is_hurried &= self.owes();
    }
}

impl Machine<LogStore> {
    /// Dirty blocks that memory may hold.
    fn memory_room(&self, mirror: &Mirror) -> u64 {
        mirror.frames.room().min(self.config.memory_blocks_max)
    }

    /// Whether memory is full: what is in it has to go home, whoever reads the origin.
    pub(super) fn is_memory_full(&self, mirror: &Mirror) -> bool {
        mirror.is_waited_for || mirror.frames.used() * 100 >= self.memory_room(mirror) * 99
    }

    /// Gives back the frames that nobody needs any more.
    pub(super) fn release_frames<M: Memory>(&mut self, memory: &mut M) {
        let mirror = self.store.appender.mirror_mut();
        while let Some(frame) = mirror.frames.take_dropped() {
            memory.release(frame);
        }
    }

    /// Nothing will be asked of this cache any more.
    pub(super) fn release_all_frames<M: Memory>(&mut self, memory: &mut M) {
        let LogStore { appender, index, .. } = &mut self.store;
        let mirror = appender.mirror_mut();
        let mut dirty = Vec::new();
        index.for_each(|key, entry| {
            if entry.dirty {
                dirty.push(key);
            }
        });
        mirror.frames.clear(dirty.into_iter());
        self.release_frames(memory);
    }

    /// Takes back what is in no batch and nobody was answered for.
    pub(super) fn give_up_taken<M: Memory>(&mut self, memory: &mut M) -> Vec<(RequestKey, u64)> {
        let Machine { requests, store, .. } = self;
        let mirror = store.appender.mirror_mut();
        let is_answered = |taken: &Taken| requests[taken.request].is_answered;
        let (kept, given_up): (VecDeque<Taken>, VecDeque<Taken>) =
            core::mem::take(&mut mirror.taken).into_iter().partition(is_answered);
        mirror.taken = kept;
        let give_up = |taken: Taken| {
            mirror.frames.land(taken.blocks.count);
            taken.frames.into_iter().for_each(|frame| memory.release(frame));
            (taken.request, taken.blocks.count)
        };
        given_up.into_iter().map(give_up).collect()
    }

    /// The cache failed: what was in no batch yet never gets there. What was answered for stays to be read.
    pub(super) fn discard_taken<M: Memory>(&mut self, memory: &mut M) {
        let mirror = self.store.appender.mirror_mut();
        for taken in core::mem::take(&mut mirror.taken) {
            mirror.frames.land(taken.blocks.count);
            taken.frames.into_iter().for_each(|frame| memory.release(frame));
        }
    }
}
