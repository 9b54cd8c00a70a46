//! Bytes of the `ublk` driver's commands. Source: Linux, `include/uapi/linux/ublk_cmd.h`. All numbers are in the byte order
//! of the machine.

use super::{RANGE_BYTES_MAX, REQUEST_BYTES_MAX, TAGS};
use engine::units::{BLOCK_BYTES, SECTOR_BYTES};

/// The encoding of a command of an `ioctl`: direction, bytes of the argument, kind, number.
const fn encoded(direction: u32, argument_bytes: u32, number: u32) -> u32 {
    direction << 30 | argument_bytes << 16 | (b'u' as u32) << 8 | number
}

const READ: u32 = 2;
const BOTH: u32 = 3;
/// Bytes of the argument of a control command.
const CONTROL_BYTES: u32 = 32;
/// Bytes of the argument of a command of a queue.
const TAG_BYTES: u32 = 16;

pub(super) const GET_INFORMATION: u32 = encoded(READ, CONTROL_BYTES, 0x02);
pub(super) const ADD: u32 = encoded(BOTH, CONTROL_BYTES, 0x04);
pub(super) const DELETE: u32 = encoded(BOTH, CONTROL_BYTES, 0x05);
pub(super) const START: u32 = encoded(BOTH, CONTROL_BYTES, 0x06);
pub(super) const STOP: u32 = encoded(BOTH, CONTROL_BYTES, 0x07);
pub(super) const SET_PARAMETERS: u32 = encoded(BOTH, CONTROL_BYTES, 0x08);
pub(super) const START_RECOVERY: u32 = encoded(BOTH, CONTROL_BYTES, 0x10);
pub(super) const END_RECOVERY: u32 = encoded(BOTH, CONTROL_BYTES, 0x11);
pub(super) const GET_FEATURES: u32 = encoded(READ, CONTROL_BYTES, 0x13);
pub(super) const FETCH: u32 = encoded(BOTH, TAG_BYTES, 0x20);
pub(super) const COMMIT_AND_FETCH: u32 = encoded(BOTH, TAG_BYTES, 0x21);

const F_USER_RECOVERY: u64 = 1 << 3;
const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
const F_USER_COPY: u64 = 1 << 7;
/// Features that a device of ours cannot do without.
pub(super) const NEEDED: u64 = F_USER_RECOVERY | F_USER_RECOVERY_REISSUE | F_CMD_IOCTL_ENCODE | F_USER_COPY;

const ATTR_READ_ONLY: u32 = 1 << 0;
const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
const ATTR_FUA: u32 = 1 << 3;
const PARAM_TYPE_BASIC: u32 = 1 << 0;
const PARAM_TYPE_DISCARD: u32 = 1 << 1;

const IO_F_FUA: u32 = 1 << 13;

/// Bytes of the description of a request.
pub(super) const DESCRIPTION_BYTES: usize = 24;
/// Bytes of [`Information`].
pub(super) const INFORMATION_BYTES: usize = 64;
/// Bytes of the descriptions of a queue with as many tags as there can be; those of the next one are behind them.
pub(super) const QUEUE_STRIDE_BYTES: u64 = 4096 * DESCRIPTION_BYTES as u64;

/// A control command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control {
    /// The index of its device; all ones for one that the driver chooses.
    pub device: u32,
    /// The address of memory that the driver reads or writes, or 0.
    pub address: u64,
    /// Bytes of that memory.
    pub len_bytes: u16,
    /// A number.
    pub value: u64,
}

impl Control {
    /// Its bytes, at the end of an entry of 128 bytes.
    pub(super) fn encode(self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[0..4].copy_from_slice(&self.device.to_ne_bytes());
        // For no queue in particular.
        bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.len_bytes.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.value.to_ne_bytes());
        bytes
    }
}

/// The argument of a command for a tag of a queue.
pub(super) fn tag_argument(queue: u16, tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0..2].copy_from_slice(&queue.to_ne_bytes());
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// Where in the file of a device the data of a request is, from a byte of it on.
pub(super) fn data_offset(queue: u16, tag: u16, offset_bytes: u32) -> u64 {
    assert!(offset_bytes < 1 << 25, "the offset has 25 bits");
    0x8000_0000 + (u64::from(queue) << 41 | u64::from(tag) << 25 | u64::from(offset_bytes))
}

/// Stage of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has no disk: it was not started yet, or was stopped.
    Dead,
    /// It is served.
    Live,
    /// Its server is dead, and its requests wait for another one.
    Quiesced,
    /// One that later kernels have.
    Other,
}

/// Account that the driver gives of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Information {
    /// Its index.
    pub index: u32,
    /// Number of its queues.
    pub queues: u16,
    /// Tags of each.
    pub tags: u16,
    /// Its stage.
    pub state: State,
    /// Features.
    flags: u64,
    /// The number that its server gave it.
    pub mark: u64,
}

impl Information {
    /// A wish: a device with so many queues, at this index or, all ones, at a free one.
    pub(super) fn wanted(index: u32, queues: u16, mark: u64) -> Information {
        Information { index, queues, tags: TAGS, state: State::Dead, flags: NEEDED, mark }
    }

    /// Whether another server can take it over, as those of ours can be.
    #[must_use]
    pub fn is_recoverable(&self) -> bool {
        self.flags & NEEDED == NEEDED
    }

    pub(super) fn encode(&self) -> [u8; INFORMATION_BYTES] {
        let mut bytes = [0; INFORMATION_BYTES];
        bytes[0..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.tags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&REQUEST_BYTES_MAX.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.index.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.mark.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; INFORMATION_BYTES]) -> Information {
        Information {
            index: number32(bytes, 12),
            queues: number16(bytes, 0),
            tags: number16(bytes, 2),
            state: match number16(bytes, 4) {
                0 => State::Dead,
                1 => State::Live,
                2 => State::Quiesced,
                _ => State::Other,
            },
            flags: number64(bytes, 24),
            mark: number64(bytes, 32),
        }
    }
}

/// The parameters of a disk.
pub(super) fn parameters(size_bytes: u64, block_bytes: u32, is_read_only: bool) -> [u8; 60] {
    let block_shift = u8::try_from(block_bytes.ilog2()).expect("a power of two below 2^32");
    let cache_block_shift = u8::try_from(BLOCK_BYTES.ilog2()).expect("a power of two below 2^32");
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR_BYTES).expect("a limit of ours");
    let read_only = if is_read_only { ATTR_READ_ONLY } else { 0 };
    let range_sectors = if is_read_only { 0 } else { sectors(RANGE_BYTES_MAX) };
    let mut bytes = [0; 60];
    let mut number32 = |at: usize, number: u32| bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    number32(0, 60);
    number32(4, PARAM_TYPE_BASIC | PARAM_TYPE_DISCARD);
    number32(8, ATTR_VOLATILE_CACHE | ATTR_FUA | read_only);
    number32(16, sectors(REQUEST_BYTES_MAX.into()));
    // Discards: the granularity, the most of discards and of write-zeroes, and one range for each request.
    number32(44, block_bytes.max(sectors(BLOCK_BYTES) * 512));
    number32(48, range_sectors);
    number32(52, range_sectors);
    number32(56, 1);
    // Blocks: logical, physical, best and least, by their powers of two.
    bytes[12] = block_shift;
    bytes[13..16].fill(cache_block_shift.max(block_shift));
    bytes[24..32].copy_from_slice(&(size_bytes / SECTOR_BYTES).to_ne_bytes());
    bytes
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Discard.
    Discard,
    /// Write zeroes.
    WriteZeroes,
    /// One that the driver was not told it may send.
    Other,
}

/// A request as the driver describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its kind.
    pub op: Op,
    /// It is durable when it is answered.
    pub fua: bool,
    /// Its first sector.
    pub start: u64,
    /// Its length in sectors.
    pub sectors: u32,
}

impl Asked {
    pub(super) fn decode(bytes: &[u8; DESCRIPTION_BYTES]) -> Asked {
        let op_flags = number32(bytes, 0);
        Asked {
            op: match op_flags & 0xff {
                0 => Op::Read,
                1 => Op::Write,
                2 => Op::Flush,
                3 => Op::Discard,
                5 => Op::WriteZeroes,
                _ => Op::Other,
            },
            fua: op_flags & IO_F_FUA != 0,
            start: number64(bytes, 8),
            sectors: number32(bytes, 4),
        }
    }
}

fn number16(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the macros of the kernel's header have.
    #[test]
    fn commands_are_encoded_as_the_kernels_header_does() {
        assert_eq!(GET_INFORMATION, 0x8020_7502);
        assert_eq!(ADD, 0xc020_7504);
        assert_eq!(START, 0xc020_7506);
        assert_eq!(GET_FEATURES, 0x8020_7513);
        assert_eq!(END_RECOVERY, 0xc020_7511);
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
    }

    /// The bytes that a program in C sends for the same, on a little-endian machine.
    #[test]
    #[cfg(target_endian = "little")]
    fn arguments_have_the_bytes_of_the_kernels_structures() {
        let control = Control { device: 7, address: 0x0102_0304_0506_0708, len_bytes: 64, value: 9 };
        let mut bytes = vec![7, 0, 0, 0, 0xff, 0xff, 64, 0, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0];
        bytes.resize(80, 0);
        assert_eq!(control.encode().to_vec(), bytes);
        let argument = tag_argument(2, 0x0103, -5);
        assert_eq!(argument, [2, 0, 3, 1, 0xfb, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
        #[rustfmt::skip]
        let parameters_bytes = [
            60, 0, 0, 0, 3, 0, 0, 0,
            // Attributes; shifts of the blocks: logical, physical, best, least.
            0x0c, 0, 0, 0, 9, 12, 12, 12,
            // The most sectors of a request, of a chunk.
            0, 4, 0, 0, 0, 0, 0, 0,
            // Sectors, and a boundary that there is none of.
            0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            // Discards: alignment, granularity, most sectors, and of write-zeroes, ranges.
            0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 32, 0, 0, 0, 32, 0, 1, 0, 0, 0,
        ];
        assert_eq!(parameters(1 << 20, 512, false), parameters_bytes);
        let read_only = parameters(1 << 20, 4096, true);
        assert_eq!((read_only[8], read_only[12], read_only[50]), (0x0d, 12, 0));
    }

    #[test]
    fn what_the_driver_says_of_a_device_is_read_back() {
        let wanted = Information::wanted(3, 2, 0x1122_3344_5566_7788);
        let mut bytes = wanted.encode();
        assert_eq!(Information::decode(&bytes), wanted);
        assert!(wanted.is_recoverable());
        for (number, state) in [(0, State::Dead), (1, State::Live), (2, State::Quiesced), (3, State::Other)] {
            bytes[4..6].copy_from_slice(&u16::to_ne_bytes(number));
            assert_eq!(Information::decode(&bytes).state, state);
        }
        bytes[24..32].fill(0);
        assert!(!Information::decode(&bytes).is_recoverable());
    }

    #[test]
    fn the_data_of_each_request_has_a_place_of_its_own() {
        assert_eq!(data_offset(0, 0, 0), 0x8000_0000);
        assert_eq!(data_offset(1, 2, 3), 0x8000_0000 + (1 << 41) + (2 << 25) + 3);
    }

    #[test]
    fn requests_are_read() {
        let mut bytes = [0; DESCRIPTION_BYTES];
        bytes[0..4].copy_from_slice(&(1 | IO_F_FUA | 1 << 11).to_ne_bytes());
        bytes[4..8].copy_from_slice(&8_u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&77_u64.to_ne_bytes());
        assert_eq!(Asked::decode(&bytes), Asked { op: Op::Write, fua: true, start: 77, sectors: 8 });
        for (number, op) in
            [(0, Op::Read), (2, Op::Flush), (3, Op::Discard), (4, Op::Other), (5, Op::WriteZeroes)]
        {
            bytes[0..4].copy_from_slice(&u32::to_ne_bytes(number));
            let asked = Asked::decode(&bytes);
            assert_eq!((asked.op, asked.fua), (op, false));
        }
    }
}
