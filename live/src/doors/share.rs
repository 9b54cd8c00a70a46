//! Share: how much of the doors' memory one client may hold. No client holds more than a quarter of it (or less, as
//! [`ClientLimits`](super::limits::ClientLimits) say), nor more than what it leaves for the others.

use super::limits::SHARE;
use super::pieces::Cut;
use crate::buffers::{FRAME_BYTES, Pool};
use crate::reactor::driver::Driver;
use engine::memory::Slice;
use engine::units::{BLOCK_BYTES, VolumeIndex};

/// The part of the free memory that one piece may take.
const NEWCOMER_SHARE: u64 = 8;

fn free_bytes(pool: &Pool) -> u64 {
    pool.door_quota_bytes() - pool.door_used_bytes()
}

/// Whether a client that holds memory may hold so much more.
pub(crate) fn has_room<C>(driver: &Driver<C>, held_bytes: u64, bytes: u64) -> bool {
    let free_bytes = free_bytes(&driver.pool);
    let share_bytes = driver.limits.share_bytes(&driver.pool);
    bytes <= free_bytes && held_bytes + bytes <= share_bytes.min(free_bytes - bytes)
}

/// Memory for a piece of a read or write of a volume, or for its beginning, and the bytes that its client holds more;
/// `None` if there is too little, or the volume's limits hold up as much as they may. A client that holds memory waits until
/// its requests are done. A client without memory gets less, so that no number of stalled clients can stop it.
/// `is_promised`: it was found before that there is room.
pub(crate) fn take<C>(
    driver: &mut Driver<C>,
    volume: VolumeIndex,
    held_bytes: u64,
    mut cut: Cut,
    is_promised: bool,
) -> Option<(Cut, Slice, u64)> {
    let wanted_bytes = u64::from(cut.buffer().0);
    let most_bytes = (free_bytes(&driver.pool) / NEWCOMER_SHARE).min(driver.limits.share_bytes(&driver.pool));
    let is_short = wanted_bytes > most_bytes
        || !has_room(driver, held_bytes, wanted_bytes)
        || driver.brakes.is_full(volume, driver.pool.door_quota_bytes() / SHARE);
    if !is_promised && is_short {
        if held_bytes > 0 {
            return None;
        }
        cut = cut.shortened(most_bytes.max(BLOCK_BYTES));
    }
    let (buffer_bytes, lead_bytes) = cut.buffer();
    let buffer = driver.pool.allocate_for_door(buffer_bytes)?;
    let len_bytes = u32::try_from(cut.len_bytes).expect("a piece is small");
    Some((cut, Slice { buffer, offset_bytes: lead_bytes, len_bytes }, buffer_bytes.into()))
}

/// The bytes of the buffer that holds a piece.
pub(crate) fn buffer_bytes(slice: Slice) -> u32 {
    (slice.offset_bytes + slice.len_bytes).next_multiple_of(FRAME_BYTES)
}
