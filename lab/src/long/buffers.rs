//! The driver's buffers in a long run: bytes for metadata, a tag per block for payload, or nothing.

use super::tag::{self, ZEROES, parts};
use engine::format::LASTING_BYTES;
use engine::memory::{BufferId, Memory, Purpose, Slice};
use engine::units::{BLOCK_BYTES, payload_checksum};

struct Buffer {
    references: u32,
    len_bytes: u32,
    purpose: Purpose,
    /// The blocks' tags; used if contents are kept.
    tags: Vec<u64>,
    /// Bytes of a metadata buffer. May be longer than it: buffers are used again.
    bytes: Vec<u8>,
}

/// All buffers. None is ever given back to the system, so a run in its steady state allocates nothing here.
pub(super) struct Buffers {
    buffers: Vec<Buffer>,
    free_payload: Vec<u32>,
    free_metadata: Vec<u32>,
    keeps_tags: bool,
    zeroes_checksum: u32,
    used_bytes: u64,
    used_bytes_max: u64,
}

impl Buffers {
    pub(super) fn new(keeps_tags: bool) -> Buffers {
        Buffers {
            buffers: Vec::new(),
            free_payload: Vec::new(),
            free_metadata: Vec::new(),
            keeps_tags,
            zeroes_checksum: payload_checksum(&[0; BLOCK_BYTES as usize]),
            used_bytes: 0,
            used_bytes_max: 0,
        }
    }

    /// A buffer of a client's, with one reference.
    pub(super) fn of_client(&mut self, len_bytes: u32) -> BufferId {
        self.take(Purpose::Payload, len_bytes.next_multiple_of(BLOCK_BYTES as u32))
    }

    /// The most that was in use at a time.
    pub(super) fn used_bytes_max(&self) -> u64 {
        self.used_bytes_max
    }

    pub(super) fn is_metadata(&self, buffer: BufferId) -> bool {
        self.live(buffer).purpose == Purpose::Metadata
    }

    pub(super) fn bytes(&self, slice: Slice) -> &[u8] {
        &self.metadata(slice.buffer)[slice.offset_bytes as usize..][..slice.len_bytes as usize]
    }

    pub(super) fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        &mut self.metadata_mut(slice.buffer)[slice.offset_bytes as usize..][..slice.len_bytes as usize]
    }

    /// The tag at the start of the block of the buffer that has byte `at_bytes` of the slice.
    pub(super) fn tag(&self, slice: Slice, at_bytes: u64) -> u64 {
        let at = (u64::from(slice.offset_bytes) + at_bytes) / BLOCK_BYTES;
        self.live(slice.buffer).tags[at as usize]
    }

    /// Writes `tag` to `len_bytes` at byte `at_bytes` of the slice, a part of one block.
    pub(super) fn put(&mut self, slice: Slice, at_bytes: u64, len_bytes: u32, tag: u64) {
        let offset_bytes = u64::from(slice.offset_bytes) + at_bytes;
        let tags = &mut self.live_mut(slice.buffer).tags;
        for part in parts(offset_bytes, u64::from(len_bytes)) {
            let old = &mut tags[part.block as usize];
            *old = tag::blend(*old, tag, &part);
        }
    }

    fn take(&mut self, purpose: Purpose, len_bytes: u32) -> BufferId {
        assert!(len_bytes > 0 && len_bytes.is_multiple_of(BLOCK_BYTES as u32));
        let free = match purpose {
            Purpose::Payload => &mut self.free_payload,
            Purpose::Metadata => &mut self.free_metadata,
        };
        let id = free.pop().unwrap_or_else(|| {
            let buffer = Buffer { references: 0, len_bytes: 0, purpose, tags: Vec::new(), bytes: Vec::new() };
            self.buffers.push(buffer);
            u32::try_from(self.buffers.len() - 1).expect("fewer buffers than 2^32")
        });
        let buffer = &mut self.buffers[id as usize];
        assert!(buffer.references == 0 && buffer.purpose == purpose);
        (buffer.references, buffer.len_bytes) = (1, len_bytes);
        match purpose {
            Purpose::Metadata if buffer.bytes.len() < len_bytes as usize => {
                buffer.bytes.resize(len_bytes as usize, 0);
            }
            Purpose::Payload if self.keeps_tags => {
                buffer.tags.resize((u64::from(len_bytes) / BLOCK_BYTES) as usize, ZEROES);
            }
            _ => (),
        }
        self.used_bytes += u64::from(len_bytes);
        self.used_bytes_max = self.used_bytes_max.max(self.used_bytes);
        BufferId(id)
    }

    fn live(&self, buffer: BufferId) -> &Buffer {
        let buffer = &self.buffers[buffer.0 as usize];
        assert!(buffer.references > 0, "a buffer is used while somebody holds it");
        buffer
    }

    fn live_mut(&mut self, buffer: BufferId) -> &mut Buffer {
        let buffer = &mut self.buffers[buffer.0 as usize];
        assert!(buffer.references > 0, "a buffer is used while somebody holds it");
        buffer
    }
}

impl Memory for Buffers {
    fn allocate(&mut self, purpose: Purpose, len_bytes: u32) -> Option<BufferId> {
        Some(self.take(purpose, len_bytes))
    }

    fn retain(&mut self, buffer: BufferId) {
        self.live_mut(buffer).references += 1;
    }

    fn release(&mut self, buffer: BufferId) {
        let live = self.live_mut(buffer);
        live.references -= 1;
        if live.references > 0 {
            return;
        }
        let (purpose, len_bytes) = (live.purpose, live.len_bytes);
        self.used_bytes -= u64::from(len_bytes);
        match purpose {
            Purpose::Payload => self.free_payload.push(buffer.0),
            Purpose::Metadata => self.free_metadata.push(buffer.0),
        }
    }

    fn metadata(&self, buffer: BufferId) -> &[u8] {
        let live = self.live(buffer);
        assert!(live.purpose == Purpose::Metadata, "payload has no bytes");
        &live.bytes[..live.len_bytes as usize]
    }

    fn metadata_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        let live = self.live_mut(buffer);
        assert!(live.purpose == Purpose::Metadata, "payload has no bytes");
        &mut live.bytes[..live.len_bytes as usize]
    }

    fn checksum(&self, slice: Slice) -> u32 {
        if !self.keeps_tags {
            // What is not kept reads as zeroes.
            return self.zeroes_checksum;
        }
        assert!(
            u64::from(slice.len_bytes) == BLOCK_BYTES
                && u64::from(slice.offset_bytes).is_multiple_of(BLOCK_BYTES)
        );
        tag::checksum(self.tag(slice, 0))
    }

    fn copy(&mut self, from: Slice, to: Slice) {
        assert!(from.len_bytes == to.len_bytes);
        if !self.keeps_tags {
            return;
        }
        for part in parts(u64::from(to.offset_bytes), u64::from(to.len_bytes)) {
            // A source that is not aligned like its target is a client's, and the same everywhere.
            let tag = self.tag(from, part.at_bytes);
            self.put(to, part.at_bytes, part.to_byte - part.from_byte, tag);
        }
    }

    fn lasting_bytes(&self) -> usize {
        LASTING_BYTES
    }

    // No process ends here.
    fn store_lasting(&mut self, _at_bytes: usize, _bytes: &[u8]) {}

    fn zero(&mut self, slice: Slice) {
        if !self.keeps_tags {
            return;
        }
        for part in parts(u64::from(slice.offset_bytes), u64::from(slice.len_bytes)) {
            self.put(slice, part.at_bytes, part.to_byte - part.from_byte, ZEROES);
        }
    }
}
