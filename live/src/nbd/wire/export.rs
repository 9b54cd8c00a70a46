//! NBD's view of an export: flags, size and block sizes as they are announced.

use super::protocol::{
    FLAG_CAN_MULTI_CONN, FLAG_HAS_FLAGS, FLAG_READ_ONLY, FLAG_SEND_FLUSH, FLAG_SEND_FUA, FLAG_SEND_TRIM,
    FLAG_SEND_WRITE_ZEROES, PAYLOAD_BYTES_MAX, PREFERRED_BLOCK_BYTES,
};
pub use crate::doors::Export;
use crate::doors::NAME_BYTES_MAX;
use engine::units::SECTOR_BYTES;

const _: () = assert!(NAME_BYTES_MAX <= super::protocol::STRING_BYTES_MAX, "NBD can say every name");

impl Export {
    /// The transmission flags that tell a client what this export can do.
    #[must_use]
    pub fn transmission_flags(&self) -> u16 {
        // Multi-conn holds for every export: one engine serves all connections, and its flush
        // covers whatever was acknowledged before, on any of them.
        let always = FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN;
        if self.read_only {
            always | FLAG_READ_ONLY
        } else {
            always | FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES
        }
    }

    /// The size that is announced: whole minimum blocks.
    #[must_use]
    pub fn announced_bytes(&self) -> u64 {
        self.size_bytes - self.size_bytes % u64::from(self.min_block_bytes)
    }

    /// Minimum, preferred and maximum block size in bytes, as announced to clients.
    #[must_use]
    pub fn block_sizes(&self) -> [u32; 3] {
        [self.min_block_bytes, self.min_block_bytes.max(PREFERRED_BLOCK_BYTES), PAYLOAD_BYTES_MAX]
    }

    /// # Panics
    /// If the minimum block is not a power of two between a sector and 64 KiB.
    pub(super) fn assert_valid(&self) {
        assert!(self.min_block_bytes.is_power_of_two(), "block sizes are powers of two");
        assert!(u64::from(self.min_block_bytes) >= SECTOR_BYTES, "ranges are counted in sectors");
        assert!(self.min_block_bytes <= 64 << 10, "the protocol's limit of a minimum block");
    }
}
