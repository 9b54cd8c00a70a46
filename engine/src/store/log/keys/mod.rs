//! `keys`: the ring holds keys only, data lies in buckets. After bcache.
//!
//! A write goes to a bucket first; when the device has it, its key waits for a batch, which is a header without
//! payload. Everything else is the log's: one sequence, publication in order, floor, cut, `cleaned`, sessions, recovery.
//! What differs:
//!
//! | | inline | keys |
//! | --- | --- | --- |
//! | a batch | header and payload | header; payload was written before |
//! | the tail | dirty data goes home, hits are copied | keys that still hold are appended again |
//! | room | the oldest segment | the bucket that replacement chooses, nothing dirty in it |
//! | a place is void | when its segment is reused | from a `Freed` on (hazard 5) |
//! | no room | writes wait | writes go around the cache |
//!
//! | file | subject |
//! | --- | --- |
//! | `buckets.rs` | the buckets and their life |
//! | `found.rs` | what recovery finds in them |
//! | `data.rs` | from the queue to a bucket |
//! | `early.rs` | answers before keys are in the ring, without `safe` |
//! | `ring.rs` | from a bucket to the ring |
//! | `entries.rs` | appends and publications that no other log has |
//! | `leave.rs` | buckets are given up |
//! | `priorities.rs` | what is written before more buckets are begun |
//! | `tail.rs` | the oldest segment's keys are appended again |
//!
//! Not imitated: buckets are not compacted, as with `copy_gc_enabled` off; the b-tree (its part of the device is
//! the ring's); priorities are written, but nobody reads them at a start.
//!
//! Source: bcache (`request.c`, `alloc.c`, `keys.c`), read; see the profiles.

pub(crate) mod buckets;
mod data;
mod early;
mod entries;
pub(crate) mod found;
mod leave;
mod priorities;
mod ring;
mod tail;

use crate::composition::Composition;
use crate::composition::axes::{
    DestageChoice, ExtentWrites, Journal as JournalChoice, PersistenceChoice, WritesChoice,
};
use crate::format::KeyLayout;
use crate::machine::barrier::FlushMoment;
use crate::machine::guard::Blocks;
use crate::machine::request::RequestKey;
use crate::memory::BufferId;
use crate::policies::controllers::pi::PiEra;
use crate::policies::replacement::Access;
use crate::store::log::segments::Segments;
use crate::units::{Nanos, Place, VolumeIndex};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use buckets::{Buckets, Held};
use early::Early;
pub(super) use entries::{KeyAppend, KeyPublish};
use priorities::Priorities;
use tail::Tail;

/// Keys that wait at the most; then no more data is placed.
const KEYS_MAX: usize = 4096;

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyState {
    /// Its data is on its way to a bucket.
    Writing,
    /// The device has its data.
    Ready,
    /// The same, the index has it, and whoever wrote it was answered; only without `safe`.
    Applied,
    /// The cache failed: it never was.
    Gone,
}

/// The origin of a key's data.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A client's write, or write-zeroes.
    Write { request: RequestKey },
    /// A read's fill, and its content for as long as somebody needs it.
    Read { buffer: Option<BufferId> },
}

/// A key that waits for a batch.
struct Key {
    source: Source,
    volume: VolumeIndex,
    blocks: Blocks,
    /// None for zeroes.
    place: Option<Place>,
    checksums: Vec<u32>,
    /// Where its data is, by the number of `Segments`, and where that ends there. None for zeroes.
    space: Option<(u32, u32)>,
    state: KeyState,
    /// When the device had its data.
    written: Option<FlushMoment>,
}

impl Key {
    fn request(&self) -> Option<RequestKey> {
        match self.source {
            Source::Write { request } => Some(request),
            Source::Read { .. } => None,
        }
    }
}

/// The state of this way to append.
pub(crate) struct Keys {
    /// Whether what passes by counts as written.
    counts_passed: bool,
    pub buckets: Buckets,
    priorities: Priorities,
    /// In the order in which they came.
    waiting: VecDeque<Key>,
    /// The number of the first of them.
    first_key: u64,
    tail: Tail,
    /// How many keys were published.
    published_keys: u64,
    /// Keys are answered for before they are in the ring, and may wait so long for it.
    early: Option<Early>,
    /// Somebody found no bucket.
    is_starved: bool,
    /// No bucket could be given up: not tried again before.
    look_again: Nanos,
    writes: ExtentWrites,
}

impl Keys {
    /// Of what recovery found.
    pub fn new(
        composition: &Composition,
        layout: KeyLayout,
        held: Vec<Option<Vec<Held>>>,
        seed: u64,
    ) -> Keys {
        let PersistenceChoice::Journal(choice) = composition.persistence else {
            unreachable!("buckets come with a journal")
        };
        let JournalChoice { recount_part, journal_delay_ms, priorities_part, .. } = choice;
        let WritesChoice::Extents(writes) = composition.writes else { unreachable!("and with extents") };
        let counts_passed = match composition.destage {
            DestageChoice::Pi(pi) => pi.era != PiEra::C,
            _ => false,
        };
        Keys {
            counts_passed,
            buckets: Buckets::new(layout, &composition.replacement, recount_part, held, seed),
            priorities: Priorities::new(priorities_part, layout.buckets),
            waiting: VecDeque::new(),
            first_key: 0,
            tail: Tail::Idle,
            published_keys: 0,
            early: (!composition.safe).then(|| Early::new(journal_delay_ms)),
            is_starved: false,
            look_again: Nanos(0),
            writes,
        }
    }

    /// Whether too many buckets have dirty data for such a request to enter.
    ///
    /// Source: bcache's `check_should_bypass` and `should_writeback`. Who waits for a write is not known: all count as
    /// synchronous, and `cutoff_writeback_percent` concerns none.
    pub fn is_over_cutoff(&self, access: Access, is_writeback: bool) -> bool {
        let in_use = self.buckets.in_use_percent();
        let is_write = access == Access::Write && is_writeback;
        in_use > self.writes.cutoff_add_percent
            || (is_write && in_use > self.writes.cutoff_writeback_sync_percent)
    }

    /// So many blocks were written around the cache.
    ///
    /// Source: bcache's `bch_data_insert_start`, which took what passes by off what may be written until the next garbage collection,
    /// too, until "bcache: do not subtract sectors_to_gc for bypassed IO" (Linux 4.14): the kernels of the first two controllers.
    pub fn passed(&mut self, blocks: u64, segments: &Segments) {
        if self.counts_passed {
            self.buckets.written(blocks, segments);
        }
    }

    /// A client's request went through the cache.
    pub fn served(&mut self, sectors: u64) {
        self.buckets.served(sectors);
    }

    /// A client read what lies at a place.
    pub fn hit(&mut self, place: Place) {
        self.buckets.hit(place);
    }

    /// How many keys can go into a batch, from the first on.
    fn ready(&self) -> usize {
        let applied = self.applied();
        applied + self.waiting.range(applied..).take_while(|key| key.state != KeyState::Writing).count()
    }

    /// Whether the device still reads a buffer of a request for a bucket.
    pub fn is_writing(&self, request: RequestKey) -> bool {
        self.waiting.iter().any(|key| key.state == KeyState::Writing && key.request() == Some(request))
    }

    /// Whether nothing waits.
    pub fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the clock has to come back.
    pub fn is_busy(&self) -> bool {
        self.is_starved || self.buckets.has_leaving() || !matches!(self.tail, Tail::Idle)
    }

    /// Whether clients wait for a bucket.
    pub fn is_starved(&self) -> bool {
        self.is_starved
    }

    /// Whether a key of a volume waits.
    pub fn concern(&self, volume: VolumeIndex) -> bool {
        self.waiting.iter().any(|key| key.state != KeyState::Gone && key.volume == volume)
    }
}

impl core::fmt::Debug for Keys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Keys")
            .field("keys", &self.waiting.len())
            .field("ready", &self.ready())
            .field("free", &self.buckets.free())
            .field("has_leaving", &self.buckets.has_leaving())
            .field("tail", &self.tail)
            .field("is_starved", &self.is_starved)
            .finish_non_exhaustive()
    }
}
