//! The driver's buffers: tags for client data, real bytes for metadata. Every misuse is noted.

use crate::content::{self, SECTOR, Sector, Tag};
use engine::format::LASTING_BYTES;
use engine::memory::{BufferId, Memory, Purpose, Slice};
use std::cell::Cell;

/// The quota that a buffer counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Client,
    Engine,
}

#[derive(Debug)]
enum Data {
    Tags(Vec<Tag>),
    Bytes(Vec<u8>),
}

#[derive(Debug)]
struct Buffer {
    references: u32,
    len_bytes: u32,
    owner: Owner,
    data: Data,
}

/// A pool of buffers.
#[derive(Debug, Default)]
pub struct Pool {
    buffers: Vec<Option<Buffer>>,
    free: Vec<u32>,
    spare_tags: Vec<Vec<Tag>>,
    spare_bytes: Vec<Vec<u8>>,
    live: usize,
    engine_bytes: u64,
    engine_peak_bytes: u64,
    /// Allocations in a row that are refused from now on.
    refusals: u32,
    misuse: Option<String>,
    /// Memory that outlives the process.
    lasting: Vec<u8>,
    checksums_taken: Cell<u64>,
}

impl Pool {
    /// Buffers with a reference.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live
    }

    /// The most that the engine held at a time, in bytes.
    #[must_use]
    pub fn engine_peak_bytes(&self) -> u64 {
        self.engine_peak_bytes
    }

    /// The first misuse, if there was one.
    #[must_use]
    pub fn misuse(&self) -> Option<&str> {
        self.misuse.as_deref()
    }

    /// A pool with memory that outlives the process.
    #[must_use]
    pub fn with_lasting() -> Pool {
        Pool { lasting: vec![0; LASTING_BYTES], ..Pool::default() }
    }

    /// Checksums that the engine had taken of blocks.
    #[must_use]
    pub fn checksums_taken(&self) -> u64 {
        self.checksums_taken.get()
    }

    /// The memory that outlives the process.
    #[must_use]
    pub fn lasting(&self) -> &[u8] {
        &self.lasting
    }

    /// Forgets all buffers and what outlives the process, as a power cut does.
    pub fn cut_power(&mut self) {
        self.reset();
        self.lasting.fill(0);
    }

    /// Refuses the engine's next `count` allocations.
    pub fn refuse(&mut self, count: u32) {
        self.refusals = count;
    }

    fn note(&mut self, what: String) {
        self.misuse.get_or_insert(what);
    }

    fn insert(&mut self, owner: Owner, len_bytes: u32, data: Data) -> BufferId {
        self.live += 1;
        if owner == Owner::Engine {
            self.engine_bytes += u64::from(len_bytes);
            self.engine_peak_bytes = self.engine_peak_bytes.max(self.engine_bytes);
        }
        let buffer = Some(Buffer { references: 1, len_bytes, owner, data });
        match self.free.pop() {
            Some(at) => {
                self.buffers[at as usize] = buffer;
                BufferId(at)
            }
            None => {
                self.buffers.push(buffer);
                BufferId(self.buffers.len() as u32 - 1)
            }
        }
    }

    fn tags_of(&mut self, count: usize) -> Vec<Tag> {
        let mut tags = self.spare_tags.pop().unwrap_or_default();
        tags.clear();
        tags.resize(count, Tag::UNDEFINED);
        tags
    }

    /// A client's buffer of `sectors`, not filled yet.
    pub fn client(&mut self, sectors: u64) -> Slice {
        let tags = self.tags_of(sectors as usize);
        let len_bytes = (sectors as usize * SECTOR) as u32;
        let buffer = self.insert(Owner::Client, len_bytes, Data::Tags(tags));
        Slice { buffer, offset_bytes: 0, len_bytes }
    }

    fn get(&self, buffer: BufferId) -> Option<&Buffer> {
        self.buffers.get(buffer.0 as usize).and_then(Option::as_ref)
    }

    /// The tags of a piece of client data; nothing if it is not there.
    #[must_use]
    pub fn tags(&self, slice: Slice) -> &[Tag] {
        let (from, count) = (slice.offset_bytes as usize / SECTOR, slice.len_bytes as usize / SECTOR);
        match self.get(slice.buffer) {
            Some(Buffer { data: Data::Tags(tags), .. }) => tags.get(from..from + count).unwrap_or_default(),
            _ => &[],
        }
    }

    /// The tags of a piece of client data, to be written; nothing if it is not there.
    pub fn tags_mut(&mut self, slice: Slice) -> &mut [Tag] {
        let (from, count) = (slice.offset_bytes as usize / SECTOR, slice.len_bytes as usize / SECTOR);
        match self.buffers.get_mut(slice.buffer.0 as usize).and_then(Option::as_mut) {
            Some(Buffer { data: Data::Tags(tags), .. }) => {
                tags.get_mut(from..from + count).unwrap_or_default()
            }
            _ => &mut [],
        }
    }

    /// Adds the content of a piece, sector by sector, as a device would get it.
    pub fn gather(&mut self, slice: Slice, into: &mut Vec<Sector>) {
        let (from, len) = (slice.offset_bytes as usize, slice.len_bytes as usize);
        let before = into.len();
        match self.get(slice.buffer).map(|buffer| &buffer.data) {
            Some(Data::Tags(_)) => into.extend(self.tags(slice).iter().map(|tag| Sector::Tag(*tag))),
            Some(Data::Bytes(bytes)) => {
                let bytes = bytes.get(from..from + len).unwrap_or_default();
                into.extend(bytes.chunks(SECTOR).map(Sector::of_bytes));
            }
            None => (),
        }
        if into.len() - before != len / SECTOR {
            self.note(format!("a device operation on {slice:?}, which is not there"));
            into.resize(before + len / SECTOR, Sector::default());
        }
    }

    /// Whether these sectors are the content of a piece.
    #[must_use]
    pub fn holds(&self, slice: Slice, sectors: &[Sector]) -> bool {
        let (from, len) = (slice.offset_bytes as usize, slice.len_bytes as usize);
        match self.get(slice.buffer).map(|buffer| &buffer.data) {
            Some(Data::Tags(_)) => {
                let tags = self.tags(slice).iter();
                tags.map(|tag| Sector::Tag(*tag)).eq(sectors.iter().cloned())
            }
            Some(Data::Bytes(bytes)) => {
                let bytes = bytes.get(from..from + len).unwrap_or_default();
                bytes.len() == sectors.len() * SECTOR
                    && bytes.chunks(SECTOR).zip(sectors).all(|(bytes, sector)| sector.is_of(bytes))
            }
            None => false,
        }
    }

    /// Puts sectors that a device read into a piece.
    pub fn scatter(&mut self, sectors: &[Sector], slice: Slice) {
        let from = slice.offset_bytes as usize;
        let buffer = self.buffers.get_mut(slice.buffer.0 as usize).and_then(Option::as_mut);
        let is_done = match buffer.map(|buffer| &mut buffer.data) {
            Some(Data::Tags(_)) => {
                let tags = self.tags_mut(slice);
                tags.iter_mut().zip(sectors).for_each(|(tag, sector)| *tag = sector.tag());
                tags.len() == sectors.len()
            }
            Some(Data::Bytes(bytes)) => match bytes.get_mut(from..from + sectors.len() * SECTOR) {
                Some(bytes) => {
                    for (bytes, sector) in bytes.chunks_mut(SECTOR).zip(sectors) {
                        sector.expand(bytes);
                    }
                    true
                }
                None => false,
            },
            None => false,
        };
        if !is_done {
            self.note(format!("a device operation on {slice:?}, which is not there"));
        }
    }

    /// Forgets all buffers, as the end of the process does.
    pub fn reset(&mut self) {
        let (mut tags, mut bytes) = (std::mem::take(&mut self.spare_tags), Vec::new());
        std::mem::swap(&mut bytes, &mut self.spare_bytes);
        for buffer in self.buffers.drain(..).flatten() {
            match buffer.data {
                Data::Tags(spare) => tags.push(spare),
                Data::Bytes(spare) => bytes.push(spare),
            }
        }
        let (misuse, lasting) = (self.misuse.take(), std::mem::take(&mut self.lasting));
        *self = Pool { spare_tags: tags, spare_bytes: bytes, misuse, lasting, ..Pool::default() };
    }
}

impl Memory for Pool {
    fn allocate(&mut self, purpose: Purpose, len_bytes: u32) -> Option<BufferId> {
        if len_bytes == 0 || !len_bytes.is_multiple_of(4096) {
            self.note(format!("an allocation of {len_bytes} bytes"));
            return None;
        }
        if self.refusals > 0 {
            self.refusals -= 1;
            return None;
        }
        let data = match purpose {
            Purpose::Payload => Data::Tags(self.tags_of(len_bytes as usize / SECTOR)),
            Purpose::Metadata => {
                let mut bytes = self.spare_bytes.pop().unwrap_or_default();
                bytes.clear();
                // Undefined content, so that a use of it is noticed.
                bytes.resize(len_bytes as usize, 0xdb);
                Data::Bytes(bytes)
            }
        };
        Some(self.insert(Owner::Engine, len_bytes, data))
    }

    fn retain(&mut self, buffer: BufferId) {
        match self.buffers.get_mut(buffer.0 as usize).and_then(Option::as_mut) {
            Some(buffer) => buffer.references += 1,
            None => self.note(format!("{buffer:?} was retained and is not there")),
        }
    }

    fn release(&mut self, buffer: BufferId) {
        let Some(slot) = self.buffers.get_mut(buffer.0 as usize) else {
            return self.note(format!("{buffer:?} was released and never was"));
        };
        let Some(found) = slot else {
            return self.note(format!("{buffer:?} was released and is not there"));
        };
        found.references -= 1;
        if found.references > 0 {
            return;
        }
        let Some(gone) = slot.take() else { return };
        self.live -= 1;
        if gone.owner == Owner::Engine {
            self.engine_bytes -= u64::from(gone.len_bytes);
        }
        match gone.data {
            Data::Tags(tags) => self.spare_tags.push(tags),
            Data::Bytes(bytes) => self.spare_bytes.push(bytes),
        }
        self.free.push(buffer.0);
    }

    fn metadata(&self, buffer: BufferId) -> &[u8] {
        match self.get(buffer) {
            Some(Buffer { data: Data::Bytes(bytes), .. }) => bytes,
            other => panic!("metadata of {buffer:?}, which is {other:?}"),
        }
    }

    fn metadata_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        match self.buffers.get_mut(buffer.0 as usize).and_then(Option::as_mut) {
            Some(Buffer { data: Data::Bytes(bytes), .. }) => bytes,
            other => panic!("metadata of {buffer:?}, which is {other:?}"),
        }
    }

    fn checksum(&self, slice: Slice) -> u32 {
        self.checksums_taken.update(|taken| taken + 1);
        content::checksum(self.tags(slice))
    }

    fn copy(&mut self, from: Slice, to: Slice) {
        let mut tags = self.tags_of(0);
        tags.extend_from_slice(self.tags(from));
        let target = self.tags_mut(to);
        if target.len() == tags.len() {
            target.copy_from_slice(&tags);
        } else {
            self.note(format!("a copy from {from:?} to {to:?}"));
        }
        self.spare_tags.push(tags);
    }

    fn zero(&mut self, slice: Slice) {
        let tags = self.tags_mut(slice);
        let is_whole = tags.len() == slice.len_bytes as usize / SECTOR;
        tags.fill(Tag::ZERO);
        if !is_whole {
            self.note(format!("{slice:?} was zeroed and is not there"));
        }
    }

    fn lasting_bytes(&self) -> usize {
        self.lasting.len()
    }

    fn store_lasting(&mut self, at_bytes: usize, bytes: &[u8]) {
        match self.lasting.get_mut(at_bytes..at_bytes + bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.note(format!("{} bytes were stored at {at_bytes} of what lasts", bytes.len())),
        }
    }
}
