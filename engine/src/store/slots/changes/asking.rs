//! Admission to slots: cutoff and admission are asked once for each missing piece of a request, and their answers are
//! kept until the request ends.

use crate::effect::{RequestOp, WriteMode};
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::machine::request::RequestKey;
use crate::machine::volumes::Volumes;
use crate::number::to_u32;
use crate::policies::admission::{Asked, Reason, Verdict};
use crate::policies::controllers::Destage;
use crate::policies::replacement::{Access, Arrival, Policy};
use crate::status::Bypass;
use crate::store::slots::SlotStore;
use crate::store::slots::changes::plan::{Part, Way};
use crate::units::{Nanos, PieceKey, SECTORS_PER_BLOCK, SectorRange};
use alloc::vec::Vec;

/// Admission's answers for the pieces of a request: the arrival of each that may enter, or why it may not.
pub(in crate::store::slots) type Answers = Vec<(PieceKey, Result<Arrival, Bypass>)>;

impl Machine<SlotStore> {
    /// Asks for all pieces of a request, if that was not done yet.
    pub(in crate::store::slots) fn ask(&mut self, key: RequestKey, access: Access) {
        if self.store.answers.contains_key(&key) {
            return;
        }
        let active = &self.requests[key];
        let (RequestOp::Read { range, .. } | RequestOp::Write { range, .. }) = active.op else {
            unreachable!("only reads and writes ask")
        };
        let (volume_index, blocks) = (active.volume, active.blocks);
        let mode = self.volume(volume_index).mode;
        let caches_reads = self.volume(volume_index).caches_reads();
        let mut answers = Answers::new();
        for piece in self.store.pieces(volume_index, blocks) {
            let unit = self.store.blocks_of(self.volume(volume_index), piece);
            let part = part_of(range, unit);
            let asked = Asked {
                piece,
                access,
                stream: u32::from(volume_index.0),
                range: part,
                covers_piece: access == Access::Write && self.store.covers(part, piece, &self.volumes),
                is_discarded: false,
                // Every write to a block device counts as synchronous: the cache cannot tell.
                is_sync_writeback: access == Access::Write && mode == WriteMode::Writeback,
                may_promote: self.store.may_promote(self.runs.len()),
                now: self.now,
            };
            // A write that covers its whole piece copies nothing from the origin, so the promotion limit does not
            // apply.
            let asked = Asked { may_promote: asked.may_promote || asked.covers_piece, ..asked };
            let is_hit = self.store.holding(piece).is_some();
            if !is_hit || access == Access::Write {
                let set = self.store.directory.set_of(piece);
                self.store.destage.touched(set);
            }
            if !is_hit {
                self.store.last_origin = self.now;
            }
            let arrival = self.store.ask_for(&asked, is_hit, mode);
            if let Err(why) = arrival
                && access == Access::Read
                && caches_reads
            {
                let blocks = Blocks::touched_by(part).count;
                self.volume_mut(volume_index).counters.read_bypasses.add(why, blocks);
            }
            answers.push((piece, arrival));
        }
        self.store.destage.client_request(volume_index, access, self.now);
        self.store.answers.insert(key, answers);
    }

    /// Counts what of these parts of a write goes to the origin and into no slot.
    pub(in crate::store::slots) fn count_around(&mut self, key: RequestKey, parts: &[Part]) {
        let active = &self.requests[key];
        let RequestOp::Write { range, .. } = active.op else { unreachable!("a write has parts") };
        let volume_index = active.volume;
        let is_through = self.volume(volume_index).mode == WriteMode::Writethrough;
        let enters_later = is_through && range.is_block_aligned();
        let refused = self.store.answers.get(&key).into_iter().flatten().find_map(|(_, answer)| answer.err());
        for part in parts.iter().filter(|part| part.way == Way::Around) {
            let why = match self.store.answer(key, part.piece) {
                Err(why) => why,
                // It enters when the origin has it, which counts what finds no room then.
                Ok(_) if enters_later => continue,
                // One part without a slot is enough.
                Ok(_) if self.store.policies.writes.all_or_nothing => refused.unwrap_or(Bypass::Pressure),
                Ok(_) => Bypass::Policy(Reason::Unaligned),
            };
            self.volume_mut(volume_index).counters.write_bypasses.add(why, part.blocks.count);
        }
    }
}

impl SlotStore {
    fn ask_for(&mut self, asked: &Asked, is_hit: bool, mode: WriteMode) -> Result<Arrival, Bypass> {
        let SlotStore { policies, replacement, free, .. } = self;
        let access = asked.access;
        let first = Arrival::first(access, access == Access::Write && mode == WriteMode::Writeback);
        if let Some(reason) = policies.cutoff.decide(asked, || policies.prng.next_u32()) {
            // Blocks that are cached already are not bypassed.
            return if is_hit { Ok(first) } else { Err(reason.into()) };
        }
        policies.admission.seen(asked, is_hit);
        if is_hit {
            return Ok(first);
        }
        replacement.miss();
        let decision = policies.admission.decide(asked, &replacement.standing(free.len()));
        if decision.is_ghost_hit {
            replacement.ghost_hit();
        }
        match decision.verdict {
            Verdict::Admit { hits, is_temporary, is_returning } => {
                Ok(Arrival { hits, is_temporary, is_returning, ..first })
            }
            Verdict::Pass(reason) => Err(reason.into()),
        }
    }

    /// Whether one more copy of a whole piece may begin beside `runs` runs on their way home.
    fn may_promote(&self, runs: usize) -> bool {
        let copies = self.promotions.len() + runs;
        match &self.destage {
            Destage::Idle(idle) => {
                let frame_sectors = self.layout.slot_blocks() * to_u32(SECTORS_PER_BLOCK);
                idle.may_promote(to_u32(copies), frame_sectors)
            }
            _ => true,
        }
    }

    /// The arrival with which a piece of a request may enter, or why it may not: what was not asked may not by its mode.
    pub(in crate::store::slots) fn answer(
        &self,
        key: RequestKey,
        piece: PieceKey,
    ) -> Result<Arrival, Bypass> {
        let mut answers = self.answers.get(&key).into_iter().flatten();
        answers.find(|(asked, _)| *asked == piece).map_or(Err(Bypass::Mode), |(_, answer)| *answer)
    }

    /// Takes back the answer for a piece of a request that does not enter after all: there is no room for it.
    pub(in crate::store::slots) fn take_back_answer(&mut self, key: RequestKey, piece: PieceKey) {
        let answers = self.answers.get_mut(&key).into_iter().flatten();
        answers.filter(|(asked, _)| *asked == piece).for_each(|(_, answer)| *answer = Err(Bypass::Pressure));
    }

    /// Notes that a piece that may enter found no slot.
    pub(in crate::store::slots) fn refuse(&mut self, piece: PieceKey, arrival: Arrival) {
        // A piece that is there already, or on its way, for another request, was not refused.
        if self.directory.find(piece, &self.table).is_none() {
            self.policies.admission.refused(piece, arrival.hits);
        }
    }

    /// Forgets the answers of a request that is over.
    pub(in crate::store::slots) fn forget_answers(&mut self, key: RequestKey, now: Nanos) {
        if self.answers.remove(&key).is_some() {
            self.replacement.tick();
            self.policies.admission.tick(&self.replacement.standing(self.free.len()), now);
        }
    }

    /// Notes that the cache device answered a client's request issued at that time.
    pub(in crate::store::slots) fn note_latency(&mut self, access: Access, issued: Nanos, now: Nanos) {
        self.policies.cutoff.device_answered(access, now.since(issued), now);
    }

    /// Whether a range has all sectors of a piece.
    pub(in crate::store::slots) fn covers(
        &self,
        range: SectorRange,
        piece: PieceKey,
        volumes: &Volumes,
    ) -> bool {
        let volume = volumes.of(piece.volume());
        let unit = self.blocks_of(volume, piece);
        let end = (unit.end() * SECTORS_PER_BLOCK).min(volume.size_sectors);
        range.start <= unit.first * SECTORS_PER_BLOCK && range.end() >= end
    }
}

/// The sectors of `range` that lie in `unit`.
pub(in crate::store::slots) fn part_of(range: SectorRange, unit: Blocks) -> SectorRange {
    let start = range.start.max(unit.first * SECTORS_PER_BLOCK);
    let end = range.end().min(unit.end() * SECTORS_PER_BLOCK);
    SectorRange { start, sectors: end - start }
}
