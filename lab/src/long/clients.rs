//! The clients' side of a long run: requests cut into pieces as a door cuts them, and their answers put together.

use super::buffers::Buffers;
use super::ledger::{Change, Ledger, Mismatch};
use super::tag;
use super::workload::{Action, Answer, Demand};
use engine::effect::{Errno, Request, RequestId, RequestOp};
use engine::engine::Engine;
use engine::limits::{RANGE_BYTES_MAX, REQUEST_BYTES_MAX};
use engine::memory::{BufferId, Memory, Slice};
use engine::units::{BLOCK_BYTES, Nanos, SECTOR_BYTES, SECTORS_PER_BLOCK, SectorRange, VolumeIndex};
use slab::Slab;
use std::collections::VecDeque;

/// A request as it came.
struct Asked {
    demand: Demand,
    /// Pieces of it that are not answered.
    pieces: u32,
    error: Option<Errno>,
}

/// A piece of a request, short enough for the engine.
struct Piece {
    asked: u32,
    range: SectorRange,
    /// The buffer of a read whose content will be compared; this reference to it is ours.
    buffer: Option<BufferId>,
    /// When it began, by the ledger's time.
    began: u64,
    /// Content that a change puts there.
    change: Option<Change>,
}

/// Requests of clients that are not answered.
pub(super) struct Clients {
    asked: Slab<Asked>,
    pieces: Slab<Piece>,
    /// Requests that the engine had no room for.
    backlog: VecDeque<Request>,
    ledger: Option<Ledger>,
    version: u64,
}

/// The engine's side of it, for the length of a call.
pub(super) struct Port<'a> {
    pub now: Nanos,
    pub engine: &'a mut Engine,
    pub buffers: &'a mut Buffers,
}

impl Clients {
    pub(super) fn new(ledger: Option<Ledger>) -> Clients {
        Clients {
            asked: Slab::with_capacity(1024),
            pieces: Slab::with_capacity(1024),
            backlog: VecDeque::new(),
            ledger,
            version: 0,
        }
    }

    /// Requests that the engine has not answered.
    pub(super) fn unanswered(&self) -> usize {
        self.asked.len()
    }

    /// Whether the engine has no room for a request more.
    pub(super) fn is_full(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// The ledger, if reads are compared.
    pub(super) fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// Submits requests that the engine had no room for; stops when it has none again.
    pub(super) fn submit_backlog(&mut self, port: &mut Port<'_>) {
        while let Some(&request) = self.backlog.front() {
            if !port.submit(request) {
                return;
            }
            self.backlog.pop_front();
        }
    }

    fn submit(&mut self, request: Request, port: &mut Port<'_>) {
        if self.is_full() || !port.submit(request) {
            self.backlog.push_back(request);
        }
    }

    /// Takes a request.
    pub(super) fn ask(&mut self, demand: Demand, port: &mut Port<'_>) {
        assert!(demand.due <= port.now, "a request is handed over when it is due");
        let asked = self.asked.insert(Asked { demand, pieces: 0, error: None }) as u32;
        let (range, len_bytes_max) = match demand.action {
            Action::Read(range) | Action::Write { range, .. } => (range, u64::from(REQUEST_BYTES_MAX)),
            Action::Discard(range) | Action::WriteZeroes(range) => (range, RANGE_BYTES_MAX),
            Action::Flush => (SectorRange { start: 0, sectors: 0 }, 0),
        };
        assert!(len_bytes_max == 0 || range.sectors > 0, "a range is not empty");
        let mut start = range.start;
        loop {
            // As a door cuts: at block borders, however the range begins.
            let sectors_max = (len_bytes_max / SECTOR_BYTES).saturating_sub(start % SECTORS_PER_BLOCK);
            let sectors = (range.end() - start).min(sectors_max);
            self.ask_piece(asked, &demand, SectorRange { start, sectors }, port);
            start += sectors;
            if start == range.end() {
                break;
            }
        }
    }

    /// Asks for the write-back of all that is dirty; the answer counts as a flush's.
    pub(super) fn ask_to_drain(&mut self, volume: VolumeIndex, port: &mut Port<'_>) {
        let demand = Demand { job: 0, volume, action: Action::Flush, due: port.now };
        let asked = self.asked.insert(Asked { demand, pieces: 1, error: None }) as u32;
        let range = SectorRange { start: 0, sectors: 0 };
        let piece = Piece { asked, range, buffer: None, began: 0, change: None };
        let id = RequestId(self.pieces.insert(piece) as u64);
        let request = Request { id, volume, op: RequestOp::Drain };
        self.submit(request, port);
    }

    fn ask_piece(&mut self, asked: u32, demand: &Demand, range: SectorRange, port: &mut Port<'_>) {
        self.asked[asked as usize].pieces += 1;
        let mut piece = Piece { asked, range, buffer: None, began: 0, change: None };
        let len_bytes = (range.sectors * SECTOR_BYTES) as u32;
        let op = match demand.action {
            Action::Read(_) => {
                let buffer = port.buffers.of_client(len_bytes);
                if let Some(ledger) = &mut self.ledger {
                    piece.began = ledger.time();
                    piece.buffer = Some(buffer);
                    port.buffers.retain(buffer);
                }
                RequestOp::Read { range, into: Slice { buffer, offset_bytes: 0, len_bytes } }
            }
            Action::Write { fua, .. } => {
                let buffer = port.buffers.of_client(len_bytes);
                let from = Slice { buffer, offset_bytes: 0, len_bytes };
                self.version += 1;
                piece.change = Some(Change::Write(self.version));
                if self.ledger.is_some() {
                    self.write_tags(from, range, port.buffers);
                }
                RequestOp::Write { range, from, fua }
            }
            Action::Flush => RequestOp::Flush,
            Action::Discard(_) => {
                piece.change = Some(Change::Discard);
                RequestOp::Discard { range, fua: false }
            }
            Action::WriteZeroes(_) => {
                piece.change = Some(Change::Zeroes);
                RequestOp::WriteZeroes { range, fua: false }
            }
        };
        if let (Some(ledger), Some(_)) = (&mut self.ledger, piece.change) {
            ledger.change_begins(demand.volume, range);
        }
        let id = RequestId(self.pieces.insert(piece) as u64);
        let request = Request { id, volume: demand.volume, op };
        self.submit(request, port);
    }

    /// Fills the buffer of a write with the tags of its version.
    fn write_tags(&self, from: Slice, range: SectorRange, buffers: &mut Buffers) {
        let is_aligned = range.is_block_aligned();
        for part in tag::parts(0, u64::from(from.len_bytes).next_multiple_of(BLOCK_BYTES)) {
            let block = is_aligned.then(|| range.first_block() + part.block);
            let tag = tag::of_write(self.version, block);
            buffers.put(from, part.at_bytes, BLOCK_BYTES as u32, tag);
        }
    }

    /// The engine answered a piece: the answer of the whole request, if this was its last.
    pub(super) fn replied(
        &mut self,
        now: Nanos,
        id: RequestId,
        result: Result<(), Errno>,
        buffers: &mut Buffers,
    ) -> Result<Option<Answer>, Mismatch> {
        let piece = self.pieces.remove(id.0 as usize);
        if self.ledger.is_some() {
            self.judge(&piece, result, buffers)?;
        }
        let asked = &mut self.asked[piece.asked as usize];
        asked.pieces -= 1;
        asked.error = asked.error.or(result.err());
        if asked.pieces > 0 {
            return Ok(None);
        }
        let Asked { demand, error, .. } = self.asked.remove(piece.asked as usize);
        Ok(Some(Answer { demand, answered: now, result: error.map_or(Ok(()), Err) }))
    }

    /// Compares the data that a read returned, and notes the data of a change.
    fn judge(
        &mut self,
        piece: &Piece,
        result: Result<(), Errno>,
        buffers: &mut Buffers,
    ) -> Result<(), Mismatch> {
        let volume = self.asked[piece.asked as usize].demand.volume;
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        if let Some(change) = piece.change {
            ledger.change_ends(volume, piece.range, change, result.is_ok());
        }
        let Some(buffer) = piece.buffer else { return Ok(()) };
        let blocks = piece.range.first_block()..piece.range.end_block();
        if result.is_ok() && piece.range.is_block_aligned() {
            let into =
                Slice { buffer, offset_bytes: 0, len_bytes: (piece.range.sectors * SECTOR_BYTES) as u32 };
            for (step, block) in (0u64..).zip(blocks) {
                let found = buffers.tag(into, step * BLOCK_BYTES);
                ledger.read_ends(volume, block, piece.began, found)?;
            }
        } else {
            ledger.unverified_blocks += blocks.end - blocks.start;
        }
        buffers.release(buffer);
        Ok(())
    }
}

impl Port<'_> {
    /// Submits a request; false if the engine has no room for it.
    fn submit(&mut self, request: Request) -> bool {
        self.engine.submit(self.now, request, self.buffers).is_ok()
    }
}
