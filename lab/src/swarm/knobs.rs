//! All options of a run, as numbers with names.

macro_rules! knobs {
    ($($(#[doc = $doc:literal])+ $name:ident = $off:literal,)+) => {
        /// One number of a run's options.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Knob {
            $($(#[doc = $doc])+ #[allow(non_camel_case_types, reason = "the name is printed as it is")] $name,)+
        }

        impl Knob {
            /// All of them, in the order they are printed.
            pub const ALL: &[Knob] = &[$(Knob::$name),+];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Knob::$name => stringify!($name),)+
                }
            }

            /// The value that makes a run simplest.
            #[must_use]
            pub fn off(self) -> u64 {
                match self {
                    $(Knob::$name => $off,)+
                }
            }
        }
    };
}

knobs! {
    /// Volumes, 1 to 3.
    volumes = 1,
    /// Sectors of volume 0.
    sectors0 = 8192,
    /// Sectors of volume 1.
    sectors1 = 8192,
    /// Sectors of volume 2.
    sectors2 = 8192,
    /// Mode of volume 0, by its place in `WriteMode::ALL`.
    mode0 = 0,
    /// Mode of volume 1.
    mode1 = 0,
    /// Mode of volume 2.
    mode2 = 0,
    /// Segments of the cache.
    segments = 64,
    /// Blocks of a segment.
    segment_blocks = 32,
    /// Requests under way at the most.
    depth = 1,
    /// Things that happen between two crashes.
    steps = 20,
    /// Crashes.
    cuts = 1,
    /// Blocks of a request at the most.
    request_blocks = 1,
    /// Weight of reads.
    reads = 0,
    /// Weight of writes.
    writes = 1,
    /// Weight of flushes.
    flushes = 0,
    /// Weight of discards.
    discards = 0,
    /// Weight of write-zeroes.
    zeroes = 0,
    /// Per cent of changes that are FUA.
    fua = 0,
    /// Per cent of requests that are not whole blocks.
    partial = 0,
    /// Per cent of requests to an eighth of the volume.
    hot = 0,
    /// Per cent of steps at which time passes.
    pauses = 0,
    /// The longest pause, in milliseconds.
    pause_ms = 1,
    /// Per cent of crashes that are of the process alone.
    kills = 0,
    /// Per cent of crashes that are clean stops instead.
    stops = 0,
    /// Per cent of recoveries that are cut.
    recovery_cuts = 0,
    /// Per cent of crashes that are followed by a second one soon.
    doubles = 0,
    /// Per cent of rounds in which a volume changes its mode.
    mode_changes = 0,
    /// Per cent of rounds in which a volume is drained.
    drains = 0,
    /// Whether a volume is detached at the end.
    detach = 0,
    /// Per cent of rounds in which devices may fail.
    faulty = 0,
    /// Reads of the cache that fail, in a million.
    cache_read_error = 0,
    /// Writes.
    cache_write_error = 0,
    /// Flushes.
    cache_flush_error = 0,
    /// Operations that are never answered.
    cache_hang = 0,
    /// Writes after which a sector rots.
    cache_rot = 0,
    /// Per cent of faulty rounds in which the cache is gone.
    cache_gone = 0,
    /// Reads of an origin that fail, in a million.
    origin_read_error = 0,
    /// Writes.
    origin_write_error = 0,
    /// Flushes.
    origin_flush_error = 0,
    /// Operations that are never answered.
    origin_hang = 0,
    /// Writes without space.
    origin_no_space = 0,
    /// Per cent of faulty rounds in which an origin is gone.
    origin_gone = 0,
    /// Operations that take 20 ms more, in a million.
    slow = 0,
    /// Per cent of steps at which the pool refuses some allocations.
    refusals = 0,
    /// The longest time that the cache takes, in microseconds.
    cache_us = 100,
    /// The longest time that an origin takes, in microseconds.
    origin_us = 1000,
    /// Whether origins can discard.
    origin_discards = 1,
    /// Milliseconds without a request after which everything is destaged.
    idle_ms = 300,
    /// Milliseconds after which blocks written home are flushed.
    flush_after_ms = 500,
    /// Runs on their way home at a time.
    destage_runs = 16,
    /// Memory for partial requests, in KiB.
    work_kib = 16384,
    /// Blocks that wait to be put into the cache.
    fill_blocks = 2048,
    /// Blocks that may count as dirty without being so.
    false_dirty_blocks = 256,
    /// Zero and lost extents at the most.
    extents = 65536,
    /// The longest that a write waits for group commit, in microseconds.
    company_wait_us = 0,
    /// The longest that a fill waits for others, in microseconds.
    fill_wait_us = 0,
    /// Blocks that wait before a batch is sent beside another one.
    company = 96,
    /// Per cent of rounds in which a volume grows.
    growths = 0,
    /// Per cent of rounds in which lost blocks of a volume are given up.
    give_ups = 0,
    /// Writes of the cache after which a sector of its metadata rots, in a million.
    metadata_rot = 0,
    /// Per cent of crashes and stops behind which a record of slots rots.
    record_rot = 0,
    /// Per cent of crashes at a moment most likely to find a bug: see `aims.rs`.
    aimed = 0,
    /// Blocks of a slot; 0 for a log.
    slot_blocks = 0,
    /// Slots of a set; 0 if a piece may lie anywhere.
    ways = 0,
    /// Slots.
    slots = 64,
    /// Composition of a cache with slots: a number below [`SLOT_RULES`](super::SLOT_RULES).
    slot_rules = 0,
    /// Blocks of a bucket, with keys alone in the segments, or of a group of frames; 0 for none.
    bucket_blocks = 0,
    /// Buckets.
    buckets = 64,
    /// Bytes of a run that bypasses the cache; 0 for none.
    cutoff_bytes = 0,
    /// Whether writes are answered before they, or their keys, are in the segments; where those are keys, origins keep what
    /// they acknowledge.
    early = 0,
    /// Whether a rate paces the destage.
    rate = 0,
    /// How slots are recorded: 0 by page, 1 by transactions, 2 with trees of dirty bits.
    persistence = 0,
    /// Milliseconds after which a transaction begins that no request waits for.
    commit_ms = 1000,
    /// Levels of a tree.
    tree_levels = 13,
    /// Pieces below its finest leaves.
    leaf_pieces = 32,
    /// Marks that requests may cost, in thousandths of them.
    sla_permille = 1,
    /// How often leaves are joined or split, in milliseconds.
    adjust_ms = 1000,
    /// Whether slots promise what a disk does; 0: what the published system does.
    safe = 1,
    /// Dirty blocks that have room in memory; 0: memory has no dirty blocks.
    memory_blocks = 0,
    /// Per cent of starts before which somebody changed an origin.
    origin_changes = 0,
    /// Whether origins have a stable identity.
    identities = 0,
    /// Per cent of starts before which an older copy of the cache is put in its place.
    older_copies = 0,
    /// Per cent of crashes that are stops at any moment, which may be cut.
    hasty_stops = 0,
    /// Per cent of rounds in which a volume is taken off the cache.
    detaches = 0,
    /// Per cent of starts before which a setting is changed.
    sets = 0,
    /// Per cent of refused logs that are repaired.
    repairs = 0,
    /// Blocks of an area of slots, whose checksums are in one page.
    area_blocks = 992,
    /// Time without a write after which an area closes, in milliseconds.
    area_idle_ms = 1000,
    /// Limit of open areas of slots.
    open_areas = 65536,
    /// Per cent of crashes and stops that come after seconds without a request.
    silences = 0,
    /// Per cent of crashes and stops behind which a sector of the cache rots.
    rot_while_off = 0,
    /// Per cent of crashes that are stops while devices fail.
    sick_stops = 0,
    /// Blocks of the ring that no flush covers, at the most; 0: as many as there are.
    unflushed_blocks = 0,
    /// Per cent of rounds in which a volume that was taken off is added while clients of others work.
    additions = 0,
    /// Per cent of clean stops behind which the cache gives its place to another device, or is made anew.
    successions = 0,
    /// Per cent of rounds in which the destage of a volume is held back, or let go again.
    holds = 0,
    /// Per cent of starts at which the cache device is blank; it is ephemeral, and no volume is in writeback then.
    blank_caches = 0,
    /// Per cent of moments at which some blocks are warmed.
    warms = 0,
    /// The volumes whose origins are behind servers, as bits.
    remote = 0,
    /// Requests with which the connection to a server is lost, in a million.
    server_losses = 0,
    /// Answers of servers that come twice, in a million.
    server_doubles = 0,
    /// Answers of servers that they are shutting down, in a million.
    server_endings = 0,
    /// Per cent of lost connections whose server died, with what was not flushed.
    server_deaths = 0,
    /// Per cent of lost connections behind which another disk, an older copy, or a smaller one comes first.
    impostors = 0,
    /// The longest time that a server is away, in milliseconds; some are away until all is healed.
    away_ms = 1,
    /// Sectors of a request to a server at the most; 0: as many as one likes.
    server_sectors = 0,
    /// Whether servers have no flush, and each change says that it is to be durable.
    server_fua = 0,
    /// Per cent of rounds in which a volume gets another room in the cache.
    rooms = 0,
    /// Per cent of moments at which some blocks are scrubbed.
    scrubs = 0,
    /// Whether everything goes home in strict order.
    strict = 0,
    /// Per cent of rounds in which that ends, or begins again.
    order_changes = 0,
    /// Versions that may not be home then.
    lag_blocks = 65536,
    /// Time after which they hold up writes, in milliseconds.
    lag_ms = 30000,
    /// Steps in a thousand at which the cache becomes slow for long, or is as fast as before.
    slow_turns = 0,
    /// Whether the cache is mirrored.
    mirrored = 0,
    /// Steps in a thousand at which a half of a mirrored cache fails, or is brought up to date.
    half_turns = 0,
    /// Per cent of starts before which a half is lost for good, or is not there.
    half_losses = 0,
    /// Steps in a thousand at which a sector of one half rots; the other one never fails then.
    half_rot = 0,
    /// Whether the process has memory that outlives it.
    lasting = 0,
    /// Per cent of crashes and stops behind small writes that follow each other, and little else.
    trickles = 0,
    /// Blocks for checkpoints of the index; 0: there are none.
    checkpoint_blocks = 0,
    /// Blocks that the log goes on between two checkpoints.
    checkpoint_interval = 256,
    /// Per cent of rounds in which somebody reads on and on, and others write there.
    streams = 0,
    /// Devices that end no flush while they are given changes: 1 the cache, 2 origins, 3 all.
    held_flushes = 0,
    /// Calls of the engine that the driver makes at the most before it takes the effects of all of them.
    group_calls = 1,
    /// Per cent of notes that the cache of a volume is given up which fail.
    note_errors = 0,
    /// Per cent of crashes of a mirrored cache at a moment when its halves say something new of each other.
    half_aims = 0,
}
