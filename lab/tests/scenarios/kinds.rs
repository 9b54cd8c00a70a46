//! The ways to keep records that the scenarios run on.

use engine::composition::Composition;
use engine::format::{Geometry, KeyLayout};
use engine::limits::Config;
use forebay_lab::world::{Setup, SlotSetup, World};

/// A way to keep records: the axis `persistence` of a composition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Our own log.
    Inline,
    /// Slots, recorded by page.
    SyncSector,
    /// Slots, recorded by transactions.
    Commit,
    /// The same with trees of dirty bits.
    BitTree,
    /// Keys in a ring, data in buckets.
    Journal,
    /// The log with dirty data in memory, too.
    Mirror,
    /// The log with clean data in frames.
    Frames,
}

use Kind::{BitTree, Commit, Frames, Inline, Journal, Mirror, SyncSector};

/// All.
pub const ALL: &[Kind] = &[Inline, SyncSector, Commit, BitTree, Journal, Mirror, Frames];
/// All that read dirty blocks from a device: the mirror reads them from memory.
pub const BUT_MIRROR: &[Kind] = &[Inline, SyncSector, Commit, BitTree, Journal, Frames];
/// Our own alone.
pub const INLINE: &[Kind] = &[Inline];
/// The one ring that forgets what its oldest segments had as soon as they are emptied.
pub const MIRROR: &[Kind] = &[Mirror];
/// All that append.
pub const RINGS: &[Kind] = &[Inline, Journal, Mirror, Frames];
/// All with slots.
pub const SLOTS: &[Kind] = &[SyncSector, Commit, BitTree];
/// Slots that transactions record.
pub const TRANSACTIONS: &[Kind] = &[Commit, BitTree];

/// Slots of 4 KiB, or 64 KiB.
pub const SLOT_COUNT: u32 = 64;
/// Buckets of four blocks.
pub const KEY_LAYOUT: KeyLayout =
    KeyLayout { geometry: Geometry { segments: 64, segment_blocks: 32 }, bucket_blocks: 4, buckets: 24 };
/// Frames in groups of 16.
pub const FRAME_LAYOUT: KeyLayout =
    KeyLayout { geometry: Geometry { segments: 64, segment_blocks: 32 }, bucket_blocks: 16, buckets: 8 };
/// Dirty blocks that have room in memory.
pub const MEMORY_BLOCKS: u64 = 512;

impl Kind {
    /// Its name as a composition has it.
    pub fn name(self) -> &'static str {
        match self {
            Inline => "inline",
            SyncSector => "sync-sector",
            Commit => "commit",
            BitTree => "bit-tree",
            Journal => "journal",
            Mirror => "mirror",
            Frames => "frames",
        }
    }

    /// The same world with records of this kind, unless it has a way of its own.
    pub fn of(self, setup: Setup) -> Setup {
        if setup.slots.is_some() || setup.keys.is_some() || setup.memory_blocks > 0 {
            return setup;
        }
        match self {
            Inline => setup,
            SyncSector | Commit | BitTree => with_slots(setup, &[("persistence", self.name())]),
            Journal => setup.with_buckets(KEY_LAYOUT, &[], true),
            Mirror => setup.with_mirror(MEMORY_BLOCKS, true),
            Frames => setup.with_frames(FRAME_LAYOUT),
        }
    }
}

/// How long an area stays open in the worlds here: for ever.
const AREA_IDLE_NS: u64 = u64::MAX;

/// Whether an area that was opened stays open.
pub fn stays_open(world: &World) -> bool {
    let mut config = world.setup().bounds.expect("a world with slots");
    (world.setup().config)(&mut config);
    config.area_idle_ns == AREA_IDLE_NS
}

/// The same with slots of 4 KiB in one set, and these choices.
pub fn with_slots(mut setup: Setup, settings: &[(&str, &str)]) -> Setup {
    let mut composition = Composition::plain_slots();
    for (name, value) in [("ways", "0")].iter().chain(settings) {
        composition.set(name, value).expect("names and values of the tables");
    }
    composition.validate().expect("the choices go together");
    setup.slots = Some(SlotSetup::new(SLOT_COUNT, composition));
    setup.bounds = Some(Config {
        area_idle_ns: AREA_IDLE_NS,
        ..Config::for_cache(setup.segments, setup.segment_blocks)
    });
    setup
}
