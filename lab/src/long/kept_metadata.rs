//! All metadata that was written to a device, packed block by block: what recovery reads.

use super::packed::Packed;
use super::sparse::Sparse;
use engine::units::BLOCK_BYTES;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Packed bytes come in multiples of this.
const STEP: usize = 16;

/// The metadata blocks of a device. All other blocks read as zeroes.
pub(super) struct KeptMetadata {
    /// For each block one more than its number in `packed`; 0 where there is none.
    numbers: Sparse<u32>,
    /// Each block up to its last byte that is not zero, and the length of that.
    packed: Vec<Option<(Packed, u16)>>,
    free: Vec<u32>,
}

impl KeptMetadata {
    /// Nothing yet, for a device of so many blocks.
    pub(super) fn new(blocks: u64) -> KeptMetadata {
        KeptMetadata { numbers: Sparse::new(blocks, 0), packed: Vec::new(), free: Vec::new() }
    }

    /// Keeps what was written at a multiple of 4096.
    pub(super) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) {
        for (block, bytes) in (offset_bytes / BLOCK_BYTES..).zip(bytes.chunks_exact(BLOCK)) {
            self.forget(block, 1);
            let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else { continue };
            let len = (last + 1).next_multiple_of(STEP);
            let kept = Some((Packed::pack(&bytes[..len]), len as u16));
            let number = if let Some(number) = self.free.pop() {
                self.packed[number as usize] = kept;
                number
            } else {
                self.packed.push(kept);
                u32::try_from(self.packed.len() - 1).expect("fewer blocks of metadata than 2^32")
            };
            *self.numbers.get_mut(block) = number + 1;
        }
    }

    /// Data was written over blocks.
    pub(super) fn forget(&mut self, first_block: u64, blocks: u64) {
        for block in first_block..first_block + blocks {
            if let Some(number) = self.numbers.get(block).checked_sub(1) {
                *self.numbers.get_mut(block) = 0;
                self.packed[number as usize] = None;
                self.free.push(number);
            }
        }
    }

    /// Fills in what is kept from a multiple of 4096 on.
    pub(super) fn read(&self, offset_bytes: u64, bytes: &mut [u8]) {
        for (block, bytes) in (offset_bytes / BLOCK_BYTES..).zip(bytes.chunks_exact_mut(BLOCK)) {
            bytes.fill(0);
            let number = self.numbers.get(block).checked_sub(1);
            if let Some((packed, len)) = number.and_then(|number| self.packed[number as usize].as_ref()) {
                packed.unpack(&mut bytes[..usize::from(*len)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_last_is_read_and_zeroes_elsewhere() {
        let mut kept = KeptMetadata::new(100);
        let mut two = vec![0; 2 * BLOCK];
        two[3] = 7;
        two[BLOCK..].fill(9);
        kept.write(10 * BLOCK_BYTES, &two);
        kept.write(11 * BLOCK_BYTES, &vec![1; BLOCK]);
        kept.write(20 * BLOCK_BYTES, &vec![2; BLOCK]);
        kept.forget(15, 10);
        let mut read = vec![0xaa; 3 * BLOCK];
        kept.read(9 * BLOCK_BYTES, &mut read);
        two[BLOCK..].fill(1);
        assert!(read[..BLOCK].iter().all(|byte| *byte == 0) && read[BLOCK..] == two);
        kept.read(19 * BLOCK_BYTES, &mut read);
        assert!(read.iter().all(|byte| *byte == 0));
        kept.write(30 * BLOCK_BYTES, &vec![3; BLOCK]);
        assert_eq!(kept.packed.len(), 3, "room is used again");
    }
}
