//! Every bound of the engine, in one place.

use crate::units::BLOCK_BYTES;

/// The longest read or write that the engine takes; doors cut longer ones.
pub const REQUEST_BYTES_MAX: u32 = 256 * 1024;
/// The longest discard or write-zeroes that the engine takes at once; doors cut longer ones.
pub const RANGE_BYTES_MAX: u64 = 64 << 20;

const _: () = assert!(REQUEST_BYTES_MAX as u64 % BLOCK_BYTES == 0, "a request is cut at block borders");

/// Memory that the engine takes from the driver's pool at the most, by what it does with it.
/// A pool has to hold this much besides what the doors lend to clients.
pub const ENGINE_POOL_BYTES: u64 = 48 << 20;
/// The largest single buffer that the engine asks for.
pub const ENGINE_BUFFER_BYTES_MAX: u32 = 1 << 20;
/// Requests under way in the engine at the most.
pub const REQUESTS_MAX: usize = 8192;
