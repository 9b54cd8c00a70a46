//! The driver's memory, with real bytes.

use engine::memory::{BufferId, Memory, Purpose, Slice};
use engine::units::payload_checksum;
use std::collections::HashMap;

/// Buffers by number; counts references and fails on any misuse.
#[derive(Default)]
pub struct Buffers {
    map: HashMap<u32, (u32, Vec<u8>)>,
    next: u32,
}

impl Buffers {
    pub fn live(&self) -> usize {
        self.map.len()
    }

    pub fn bytes(&self, slice: Slice) -> &[u8] {
        let (_, bytes) = &self.map[&slice.buffer.0];
        &bytes[slice.offset_bytes as usize..][..slice.len_bytes as usize]
    }

    pub fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        let (_, bytes) = self.map.get_mut(&slice.buffer.0).expect("a live buffer");
        &mut bytes[slice.offset_bytes as usize..][..slice.len_bytes as usize]
    }

    pub fn of_bytes(&mut self, bytes: Vec<u8>) -> Slice {
        let len_bytes = bytes.len() as u32;
        self.next += 1;
        self.map.insert(self.next, (1, bytes));
        Slice { buffer: BufferId(self.next), offset_bytes: 0, len_bytes }
    }
}

impl Memory for Buffers {
    fn allocate(&mut self, _: Purpose, len_bytes: u32) -> Option<BufferId> {
        assert!(len_bytes > 0 && len_bytes.is_multiple_of(4096));
        // Undefined content, to be noticed if somebody relies on it.
        Some(self.of_bytes(vec![0xdb; len_bytes as usize]).buffer)
    }

    fn retain(&mut self, buffer: BufferId) {
        self.map.get_mut(&buffer.0).expect("a live buffer").0 += 1;
    }

    fn release(&mut self, buffer: BufferId) {
        let (count, _) = self.map.get_mut(&buffer.0).expect("a live buffer");
        *count -= 1;
        if *count == 0 {
            self.map.remove(&buffer.0);
        }
    }

    fn metadata(&self, buffer: BufferId) -> &[u8] {
        &self.map[&buffer.0].1
    }

    fn metadata_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        &mut self.map.get_mut(&buffer.0).expect("a live buffer").1
    }

    fn checksum(&self, slice: Slice) -> u32 {
        payload_checksum(self.bytes(slice))
    }

    fn copy(&mut self, from: Slice, to: Slice) {
        assert!(from.len_bytes == to.len_bytes);
        let bytes = self.bytes(from).to_vec();
        self.bytes_mut(to).copy_from_slice(&bytes);
    }

    fn zero(&mut self, slice: Slice) {
        self.bytes_mut(slice).fill(0);
    }
}
