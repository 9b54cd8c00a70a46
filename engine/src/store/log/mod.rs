//! The log's writing end: what waits to be appended, batches in flight, publication.
//!
//! Everything that changes what the cache holds goes through here in one order. A batch gets its
//! sequence when it is assembled; its entries enter the index when it and all before it are on the device
//! (hazard 14). Copies of what is already there (fills, relocations) are decided at assembly, when no newer version of
//! the block is on its way (rule 3).

pub(crate) mod appender;
mod assembly;
mod change;
pub(crate) mod checkpoint;
pub(crate) mod controller;
mod draft;
pub(crate) mod extents;
mod fills;
pub(crate) mod flood;
pub(crate) mod frames;
mod gather;
mod home;
pub mod index;
pub(crate) mod inline;
pub(crate) mod keys;
pub(crate) mod mirror;
mod note;
mod once;
mod ordered;
pub(crate) mod policies;
mod publication;
pub(crate) mod reclaim;
pub(crate) mod recovery;
mod room;
pub(crate) mod salvage;
pub mod scan;
mod scrub;
mod sealing;
pub(crate) mod segments;
mod sparse;
mod staying;
mod store;
mod trials;

use crate::format::{Entry, SummaryBuilder};
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::machine::request::RequestKey;
use crate::memory::{BufferId, Slice};
use crate::mutation::Mutation;
use crate::store::Lookup;
use crate::store::log::extents::{Extent, Extents};
use crate::store::log::flood::Flood;
use crate::store::log::index::Index;
use crate::store::log::reclaim::{Kept, Reclaim};
use crate::store::log::segments::Segments;
use crate::units::{BlockKey, Nanos, Place, VolumeIndex};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use appender::Appender;
use checkpoint::Checkpoints;
use controller::Controller;
use fills::Fill;
use inline::late::Late;
use keys::{KeyAppend, KeyPublish};
use mirror::Mirrored;
use note::Note;
use once::OnceLayout;
use policies::Policies;
use slab::Slab;

/// Everything is appended to a ring of segments; an index in memory knows where.
pub(crate) struct LogStore {
    pub index: Index,
    /// A sequence below which the log has clean copies that the start left out of the index, for want of memory.
    pub left_out_to: Option<u64>,
    pub extents: Extents,
    pub segments: Segments,
    pub log: Log,
    pub reclaim: Reclaim,
    /// Floods: writes that come faster than they go home.
    pub flood: Flood,
    /// How clients' data gets into the log.
    pub appender: Appender,
    /// The generation of segments from which on counts what one half alone has, by half; `None` where nothing is kept so.
    pub once_counts_from: Option<[u64; 2]>,
    /// Halves that clients' reads do without.
    pub passed_halves: [bool; 2],
    /// Segments whose heads and summaries are compared with their checksums.
    pub scrubs: Slab<scrub::SegmentScrub>,
    /// Admission and cutoff.
    pub policies: Policies,
    /// The controller of destage, which may leave all to the sweep.
    pub controller: Controller,
    /// Checkpoints of the index; `None` where there can be none.
    pub checkpoints: Option<Box<Checkpoints>>,
}

/// Purposes of the log's own operations.
pub(crate) enum LogFlight {
    /// A batch, or the header of a late one.
    Batch { sequence: u64 },
    /// A part of a late batch.
    LatePart { sequence: u64, number: u32 },
    /// The summary of a segment.
    Summary { segment: u32, buffer: BufferId },
    /// The summary of a segment to be reclaimed.
    SummaryRead { segment: u32, buffer: BufferId },
    /// Blocks that stay, to be appended again.
    RelocateRead { buffer: BufferId, blocks: Vec<Kept>, segment: u32 },
    /// Data on its way to a bucket, and since when; the number of its key.
    Data { key: u64, issued: Nanos },
    /// Blocks on their way to frames.
    Frames { write: u64 },
    /// Priorities on their way to a bucket that holds nothing else.
    Priorities { bucket: u32, buffer: BufferId },
    /// A chunk of a checkpoint, or its record.
    Checkpoint { buffer: BufferId },
    /// A step of the scrub of a segment's head or summary on a device.
    Scrub { scrub: usize, step: scrub::Step },
}

/// Content of a part of a client's change.
#[derive(Clone, Copy)]
pub(crate) enum PartSource {
    Data(Slice),
    Zero,
}

/// Appends on behalf of clients that wait for a batch; held back while free segments are few.
pub(crate) enum ClientAppend {
    /// Part of a write or of write-zeroes.
    Part { request: RequestKey, blocks: Blocks, source: PartSource },
    /// Content that a read brought from the origin, where it keeps its place among the others.
    Fill(Fill),
}

/// Appends on behalf of the log itself that wait for a batch; they may use the reserve.
#[derive(Debug)]
pub(crate) enum InternalAppend {
    /// The log holds nothing for these blocks any more.
    ///
    /// Until it is in a batch, headers say no more of what is dirty than `oldest_dirty_sequence`, which is from before
    /// anything was dropped; `None` if nothing dirty was.
    Tombstone {
        volume: VolumeIndex,
        blocks: Blocks,
        request: Option<RequestKey>,
        oldest_dirty_sequence: Option<u64>,
    },
    /// These copies are clean now, if the place is in the same life still.
    Cleaned { volume: VolumeIndex, blocks: Blocks, place: Place, life: u64, is_zero: bool },
    /// A block that stays when its segment is emptied.
    Relocate { key: BlockKey, from: Place, checksum: u32, slice: Slice },
    /// A zero extent that stays.
    Zero { extent: Extent },
    /// A dirty block that rotted, or a lost extent that stays.
    Lost { first: BlockKey, blocks: u64, from: Place, life: u64 },
    /// All of a volume up to a sequence is home, and it goes home in strict order.
    Home { volume: VolumeIndex, sequence: u64 },
    /// An append that only a log of keys has.
    Keys(KeyAppend),
}

/// Steps of a batch's publication, in order.
enum Publish {
    Part {
        request: RequestKey,
        volume: VolumeIndex,
        blocks: Blocks,
        place: Option<Place>,
        checksums_at: usize,
    },
    Fill {
        volume: VolumeIndex,
        blocks: Blocks,
        place: Place,
        checksums_at: usize,
        buffer: BufferId,
    },
    /// Part of a write that lies in memory, too.
    Mirrored(Mirrored),
    Tombstone {
        request: Option<RequestKey>,
    },
    Relocate {
        key: BlockKey,
        from: Place,
        place: Place,
        dirty: bool,
        checksums_at: usize,
        buffer: BufferId,
    },
    Extent {
        extent: Extent,
        from: Option<Place>,
    },
    /// The head of a segment that began with this batch.
    Head {
        buffer: BufferId,
    },
    /// A step that only a log of keys has.
    Keys(KeyPublish),
}

struct Batch {
    sequence: u64,
    segment: u32,
    end_block: u32,
    header_place: Place,
    header: BufferId,
    checksums: Vec<u32>,
    publish: Vec<Publish>,
    once: OnceLayout,
    /// Clients' writes that are wholly in it, where those share headers.
    writes: usize,
    is_done: bool,
    /// Its open end, if its header comes last.
    late: Option<Box<Late>>,
}

/// Statements of a header about the batches before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stated {
    pub floor_sequence: u64,
    pub oldest_dirty_sequence: u64,
}

/// The summary of a segment that was closed before a crash, and is not on the device.
pub(crate) struct MissingSummary {
    pub segment: u32,
    pub summary: SummaryBuilder,
    pub last_header_checksum: u32,
    /// By the segment's last header.
    pub stated: Stated,
}

struct Open {
    segment: u32,
    next_block: u32,
    summary: SummaryBuilder,
}

/// The end of the log.
pub(crate) struct Log {
    set_id: [u8; 16],
    session: u64,
    generation: u64,
    next_sequence: u64,
    chain: u32,
    open: Option<Open>,
    client: VecDeque<ClientAppend>,
    internal: VecDeque<InternalAppend>,
    pub pending_blocks: u64,
    pub pending_fill_blocks: u64,
    pub summaries_in_flight: u32,
    in_flight: VecDeque<Batch>,
    /// Clients' writes in all of them.
    in_flight_writes: usize,
    /// Published batches that no flush covers: sequence, segment, end of the batch in it.
    ends: VecDeque<(u64, u32, u32)>,
    published: u64,
    /// The highest sequence of which anything is published.
    answered: u64,
    /// Blocks in buckets whose keys were published since the engine last wanted a flush for them.
    unflushed_key_blocks: u64,
    /// The sequence of the last record assembled without which something dropped from RAM would come back: a
    /// tombstone, or that a zero extent is home.
    last_tombstone: u64,
    /// Zero extents that are home and dropped from RAM, whose records wait to be assembled.
    zeroes_home_pending: u64,
    /// Zeroes whose move was published when they were not where they came from any more.
    moved_late: Vec<Extent>,
    /// Whether a batch shall go out even if empty, to carry the floor.
    is_floor_wanted: bool,
    /// Segments closed before a crash whose summaries are not on the device.
    missing_summaries: Vec<MissingSummary>,
    /// By the last header.
    stated: Stated,
    note: Note,
    scratch_entries: Vec<Entry>,
    scratch_pieces: Vec<Slice>,
    /// Empty: that of the last segment, whose memory the next one's takes.
    scratch_summary: SummaryBuilder,
    /// The same of the lists of parts that were published.
    scratch_lists: Vec<(Vec<Publish>, Vec<u32>)>,
}

/// Where recovery leaves the log.
pub(crate) struct LogStart {
    pub set_id: [u8; 16],
    pub session: u64,
    pub last_generation: u64,
    pub next_sequence: u64,
    pub chain: u32,
    pub open: Option<(u32, u32, SummaryBuilder)>,
    pub missing_summaries: Vec<MissingSummary>,
    pub stated: Stated,
}

impl core::fmt::Debug for Log {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Log")
            .field("next_sequence", &self.next_sequence)
            .field("published", &self.published)
            .field("open", &self.open.as_ref().map(|open| (open.segment, open.next_block)))
            .field("client", &self.client.len())
            .field("internal", &self.internal.len())
            .field("internal_first", &self.internal.front())
            .field("in_flight", &self.in_flight.len())
            .field("is_floor_wanted", &self.is_floor_wanted)
            .finish_non_exhaustive()
    }
}

impl Log {
    pub fn new(start: LogStart) -> Log {
        let LogStart { set_id, session, last_generation, next_sequence, chain, open, .. } = start;
        assert!(next_sequence > 0, "sequences begin at 1");
        Log {
            set_id,
            session,
            generation: last_generation,
            next_sequence,
            chain,
            open: open.map(|(segment, next_block, summary)| Open { segment, next_block, summary }),
            client: VecDeque::new(),
            internal: VecDeque::new(),
            pending_blocks: 0,
            pending_fill_blocks: 0,
            summaries_in_flight: 0,
            in_flight: VecDeque::new(),
            in_flight_writes: 0,
            ends: VecDeque::new(),
            published: next_sequence - 1,
            answered: next_sequence - 1,
            last_tombstone: 0,
            zeroes_home_pending: 0,
            moved_late: Vec::new(),
            is_floor_wanted: false,
            missing_summaries: start.missing_summaries,
            stated: start.stated,
            note: Note::new(next_sequence - 1),
            scratch_entries: Vec::new(),
            unflushed_key_blocks: 0,
            scratch_pieces: Vec::new(),
            scratch_summary: SummaryBuilder::default(),
            scratch_lists: Vec::new(),
        }
    }

    /// A new session begins: headers carry its number from here on.
    pub fn begin_session(&mut self, session: u64) {
        assert!(session > self.session, "the numbers of sessions rise");
        assert!(self.in_flight.is_empty(), "no batch of the session before is under way");
        self.session = session;
    }

    /// Whether anything waits for a batch.
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.client.is_empty() || !self.internal.is_empty() || self.is_floor_wanted
    }

    /// The highest sequence that is published, and all before it.
    #[inline]
    pub fn published(&self) -> u64 {
        self.published
    }

    /// The sequence that a flush has to cover, so that all is durable that is published.
    pub fn answered(&self) -> u64 {
        self.answered.max(self.published)
    }

    /// Writes to the device that clients wait for.
    fn under_way(&self) -> usize {
        self.in_flight.iter().map(|batch| batch.late.as_ref().map_or(1, |late| late.in_air())).sum()
    }

    /// Whether a crash left segments without a summary.
    #[inline]
    pub fn has_missing_summaries(&self) -> bool {
        !self.missing_summaries.is_empty()
    }

    /// Whether nothing waits and nothing is in flight.
    pub fn is_quiet(&self) -> bool {
        self.client.is_empty() && self.internal.is_empty() && self.in_flight.is_empty()
    }

    /// Whether blocks that were read from an origin wait or are in flight.
    pub fn is_filling(&self) -> bool {
        let mut in_flight = self.in_flight.iter().flat_map(Batch::publishes);
        self.pending_fill_blocks > 0 || in_flight.any(|publish| matches!(publish, Publish::Fill { .. }))
    }

    /// Whether extents wait to be recorded again.
    pub fn has_extents_pending(&self) -> bool {
        let is_extent = |append: &InternalAppend| {
            matches!(append, InternalAppend::Zero { .. } | InternalAppend::Lost { .. })
        };
        self.internal.iter().any(is_extent)
    }

    /// Whether work of the log's own waits.
    pub fn has_internal(&self) -> bool {
        !self.internal.is_empty()
    }

    pub fn push_client(&mut self, append: ClientAppend) {
        self.pending_blocks += append.weight();
        self.client.push_back(append);
    }

    /// Takes back the parts of requests that `is_wanted` and that wait for a batch; the requests in order, and
    /// how many blocks of each that were.
    pub fn withdraw(&mut self, is_wanted: impl Fn(RequestKey) -> bool) -> Vec<(RequestKey, u64)> {
        let mut withdrawn: Vec<(RequestKey, u64)> = Vec::new();
        let pending_blocks = &mut self.pending_blocks;
        self.client.retain(|append| match append {
            ClientAppend::Part { request, blocks, .. } if is_wanted(*request) => {
                *pending_blocks -= append.weight();
                match withdrawn.last_mut() {
                    // The parts of one request wait side by side.
                    Some((last, sum)) if last == request => *sum += blocks.count,
                    _ => withdrawn.push((*request, blocks.count)),
                }
                false
            }
            ClientAppend::Part { .. } | ClientAppend::Fill(_) => true,
        });
        withdrawn
    }

    pub fn push_internal(&mut self, append: InternalAppend) {
        self.pending_blocks += append.weight();
        self.zeroes_home_pending += u64::from(append.is_zero_home());
        self.internal.push_back(append);
    }

    /// Whether a tombstone of one of these blocks waits to be assembled.
    pub fn has_tombstone_pending(&self, volume: VolumeIndex, blocks: Blocks) -> bool {
        self.internal.iter().any(|append| match append {
            InternalAppend::Tombstone { volume: other, blocks: dropped, .. } => {
                *other == volume && dropped.first < blocks.end() && blocks.first < dropped.end()
            }
            InternalAppend::Relocate { .. }
            | InternalAppend::Cleaned { .. }
            | InternalAppend::Zero { .. }
            | InternalAppend::Lost { .. }
            | InternalAppend::Home { .. }
            | InternalAppend::Keys(_) => false,
        })
    }

    fn is_open(&self, segment: u32) -> bool {
        self.open.as_ref().is_some_and(|open| open.segment == segment)
    }
}

impl ClientAppend {
    fn weight(&self) -> u64 {
        match self {
            ClientAppend::Part { source: PartSource::Zero, .. } => 0,
            ClientAppend::Part { blocks, .. } | ClientAppend::Fill(Fill { blocks, .. }) => blocks.count,
        }
    }
}

impl InternalAppend {
    fn is_zero_home(&self) -> bool {
        matches!(self, InternalAppend::Cleaned { is_zero: true, .. } | InternalAppend::Home { .. })
    }

    fn weight(&self) -> u64 {
        u64::from(matches!(self, InternalAppend::Relocate { .. }))
    }

    /// The volume that has to stay for it.
    fn volume(&self) -> Option<VolumeIndex> {
        match self {
            InternalAppend::Tombstone { volume, .. }
            | InternalAppend::Cleaned { volume, .. }
            | InternalAppend::Home { volume, .. } => Some(*volume),
            InternalAppend::Relocate { key, .. } => Some(key.volume()),
            InternalAppend::Zero { extent } => Some(extent.first.volume()),
            InternalAppend::Lost { first, .. } => Some(first.volume()),
            InternalAppend::Keys(append) => append.volume(),
        }
    }

    /// Whether it takes something out of the oldest segments.
    fn empties(&self, segments: &Segments) -> bool {
        match self {
            InternalAppend::Relocate { .. } | InternalAppend::Zero { .. } | InternalAppend::Lost { .. } => {
                true
            }
            // The next interval waits for it, and the oldest segments for that.
            InternalAppend::Home { .. } => true,
            InternalAppend::Tombstone { .. } => false,
            InternalAppend::Cleaned { place, .. } => {
                segments.oldest() == Some(segments.of(*place))
                    && !segments.mutations.has(Mutation::StuckMovedInPart)
            }
            InternalAppend::Keys(append) => append.empties(),
        }
    }
}

impl Machine<LogStore> {
    // ---- what the log is asked to hold -----------------------------------------------------

    /// For `blocks`, of which nothing that was dropped is dirty.
    pub(crate) fn append_tombstone(&mut self, volume: VolumeIndex, blocks: Blocks) {
        self.store.log.push_internal(InternalAppend::Tombstone {
            volume,
            blocks,
            request: None,
            oldest_dirty_sequence: None,
        });
    }

    /// A dirty block's only copy rotted.
    pub(crate) fn append_lost(&mut self, key: BlockKey) {
        if self.is_mutated(Mutation::LostNotRecorded) {
            return;
        }
        let Some(entry) = self.store.index.get(key) else { return };
        let (from, life) = (entry.place, self.store.life(entry.place));
        self.store.log.push_internal(InternalAppend::Lost { first: key, blocks: 1, from, life });
    }

    /// Wants a header whose floor is above all emptied segments, and a flush that covers it.
    pub(crate) fn want_floor(&mut self) {
        if self.store.segments.has_emptied()
            && self.store.segments.flush_wanted().is_none_or(|w| w <= self.barrier.flushed)
        {
            self.store.log.is_floor_wanted = true;
        }
        if let Some(sequence) = self.store.segments.flush_wanted() {
            self.barrier.want(sequence);
        }
        self.barrier.want(self.store.log.last_tombstone);
    }

    /// Whether nothing that the log forgot could come back after a crash.
    pub(crate) fn is_floor_durable(&self) -> bool {
        // RULE 7: neither a segment that was emptied nor a copy that was dropped may come back.
        let is_floor_carried =
            !self.store.segments.has_emptied() || self.is_mutated(Mutation::BypassBeforeFloor);
        let is_dropped = self.store.log.last_tombstone <= self.barrier.flushed
            || self.is_mutated(Mutation::TombstoneUnflushed);
        let is_recorded =
            self.store.log.zeroes_home_pending == 0 || self.is_mutated(Mutation::ForgetZeroesHome);
        // What a bucket had that was given up is in no header's floor: its own entry says so.
        let flushed = self.barrier.flushed;
        let is_freed = self.store.appender.are_freed(flushed) || self.is_mutated(Mutation::BypassBeforeFreed);
        is_floor_carried && is_dropped && is_recorded && is_freed
    }
}
