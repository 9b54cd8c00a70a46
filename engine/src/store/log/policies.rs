//! Admission to the log, and the cutoff that is asked before it.

use super::LogStore;
use super::staying::Rewriting;
use super::trials::Trials;
use crate::composition::Composition;
use crate::composition::axes::WritesChoice;
use crate::effect::{RequestOp, WriteMode};
use crate::machine::Machine;
use crate::machine::destage::state::LONG_BLOCKS_MIN;
use crate::machine::guard::Blocks;
use crate::machine::request::RequestKey;
use crate::machine::volume::Volume;
use crate::number::low_u32;
use crate::policies::admission::always::AlwaysChoice;
use crate::policies::admission::{Admission, AdmissionChoice, Asked, Cutoff, Reason, Sizes, Verdict};
use crate::policies::replacement::{Access, Standing};
use crate::prng::Prng;
use crate::status::Bypass;
use crate::store::Destaging;
use crate::units::{BLOCK_BYTES, Nanos, PieceKey, SECTORS_PER_BLOCK, SectorRange, VolumeIndex};
use alloc::vec::Vec;

/// The policies with their state.
#[derive(Debug)]
pub(crate) struct Policies {
    /// Nothing passes by, and while there is room everything enters: the others need not be asked about requests.
    pub lets_all_in_with_room: bool,
    /// The same without room.
    pub lets_all_in: bool,
    /// First reads that enter a full cache.
    pub trials: Trials,
    /// Of all volumes.
    pub rewriting: Rewriting,
    /// Blocks that clients read so far in the oldest part of the ring.
    pub oldest_reads: u64,
    admission: Admission,
    cutoff: Cutoff,
    prng: Prng,
    /// Only the first missing range of a read enters.
    first_gap_only: bool,
    /// A write goes around the cache where the origin would have to be read first, or room to be made.
    pub bypasses_waits: bool,
}

/// A client that asked for a flush so recently will soon ask again.
const FLUSHES_WITHIN_NS: u64 = Nanos::SECOND;

/// The part of a log that only a destage can make free, in thousandths, from which long writes go around it as long as there is no
/// room.
const FULL_PERMILLE: u64 = 500;

impl Policies {
    /// The policies of a composition over `blocks` blocks.
    pub fn new(composition: &Composition, blocks: u32, seed: u64) -> Policies {
        let first_gap_only = match composition.writes {
            WritesChoice::Extents(writes) => writes.first_gap_only,
            _ => false,
        };
        let passes_none =
            composition.cutoff.runs.is_none() && composition.cutoff.aligned_sectors == 0 && !first_gap_only;
        let lets_all_in = passes_none && matches!(composition.admission, AdmissionChoice::Always(_));
        let fills_room = passes_none && composition.admission == AdmissionChoice::RoomOrSecondRead;
        let admission = match composition.admission {
            // The log tells admission of nothing that left, so there is nothing to remember.
            AdmissionChoice::Always(_) => AdmissionChoice::Always(AlwaysChoice { ghost_pieces: 0 }),
            other => other,
        };
        Policies {
            lets_all_in_with_room: lets_all_in || fills_room,
            lets_all_in,
            trials: Trials::new(u64::from(blocks)),
            rewriting: Rewriting::default(),
            oldest_reads: 0,
            admission: Admission::new(&admission, Sizes { frames: blocks, origin_pieces: 0 }),
            cutoff: Cutoff::new(composition.cutoff),
            prng: Prng::new(seed),
            first_gap_only,
            bypasses_waits: composition.writes == WritesChoice::MergeOrBypass,
        }
    }

    /// Why a request passes by, whatever of it is cached, if it does. Asked once for each.
    #[inline]
    fn passes(&mut self, asked: &Asked) -> Option<Reason> {
        let Policies { cutoff, prng, .. } = self;
        let reason = cutoff.decide(asked, || low_u32(prng.next_u64()));
        if reason.is_some() {
            return reason;
        }
        if !matches!(self.admission, Admission::Always(_)) {
            let first = asked.piece.0;
            for step in 0..asked.range.end_block() - asked.range.first_block() {
                self.admission.seen(&Asked { piece: PieceKey(first + step), ..*asked }, false);
            }
        }
        None
    }
}

impl Machine<LogStore> {
    /// Asks the policies about a request that has just come: why it passes by, if it does.
    #[inline]
    pub(super) fn ask_policies(&mut self, key: RequestKey, access: Access) -> Option<Bypass> {
        let now = self.now;
        let active = &self.requests[key];
        let volume = active.volume;
        let (RequestOp::Read { range, .. } | RequestOp::Write { range, .. }) = active.op else {
            return None;
        };
        self.store.controller.destage.client_request(volume, access, now);
        let (first, count) = (self.volume(volume).key(active.blocks.first), active.blocks.count);
        self.store.appender.accessed(first, count, &self.store.index);
        if self.store.policies.lets_all_in_with_room && !self.store.appender.has_admission() {
            return None;
        }
        self.ask_admission(key, access, range)
    }

    #[inline(never)]
    fn ask_admission(&mut self, key: RequestKey, access: Access, range: SectorRange) -> Option<Bypass> {
        let (active, now) = (&self.requests[key], self.now);
        let volume = active.volume;
        let is_writeback = self.volume(volume).mode == WriteMode::Writeback;
        let asked = Asked {
            piece: PieceKey(self.volume(volume).key(active.blocks.first).0),
            access,
            stream: u32::from(volume.0),
            range,
            covers_piece: access == Access::Write && range.is_block_aligned(),
            is_discarded: false,
            // A block device cannot tell synchronous writes from others: all count as synchronous.
            is_sync_writeback: access == Access::Write && is_writeback,
            may_promote: true,
            now,
        };
        let passes = self.store.policies.passes(&asked);
        let is_over = passes.is_none() && self.store.appender.is_over_cutoff(access, is_writeback);
        let passes = if is_over { Some(Reason::InUse) } else { passes };
        if passes.is_none() {
            self.store.appender.served(range.sectors);
        }
        passes.map(Bypass::Policy)
    }

    /// Why what a read is about to fetch from the origin may not enter, if so.
    pub(super) fn ask_fill(&mut self, key: RequestKey) -> Option<Bypass> {
        let passes = self.requests[key].passes.flatten();
        if passes.is_none() && self.store.policies.first_gap_only {
            // Source: bcache, which inserts the first gap of a request and no other.
            self.requests[key].passes = Some(Some(Bypass::Policy(Reason::LaterGap)));
        }
        passes
    }

    /// Why a write goes around the cache so that it waits for no read of the origin, and for no dirty block to go home, if it
    /// does.
    ///
    /// The origin, which mostly has a write cache of its own, takes the write in less time than it takes for a read.
    #[inline(always)]
    pub(super) fn bypasses_wait(&self, key: RequestKey) -> Option<Bypass> {
        let active = &self.requests[key];
        let (volume, blocks) = (active.volume, active.blocks.count);
        let has_room = self.clients_may_append()
            && match blocks < LONG_BLOCKS_MIN {
                true => !self.store.flood.keeps_room(),
                false => self.fits_in_room(blocks) && !self.is_volume_flooded(volume),
            };
        if has_room && matches!(active.op, RequestOp::Write { range, .. } if range.is_block_aligned()) {
            return None;
        }
        self.bypasses_long_wait(key, has_room)
    }

    /// Whether a flood of a volume's writes is under way.
    #[inline(never)]
    fn is_volume_flooded(&self, volume: VolumeIndex) -> bool {
        self.volume(volume).destage.is_flooded(|| LogStore::pressure(self).held_permille)
    }

    /// Whether a write that has just come goes around the cache so.
    #[inline(never)]
    pub(super) fn will_bypass_wait(&self, key: RequestKey) -> bool {
        self.store.policies.bypasses_waits
            && matches!(self.requests[key].op, RequestOp::Write { .. })
            && self.bypasses_wait(key).is_some()
            && self.may_go_beside(key)
    }

    /// RULE 7: whether a write may go around the cache beside others of its blocks, as far as it is known when it comes.
    pub(super) fn may_go_beside(&self, key: RequestKey) -> bool {
        let active = &self.requests[key];
        self.config.order.is_none() && !self.has_dirty(active.volume, active.blocks)
    }

    fn bypasses_long_wait(&self, key: RequestKey, has_room: bool) -> Option<Bypass> {
        let active = &self.requests[key];
        let RequestOp::Write { range, fua, .. } = active.op else { unreachable!("only writes merge") };
        let volume = self.volume(active.volume);
        // In the log a write waits for an origin that fails; around the cache it would only be refused.
        if volume.origin.is_failing() {
            return None;
        }
        if !has_room {
            let is_long = active.blocks.count >= LONG_BLOCKS_MIN;
            let is_flooding = || {
                let held_permille = LogStore::pressure(self).held_permille;
                let coming_permille =
                    self.store.log.pending_blocks * 1000 / self.store.segments.ring_blocks();
                // A ring that is full of clean data has room in a moment.
                let is_full = held_permille + coming_permille >= FULL_PERMILLE;
                volume.destage.is_flooded(|| held_permille) || is_full && volume.destage.is_overrun()
            };
            // Who flushes would wait for the origin then. In a flood there is room as something goes home.
            let waits_for_home =
                !is_long && self.store.flood.is_paced() && volume.origin.is_flushed_often(self.now);
            // What was emptied is free as soon as it is flushed, which takes less than a way to a disk.
            let segments = &self.store.segments;
            let coming_blocks = u64::from(segments.emptied()) * u64::from(segments.segment_blocks());
            let is_room_coming = !is_long && coming_blocks >= self.store.log.pending_blocks;
            if is_long && is_flooding()
                || !waits_for_home && !is_room_coming && volume.destage.is_faster_around(active.blocks.count)
            {
                return Some(Reason::InUse.into());
            }
        }
        // Who flushes would wait for the origin's write cache instead; in the log the next write of the block does not read
        // it again.
        let is_flushed_soon = fua
            || volume.origin.last_client_flush.is_some_and(|last| self.now.since(last) < FLUSHES_WITHIN_NS);
        let is_read_first = |sector: u64| {
            // The end of a write may be the end of the volume.
            let is_partial = !sector.is_multiple_of(SECTORS_PER_BLOCK);
            let is_cached =
                |key| self.store.index.get(key).is_some() || self.store.extents.get(key).is_some();
            is_partial && !is_cached(volume.key(sector / SECTORS_PER_BLOCK))
        };
        (!is_flushed_soon && (is_read_first(range.start) || is_read_first(range.end())))
            .then_some(Reason::Unaligned.into())
    }

    /// The admitted ones of blocks that a read brought from the origin.
    pub(super) fn admitted(&mut self, volume: VolumeIndex, blocks: Blocks) -> Vec<Blocks> {
        let first = self.volume(volume).key(blocks.first).0;
        let now = self.now;
        // A neighbour counts as a hit a little later.
        let hits =
            |volume: &Volume| volume.counters.hit_blocks.saturating_sub(volume.counters.beside_hit_blocks);
        let evidence =
            self.volumes.iter().flatten().map(|volume| hits(volume) + volume.destage.long_blocks()).sum();
        let policies = &mut self.store.policies;
        if matches!(policies.admission, Admission::Always(_)) {
            return alloc::vec![blocks];
        }
        let tries_first_reads = matches!(policies.admission, Admission::RoomOrSecondRead(_));
        policies.trials.asked(blocks.count, evidence);
        let mut admitted: Vec<Blocks> = Vec::new();
        for block in blocks.first..blocks.end() {
            let sectors = BLOCK_BYTES / 512;
            let asked = Asked {
                piece: PieceKey(first + block - blocks.first),
                access: Access::Read,
                stream: u32::from(volume.0),
                range: SectorRange { start: block * sectors, sectors },
                covers_piece: false,
                is_discarded: false,
                is_sync_writeback: false,
                may_promote: true,
                now,
            };
            let decision = policies.admission.decide(&asked, &Standing::default());
            let is_tried = |trials: &mut Trials| trials.may_enter(blocks.count);
            if let Verdict::Pass(reason) = decision.verdict
                && !(tries_first_reads && is_tried(&mut policies.trials))
            {
                self.volumes.of_mut(volume).counters.read_bypasses.add(reason.into(), 1);
                continue;
            }
            match admitted.last_mut() {
                Some(last) if last.end() == block => last.count += 1,
                _ => admitted.push(Blocks { first: block, count: 1 }),
            }
        }
        admitted
    }

    /// The cache device answered a client's request.
    #[inline]
    pub(super) fn note_latency(&mut self, access: Access, issued: Nanos) {
        let now = self.now;
        self.store.policies.cutoff.device_answered(access, now.since(issued), now);
    }
}
