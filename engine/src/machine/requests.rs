//! The table of requests under way, and the lists of those that wait.

use crate::effect::Errno;
use crate::machine::request::{Active, RequestKey, Stage};
use crate::machine::split::Part;
use crate::memory::Memory;
use crate::units::VolumeIndex;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use slab::Slab;

/// Requests under way. Each is on the list that its stage says, or on none.
#[derive(Default)]
pub(crate) struct Requests {
    table: Slab<Active>,
    /// Requests in [`Stage::Guard`], first come first.
    for_blocks: VecDeque<RequestKey>,
    /// Requests in [`Stage::Buffer`], first come first.
    for_buffer: VecDeque<RequestKey>,
    /// Requests that wait for a condition, which is looked at after every call.
    watched: Vec<RequestKey>,
    /// Bytes of the work buffers that they have.
    work_bytes: u64,
    /// Parts of writes that were put off until the other ones are done. Few requests have one.
    later: BTreeMap<RequestKey, Part>,
}

impl Index<RequestKey> for Requests {
    type Output = Active;
    #[inline]
    fn index(&self, key: RequestKey) -> &Active {
        &self.table[key]
    }
}

impl IndexMut<RequestKey> for Requests {
    #[inline]
    fn index_mut(&mut self, key: RequestKey) -> &mut Active {
        &mut self.table[key]
    }
}

impl Requests {
    /// The number of requests under way.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// All of them, by rising key.
    pub fn iter(&self) -> impl Iterator<Item = (RequestKey, &Active)> {
        self.table.iter()
    }

    /// All of them, by rising key, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Active> {
        self.table.iter_mut().map(|(_, active)| active)
    }

    /// A request, if it was not answered meanwhile.
    #[inline]
    pub fn get(&self, key: RequestKey) -> Option<&Active> {
        self.table.get(key)
    }

    /// Takes a request.
    #[inline]
    pub fn insert(&mut self, active: Active) -> RequestKey {
        self.table.insert(active)
    }

    /// Forgets a request and gives back its buffers. `see` has a last look at it.
    #[inline]
    pub fn remove<M: Memory, T>(
        &mut self,
        key: RequestKey,
        see: impl FnOnce(&Active) -> T,
        memory: &mut M,
    ) -> T {
        let active = &mut self.table[key];
        self.work_bytes -= active.release_work(memory);
        active.release_client_buffer(memory);
        let seen = see(active);
        // Not returned: it is larger than what anybody wants of it.
        self.table.remove(key);
        seen
    }

    /// Puts a part of a write off.
    pub fn put_off(&mut self, key: RequestKey, later: Part) {
        self.table[key].has_later = true;
        self.later.insert(key, later);
    }

    /// Takes the part of a write that was put off.
    pub fn take_later(&mut self, key: RequestKey) -> Part {
        self.table[key].has_later = false;
        self.later.remove(&key).expect("a part was put off")
    }

    /// Fails writes to an origin that are not answered yet, after the origin failed a flush: it may have dropped them,
    /// and a flush after their answers would not show it.
    pub fn doubt_written_around(&mut self, volume: VolumeIndex) {
        for active in self.iter_mut().filter(|active| active.volume == volume && active.is_around) {
            active.error.get_or_insert(Errno::IO);
        }
    }

    // ---- those that wait for a condition -----------------------------------------------------

    /// A request waits for the condition of a stage.
    pub fn watch(&mut self, key: RequestKey, stage: Stage) {
        self.table[key].stage = stage;
        self.watched.push(key);
    }

    /// The condition does not hold yet.
    pub fn watch_on(&mut self, key: RequestKey) {
        self.watched.push(key);
    }

    /// A request goes on by another way.
    pub fn unwatch(&mut self, key: RequestKey) {
        self.watched.retain(|&other| other != key);
    }

    /// Requests that wait for a condition, in the order in which they are looked at.
    #[inline]
    pub fn watched(&self) -> &[RequestKey] {
        &self.watched
    }

    /// Takes all that wait for a condition; [`Requests::watch_on`] puts a request back.
    pub fn take_watched(&mut self) -> Vec<RequestKey> {
        core::mem::take(&mut self.watched)
    }

    // ---- those that wait for blocks ----------------------------------------------------------

    /// A request waits until nobody else holds its blocks.
    pub fn wait_for_blocks(&mut self, key: RequestKey) {
        self.table[key].stage = Stage::Guard;
        self.for_blocks.push_back(key);
    }

    /// Whether some wait for blocks, a buffer or a condition.
    #[inline]
    pub fn any_waiting(&self) -> bool {
        !self.for_blocks.is_empty() || !self.for_buffer.is_empty() || !self.watched.is_empty()
    }

    /// Whether some wait for blocks.
    #[inline]
    pub fn any_for_blocks(&self) -> bool {
        !self.for_blocks.is_empty()
    }

    /// Requests that wait for blocks, in the order in which they came.
    pub fn for_blocks(&self) -> impl Iterator<Item = RequestKey> + '_ {
        self.for_blocks.iter().copied()
    }

    /// The first of them leaves the list.
    pub fn next_for_blocks(&mut self) -> Option<RequestKey> {
        self.for_blocks.pop_front()
    }

    // ---- work buffers ------------------------------------------------------------------------

    /// A request waits for a work buffer.
    pub fn wait_for_buffer(&mut self, key: RequestKey) {
        self.table[key].stage = Stage::Buffer;
        self.for_buffer.push_back(key);
    }

    /// The number of those that wait for a work buffer.
    #[inline]
    pub fn for_buffer(&self) -> usize {
        self.for_buffer.len()
    }

    /// The first of them leaves the list.
    pub fn next_for_buffer(&mut self) -> Option<RequestKey> {
        let key = self.for_buffer.pop_front()?;
        assert!(self.table[key].stage == Stage::Buffer, "a request on the list waits for a work buffer");
        Some(key)
    }

    /// Moves a request that just left the list, and had to join it again, back to its front. True then: the others
    /// would not get a buffer either.
    pub fn is_still_for_buffer(&mut self, key: RequestKey) -> bool {
        let is_back = self.for_buffer.back() == Some(&key);
        if is_back {
            self.for_buffer.rotate_right(1);
        }
        is_back
    }

    /// Bytes of the work buffers that requests have.
    pub fn work_bytes(&self) -> u64 {
        self.work_bytes
    }

    /// A work buffer of so many bytes was allocated for a request.
    pub fn add_work(&mut self, bytes: u64) {
        self.work_bytes += bytes;
    }

    /// Gives back a request's work buffer, if it has one.
    pub fn release_work<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        self.work_bytes -= self.table[key].release_work(memory);
    }

    /// Gives back all buffers of a request that stays although it needs none any more.
    pub fn release_buffers<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        self.release_work(key, memory);
        self.table[key].release_client_buffer(memory);
    }
}
