//! Blocks that are wrong on one half: they are read from the other one, and written again.

use super::Landed;
use crate::effect::{Errno, IoOp, Pieces};
use crate::machine::Machine;
use crate::machine::flight::Flight;
use crate::machine::piece::Source;
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::pair::{Half, Standing};
use crate::store::Store;
use crate::units::{BLOCK_BYTES, Place};
use alloc::vec::Vec;
use slab::Slab;

/// A block that a read brought, and what it has to be.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    pub place: Place,
    pub slice: Slice,
    pub checksum: u32,
}

/// A read of which some blocks are read from the other half.
struct Mend<T> {
    landed: Landed<T>,
    left: u32,
}

/// Reads that are being mended, and blocks that are being written again.
pub(crate) struct Mending<T> {
    mends: Slab<Mend<T>>,
    /// Places that are being written again.
    places: Vec<Place>,
}

impl<T> Default for Mending<T> {
    fn default() -> Mending<T> {
        Mending { mends: Slab::new(), places: Vec::new() }
    }
}

impl<T> Mending<T> {
    pub fn is_quiet(&self) -> bool {
        self.mends.is_empty() && self.places.is_empty()
    }
}

impl<S: Store> Machine<S> {
    /// The blocks that a read of the cache brought, as far as their checksums are known.
    fn spots(&self, flight: &Flight<S::Flight>) -> Vec<Spot> {
        match flight {
            Flight::CacheRead { piece, .. } | Flight::ScrubRead { piece, .. } => {
                let Source::Cache { place, checksums } = &piece.source else { return Vec::new() };
                let spots = (0u32..).zip(checksums.as_slice()).filter_map(|(step, checksum)| {
                    let slice = piece.slice.part(step * to_u32(BLOCK_BYTES), to_u32(BLOCK_BYTES));
                    Some(Spot { place: Place(place.0 + step), slice, checksum: (*checksum)? })
                });
                spots.collect()
            }
            Flight::DestageRead { run, place, blocks } => {
                let run = &self.runs[*run];
                let Some(buffer) = run.buffer else { return Vec::new() };
                let spots = (run.blocks.first..).zip(&run.checksums).enumerate().filter_map(
                    |(step, (block, checksum))| {
                        let at = run.place_of(block);
                        let is_read = (place.0..place.0 + blocks).contains(&at.0);
                        let offset_bytes = u32::try_from(step).ok()? * to_u32(BLOCK_BYTES);
                        let slice = Slice { buffer, offset_bytes, len_bytes: to_u32(BLOCK_BYTES) };
                        is_read.then_some(Spot { place: at, slice, checksum: (*checksum)? })
                    },
                );
                spots.collect()
            }
            Flight::Store(flight) => S::spots(flight),
            _ => Vec::new(),
        }
    }

    /// Takes the answer to a read or a change of the halves. What a read has wrong is read from the other half before the
    /// machine sees it.
    pub(super) fn read_or_landed<M: Memory>(&mut self, landed: Landed<S::Flight>, memory: &mut M) {
        let Some((half, failed)) = landed.read_from else {
            self.take_landed(landed.flight, landed.result, memory);
            return;
        };
        let is_looked_at = landed.result.is_ok() && !self.is_mutated(Mutation::RottenHalfBelieved);
        let mut spots = if is_looked_at { self.spots(&landed.flight) } else { Vec::new() };
        // What one half alone has is asked of the origin.
        spots.retain(|spot| self.store.half_of(spot.place).is_none());
        if let Some(failed) = failed {
            // What one half could not read, it gets again.
            let good: Vec<Spot> =
                spots.iter().copied().filter(|spot| memory.checksum(spot.slice) == spot.checksum).collect();
            good.into_iter().for_each(|spot| self.write_again(failed, spot, memory));
            self.take_landed(landed.flight, landed.result, memory);
            return;
        }
        let other = half.other();
        let may_ask = self.halves.as_ref().is_some_and(|halves| halves.standing(other) == Standing::In);
        let bad: Vec<Spot> = if may_ask {
            spots.into_iter().filter(|spot| memory.checksum(spot.slice) != spot.checksum).collect()
        } else {
            Vec::new()
        };
        let Some(halves) = self.halves.as_mut().filter(|_| !bad.is_empty()) else {
            self.look_at_other_half(landed, memory);
            return;
        };
        let mend = halves.mending.mends.insert(Mend { landed, left: to_u32(crate::number::wide(bad.len())) });
        for spot in bad {
            self.store.pin(spot.place, 1);
            let op = IoOp::Read {
                offset_bytes: self.store.offset_bytes(spot.place),
                into: Pieces::One(spot.slice),
            };
            self.outbox.send(other.target(), op, Flight::Mend { mend, spot });
        }
    }

    /// The other half's copy of a wrong block was read.
    pub(crate) fn mend_done<M: Memory>(
        &mut self,
        mend: usize,
        spot: Spot,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.store.unpin(spot.place, 1);
        let Some(halves) = &mut self.halves else { return };
        let state = &mut halves.mending.mends[mend];
        state.left -= 1;
        let (left, from) = (state.left, state.landed.read_from);
        if let Some((half, _)) = from
            && result.is_ok()
            && memory.checksum(spot.slice) == spot.checksum
        {
            self.write_again(half, spot, memory);
        }
        if left == 0
            && let Some(halves) = &mut self.halves
        {
            let Mend { landed, .. } = halves.mending.mends.remove(mend);
            self.look_at_other_half(landed, memory);
        }
    }

    /// A scrub looks at both halves; for all others one good copy is enough.
    fn look_at_other_half<M: Memory>(&mut self, landed: Landed<S::Flight>, memory: &mut M) {
        let Landed { flight, result, read_from } = landed;
        let is_both = self.halves.as_ref().is_some_and(|halves| halves.are_both_in());
        if let (Flight::ScrubRead { piece, .. }, Some((Half::First, _)), true, Ok(())) =
            (&flight, read_from, is_both, result)
        {
            let Source::Cache { place, .. } = &piece.source else { unreachable!("read from the cache") };
            let (place, slice) = (*place, piece.slice);
            if self.store.half_of(place).is_none() {
                self.read_cache(place, slice, flight, Some(Half::Second));
                return;
            }
        }
        self.take_landed(flight, result, memory);
    }

    /// Writes a block again that is wrong on a half.
    fn write_again<M: Memory>(&mut self, half: Half, spot: Spot, memory: &mut M) {
        let Some(halves) = &mut self.halves else { return };
        if halves.standing(half) != Standing::In || halves.mending.places.contains(&spot.place) {
            return;
        }
        // What the read brought may be written into by a part of a block before this is on the device.
        let Some(buffer) = memory.allocate(Purpose::Payload, to_u32(BLOCK_BYTES)) else { return };
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(BLOCK_BYTES) };
        memory.copy(spot.slice, slice);
        halves.mending.places.push(spot.place);
        halves.tallies[half.at()].mended_blocks += 1;
        // RULE 1: the place is not reused while it is written.
        self.store.pin(spot.place, 1);
        let op = IoOp::Write { offset_bytes: self.store.offset_bytes(spot.place), from: Pieces::One(slice) };
        self.outbox.send(half.target(), op, Flight::WriteAgain { half, place: spot.place, buffer });
    }

    /// Sends an operation to one half, or to the only device. A write mends what is damaged there.
    pub(crate) fn send_to_half(&mut self, half: Half, op: IoOp, flight: Flight<S::Flight>) {
        if let (Some(halves), IoOp::Write { from, .. }) = (&mut self.halves, &op) {
            halves.tallies[half.at()].mended_blocks += from.len_bytes() / BLOCK_BYTES;
        }
        self.outbox.send(half.target(), op, flight);
    }

    /// A half failed to take what was wrong on it: it does not count any more, if the other one does.
    pub(crate) fn lose_one_of_two<M: Memory>(&mut self, half: Half, errno: Errno, memory: &mut M) {
        if self.halves.as_ref().is_some_and(|halves| halves.are_both_in()) {
            self.lose_half(half, errno, memory);
        }
    }

    /// A block was written again.
    pub(crate) fn written_again<M: Memory>(
        &mut self,
        half: Half,
        (place, buffer): (Place, BufferId),
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.store.unpin(place, 1);
        memory.release(buffer);
        let Some(halves) = &mut self.halves else { return };
        halves.mending.places.retain(|other| *other != place);
        if let Err(errno) = result {
            self.lose_one_of_two(half, errno, memory);
        }
    }
}
