//! The start of a world: devices, volumes, the cache's composition, and its promises.

use super::servers::ServerSetup;
use crate::oracle::Contract;
use engine::composition::Composition;
use engine::composition::axes::{OrderChoice, PersistenceChoice, WritesChoice};
use engine::composition::contract::Keeps;
use engine::effect::WriteMode;
use engine::format::{CHECKSUM_PAGE_RECORDS, KeyLayout, SlotLayout};
use engine::limits::Config;
use engine::mutation::Mutations;
use engine::policies::fetch::Fetch;
use engine::recovery::Options;
use engine::units::{BLOCK_BYTES, Nanos, VOLUMES_MAX};

/// How long it may take to write what is written after some time at the latest, in milliseconds.
const WRITING_MS_MAX: u64 = 1000;

/// A volume to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSetup {
    /// Its size in sectors.
    pub sectors: u64,
    /// Its mode.
    pub mode: WriteMode,
}

/// A cache with slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotSetup {
    /// How many, at the least.
    pub slots: u32,
    /// Composition of the cache.
    pub composition: Composition,
    /// Blocks of an area of checksums.
    pub area_blocks: u32,
}

impl SlotSetup {
    /// Slots with areas as large as usual, of which a small cache has one or two.
    #[must_use]
    pub fn new(slots: u32, composition: Composition) -> SlotSetup {
        SlotSetup { slots, composition, area_blocks: CHECKSUM_PAGE_RECORDS }
    }

    /// How the cache device is divided.
    ///
    /// # Panics
    /// If the composition is not one of slots.
    #[must_use]
    pub fn layout(&self) -> SlotLayout {
        SlotLayout::of_composition_with_slots(self.slots, &self.composition)
            .expect("a composition with slots")
            .with_area_blocks(self.area_blocks)
    }
}

/// The range of a device's latencies: drawn for each operation, so that they end in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// At the least.
    pub least_ns: u64,
    /// At the most.
    pub most_ns: u64,
}

/// A world to begin with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The seed of all draws.
    pub seed: u64,
    /// Segments of the cache: 64 at the least.
    pub segments: u32,
    /// Blocks of a segment: a power of two, 32 at the least.
    pub segment_blocks: u32,
    /// Blocks behind the segments, which checkpoints of the index have; 0: there are none.
    pub checkpoint_blocks: u32,
    /// Slots instead of segments.
    pub slots: Option<SlotSetup>,
    /// Buckets, and segments for keys; or frames, if the composition has them.
    pub keys: Option<KeyLayout>,
    /// Composition of a cache without slots, as text; empty for our own.
    pub composition: String,
    /// Dirty blocks that have room in memory, where they lie there, too.
    pub memory_blocks: u64,
    /// The volumes, in their slots' order.
    pub volumes: Vec<VolumeSetup>,
    /// The engine's bounds, if not those for a cache of this size.
    pub bounds: Option<Config>,
    /// Changes the engine's bounds.
    pub config: fn(&mut Config),
    /// Memory for the index.
    pub index_budget_bytes: u64,
    /// Whether recovery cuts the log at damage that no crash explains.
    pub repair: bool,
    /// Planted bugs; none without the feature `mutations`.
    pub mutations: Mutations,
    /// Whether `check` looks at the cache after every recovery. Not where bits rot.
    pub is_checked_on_open: bool,
    /// Whether each start compares the clean copies with the origins. If not, only clients' reads show a difference.
    pub are_copies_compared: bool,
    /// Whether each start compares the origins with what the cache knows of them, as the daemon does.
    pub are_origins_compared: bool,
    /// Whether origins have a stable identity, as block devices and files do.
    pub have_origins_identities: bool,
    /// Whether the cache is mirrored on two devices.
    pub is_mirrored: bool,
    /// Whether the process has memory that outlives it.
    pub has_lasting_memory: bool,
    /// Whether the driver lets the engine catch up when effects are on their way, or leaves that to their answers.
    pub catches_up: bool,
    /// Calls of the engine that the driver makes at the most before it takes the effects of all of them.
    pub group_calls: u64,
    /// Per cent of notes that the cache of a volume is given up which fail.
    pub note_errors: u64,
    /// Whether the cache device may be blank, or an older one, at any start.
    pub is_ephemeral: bool,
    /// Promises that the oracle holds the cache to.
    pub contract: Contract,
    /// Latencies of the cache.
    pub cache_latency: Latency,
    /// Latencies of an origin.
    pub origin_latency: Latency,
    /// Whether the origins can discard.
    pub origin_can_discard: bool,
    /// Devices that end no flush while they are given changes.
    pub held_flushes: HeldFlushes,
    /// The origins that are behind servers.
    pub servers: ServerSetup,
    /// Origins keep what they acknowledge, as if each write were flushed.
    pub origins_keep: bool,
    /// The cache keeps what it acknowledges, too.
    pub cache_keeps: bool,
    /// A device operation without an answer after this long counts as failed, and its device as gone.
    pub device_timeout_ns: u64,
}

/// Devices that end no flush while they are given changes, as disks do that write everything they hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldFlushes {
    /// The cache, and its mirror.
    pub cache: bool,
    /// Origins that are behind no server.
    pub origins: bool,
}

/// The longest time that a flush is held up.
pub(super) const FLUSH_HELD_NS_MAX: u64 = 2 * Nanos::SECOND;

/// The longest time that a fill waits for others where a setup has no bounds of its own.
const SCRIPT_FILL_WAIT_NS: u64 = 10 * Nanos::MILLISECOND;

impl Setup {
    /// The smallest cache, one volume of 1500 blocks in writeback mode, no faults.
    #[must_use]
    pub fn new(seed: u64) -> Setup {
        Setup {
            seed,
            segments: 64,
            segment_blocks: 32,
            checkpoint_blocks: 0,
            slots: None,
            keys: None,
            composition: String::new(),
            memory_blocks: 0,
            volumes: vec![VolumeSetup { sectors: 1500 * 8, mode: WriteMode::Writeback }],
            bounds: None,
            config: |_| (),
            index_budget_bytes: 4 << 20,
            repair: false,
            mutations: Mutations::NONE,
            is_checked_on_open: true,
            are_copies_compared: true,
            are_origins_compared: true,
            have_origins_identities: false,
            is_mirrored: false,
            has_lasting_memory: false,
            catches_up: false,
            group_calls: 1,
            note_errors: 0,
            is_ephemeral: false,
            contract: Contract::default(),
            cache_latency: Latency { least_ns: 20_000, most_ns: 200_000 },
            origin_latency: Latency { least_ns: 50_000, most_ns: 2_000_000 },
            origin_can_discard: true,
            held_flushes: HeldFlushes::default(),
            servers: ServerSetup::default(),
            origins_keep: false,
            cache_keeps: false,
            device_timeout_ns: 30 * Nanos::SECOND,
        }
    }

    /// The same with these modes, a volume of 1500 blocks each.
    #[must_use]
    pub fn with_modes(mut self, modes: &[WriteMode]) -> Setup {
        self.volumes = modes.iter().map(|&mode| VolumeSetup { sectors: 1500 * 8, mode }).collect();
        self
    }

    /// The same with our own log, where a write goes around the cache rather than wait for a read of the origin or for room.
    ///
    /// # Panics
    /// Never: the choices go together.
    #[must_use]
    pub fn without_waits(self) -> Setup {
        let mut composition = Composition::plain_log();
        composition.set("writes", "merge-or-bypass").expect("a choice of that axis");
        Setup { composition: composition.text(), ..self }
    }

    /// The same with devices that a cache needs for its promise, and with that promise.
    #[must_use]
    pub fn with_promise(mut self, promise: &engine::composition::contract::Contract) -> Setup {
        (self.origins_keep, self.cache_keeps) = (promise.origin_needs_plp, promise.cache_needs_plp);
        let contract = &mut self.contract;
        match promise.process {
            Keeps::All => (),
            Keeps::AllButNewest { writes } => contract.kill_loses_newest = writes as usize,
            Keeps::AllButLast { within_ms } => {
                contract.kill_keeps_acknowledged = false;
                let after_ms = u64::from(within_ms) + WRITING_MS_MAX;
                contract.kill_keeps_after_ns = Some(after_ms * Nanos::MILLISECOND);
            }
        }
        self
    }

    /// The same with buckets and these choices and tunables besides; not `safe`, it behaves as published.
    ///
    /// # Panics
    /// If there are no such ones.
    #[must_use]
    pub fn with_buckets(mut self, layout: KeyLayout, besides: &[(&str, &str)], safe: bool) -> Setup {
        let mut composition = Composition { safe, ..Composition::plain_log() };
        let bucket_sectors = (layout.bucket_blocks * 8).to_string();
        let buckets = [
            ("replacement", "bucket-lru"),
            ("bucket_sectors", bucket_sectors.as_str()),
            ("writes", "extents"),
            ("persistence", "journal"),
        ];
        for (name, value) in buckets.iter().chain(besides) {
            composition.set(name, value).expect("every name and value is one of a composition");
        }
        composition.validate().expect("the choices go together");
        (self.keys, self.composition) = (Some(layout), composition.text());
        self.with_promise(&composition.contract())
    }

    /// The same with frames for clean data.
    ///
    /// # Panics
    /// Never: the choices go together.
    #[must_use]
    pub fn with_frames(mut self, layout: KeyLayout) -> Setup {
        let mut composition = Composition::plain_log();
        for (name, value) in [("replacement", "forebay"), ("persistence", "frames")] {
            composition.set(name, value).expect("every name and value is one of a composition");
        }
        composition.validate().expect("the choices go together");
        (self.keys, self.composition) = (Some(layout), composition.text());
        self.with_promise(&composition.contract())
    }

    /// The same with dirty data in memory, too, as in gflash: room for so many blocks there; not `safe`, it answers
    /// writes early. `bounds` and `config` are to leave that room.
    ///
    /// # Panics
    /// If there is no such cache.
    #[must_use]
    pub fn with_mirror(mut self, blocks: u64, safe: bool) -> Setup {
        let mut composition = Composition { safe, ..Composition::plain_log() };
        for (name, value) in [
            ("admission", "second-read"),
            ("persistence", "mirror"),
            ("destage", "mirror"),
            ("laps_max", "1"),
            ("credit_percent", "0"),
        ] {
            composition.set(name, value).expect("every name and value is one of a composition");
        }
        self.composition = composition.text();
        self.memory_blocks = blocks;
        self.with_promise(&composition.contract())
    }

    /// Sectors that become dirty with one of them.
    pub(super) fn dirty_unit_sectors(&self) -> u64 {
        let slot_bytes = self.slots.map_or(BLOCK_BYTES, |slots| slots.layout().slot_bytes());
        slot_bytes / 512
    }

    fn log_composition(&self) -> Composition {
        Composition::parse(&self.composition).unwrap_or_else(|_| Composition::plain_log())
    }

    /// Whether writes that would have to wait go around the cache.
    pub(super) fn bypasses_waits(&self) -> bool {
        self.log_composition().writes == WritesChoice::MergeOrBypass
    }

    /// Whether everything goes home in strict order.
    pub(super) fn is_strict(&self) -> bool {
        matches!(self.log_composition().order, OrderChoice::Strict(_))
    }

    /// Whether clean data lies in frames behind the ring.
    pub(super) fn has_frames(&self) -> bool {
        matches!(self.log_composition().persistence, PersistenceChoice::Frames(_))
    }

    /// Bytes behind the segments.
    pub(super) fn checkpoint_bytes(&self) -> u64 {
        u64::from(self.checkpoint_blocks) * BLOCK_BYTES
    }

    pub(super) fn options(&self) -> Options {
        let Setup { index_budget_bytes, repair, mutations, .. } = *self;
        Options { index_budget_bytes, repair, mutations }
    }

    pub(super) fn engine_config(&self) -> Config {
        let mut config = self.bounds.unwrap_or_else(|| {
            let config = match &self.keys {
                Some(keys) if self.has_frames() => Config::for_frames(keys),
                Some(keys) => Config::for_keys(keys),
                None => Config::for_cache(self.segments, self.segment_blocks),
            };
            // What a script reads is cached soon.
            Config { fill_wait_ns_max: SCRIPT_FILL_WAIT_NS, ..config }
        });
        if self.memory_blocks > 0 {
            config.limit_memory(self.memory_blocks);
        }
        if matches!(self.log_composition().fetch, Fetch::Neighbourhood { .. }) {
            // Little, so that neighbours are dropped for others.
            config.neighbour_bytes_max = 1 << 20;
            config.ahead_bytes_max = 1 << 20;
        }
        if config.order.is_none() {
            config.order = Config::order_of(&self.log_composition(), &config);
        }
        config.origin_can_discard = [self.origin_can_discard; VOLUMES_MAX];
        config.mutations = self.mutations;
        (self.config)(&mut config);
        config
    }
}
