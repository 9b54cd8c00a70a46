//! The table of tunables.

use super::super::axes::{
    Axis, BitTree, Commit, Common, DestageChoice, ExtentWrites, Frames, Journal, Mirror, OrderChoice,
    PersistenceChoice, Placement, SetMap, SlotWrites, Slots, StrictOrder, Sweep, WritesChoice,
};
use super::{Grain, Key, Unit};
use crate::format::TREE_LEVELS_MAX;
use crate::number::{index_wide, wide};
use crate::policies::admission::always::AlwaysChoice;
use crate::policies::admission::congestion::CongestionChoice;
use crate::policies::admission::mq::MqChoice;
use crate::policies::admission::run_detector::RunDetectorChoice;
use crate::policies::admission::runs::RunsChoice;
use crate::policies::admission::second_read::SecondReadChoice;
use crate::policies::admission::smq_hotspot::SmqHotspotChoice;
use crate::policies::admission::{AdmissionChoice, CutoffChoice};
use crate::policies::controllers::cleaner::CleanerChoice;
use crate::policies::controllers::idle::{IdleChoice, IdleEra};
use crate::policies::controllers::mirror_fill::MirrorFillChoice;
use crate::policies::controllers::pi::{PiChoice, PiEra};
use crate::policies::controllers::threshold::ThresholdChoice;
use crate::policies::controllers::threshold_sets::ThresholdSetsChoice;
use crate::policies::fetch::Fetch;
use crate::policies::replacement::ReplacementChoice;
use crate::policies::replacement::bucket_lru::BucketKind;
use crate::policies::replacement::fifo_reinsertion::Reinsertion;
use crate::policies::replacement::forebay::ForebayChoice;
use crate::policies::replacement::free_frames::FreeOrder;
use crate::policies::replacement::mq::MqEra;
use crate::policies::replacement::random::RandomKind;
use crate::policies::replacement::smq::SmqVersion;

/// A field as a number, and back.
trait Coded: Copy {
    fn code(self) -> u64;
    fn decode(code: u64) -> Self;
}

impl Coded for u64 {
    fn code(self) -> u64 {
        self
    }

    fn decode(code: u64) -> u64 {
        code
    }
}

impl Coded for u32 {
    fn code(self) -> u64 {
        u64::from(self)
    }

    fn decode(code: u64) -> u32 {
        u32::try_from(code).expect("a test looks at the ranges")
    }
}

impl Coded for bool {
    fn code(self) -> u64 {
        u64::from(self)
    }

    fn decode(code: u64) -> bool {
        code != 0
    }
}

/// An enum whose values have names.
macro_rules! named {
    ($type:ident, $names:ident: $($variant:ident = $name:literal),+) => {
        const $names: &[&str] = &[$($name),+];

        impl Coded for $type {
            fn code(self) -> u64 {
                const VALUES: &[$type] = &[$($type::$variant),+];
                wide(VALUES.iter().position(|value| *value == self).expect("all are named"))
            }

            fn decode(code: u64) -> $type {
                const VALUES: &[$type] = &[$($type::$variant),+];
                VALUES[index_wide(code)]
            }
        }
    };
}

named!(SetMap, SET_MAPS: Modulo = "modulo", Masked = "masked", Hashed = "hashed");
named!(FreeOrder, FREE_ORDERS:
    Lowest = "lowest", NearLast = "near-last", LastFreed = "last-freed", FirstFreed = "first-freed");
named!(RandomKind, RANDOM_KINDS: SharedCounter = "shared-counter", Seeded = "seeded");
named!(MqEra, MQ_ERAS: Single = "single", Split = "split", Coldest = "coldest");
named!(SmqVersion, SMQ_VERSIONS: One = "1.0", Two = "2.0");
named!(BucketKind, BUCKET_KINDS: Lru = "lru", Fifo = "fifo", Random = "random");
named!(PiEra, PI_ERAS: A = "a", B = "b", C = "c");
named!(IdleEra, IDLE_ERAS: Mq1 = "mq1", Mq = "mq", Smq1 = "smq1", Smq2 = "smq2");

/// A key of a composition's field: `name in field = pattern that binds name`.
macro_rules! key {
    ($axis:expr, $name:ident in $field:ident = $pattern:pat, $unit:expr, $default:expr, $range:expr, $grain:expr,
     $meaning:literal, $source:expr) => {
        Key {
            name: stringify!($name),
            axis: $axis,
            unit: $unit,
            default: $default,
            least: *$range.start(),
            most: *$range.end(),
            grain: $grain,
            meaning: $meaning,
            source: $source,
            #[allow(unreachable_patterns, reason = "a pattern that every composition has matches always")]
            get: |composition| match composition.$field {
                $pattern => Some($name.code()),
                _ => None,
            },
            #[allow(unreachable_patterns, reason = "a pattern that every composition has matches always")]
            set: |composition, value| match &mut composition.$field {
                $pattern => *$name = Coded::decode(value),
                _ => {}
            },
        }
    };
}

/// A number: `key!` with the word for what is counted.
macro_rules! number {
    ($axis:ident: $name:ident in $field:ident = $pattern:pat, $word:literal, $default:expr, $range:expr, $grain:expr,
     $meaning:literal, $source:expr) => {
        key!(Some(Axis::$axis), $name in $field = $pattern, Unit::Count($word), $default, $range, $grain,
            $meaning, $source)
    };
    ($axis:ident: $name:ident in $field:ident = $pattern:pat, $word:literal, $default:expr, $range:expr,
     $meaning:literal, $source:expr) => {
        number!($axis: $name in $field = $pattern, $word, $default, $range, Grain::Any, $meaning, $source)
    };
}

/// A flag.
macro_rules! flag {
    ($axis:ident: $name:ident in $field:ident = $pattern:pat, $default:literal, $meaning:literal, $source:expr) => {
        key!(Some(Axis::$axis), $name in $field = $pattern, Unit::Flag, if $default { 1 } else { 0 }, 0..=1, Grain::Any, $meaning, $source)
    };
}

/// One of several names.
macro_rules! name {
    ($axis:ident: $name:ident in $field:ident = $pattern:pat, $names:ident, $default:literal, $meaning:literal,
     $source:expr) => {
        key!(Some(Axis::$axis), $name in $field = $pattern, Unit::Name($names), $default, 0..=wide($names.len() - 1),
            Grain::Any, $meaning, $source)
    };
}

const TASTE: &str = "by taste";
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const U32_MAX: u64 = 0xffff_ffff;
const DAY_S: u64 = 86_400;
const TREE_LEVELS: u64 = 16;
const _: () = assert!(TREE_LEVELS_MAX == 16, "the format has room for all levels that can be set");
const MQ: &str = "Linux, dm-cache's cache-policies document";
const SMQ: &str = "Linux, dm-cache-policy-smq.c: read";
const BCACHE: &str = "Linux, bcache's document and writeback.c";
const FLASHCACHE: &str = "flashcache-sa-guide";
const ENHANCEIO: &str = "EnhanceIO's documents and eio.h";
const MAPPERX: &str = "MapperX, the authors' code";
const GFLASH: &str = "gflash's guide; observed in geomflash-2015";

/// All, in the order of the text form.
pub const KEYS: &[Key] = &[
    number!(Placement: false_dirty_bytes in placement = Placement::Log { false_dirty_bytes }, "bytes",
        256 * MIB, MIB..=16 * GIB,
        "what may count as dirty after a crash without being so; on a small cache at most an eighth of it",
        "by taste: a hard disk takes it home in seconds"),
    number!(Placement: slot_bytes in placement = Placement::Slots(Slots { slot_bytes, .. }), "bytes",
        262_144, 4096..=2 * MIB, Grain::Multiple(4096),
        "bytes of a slot", "dm-cache's document: 256 KiB to 1 MiB"),
    number!(Placement: ways in placement = Placement::Slots(Slots { ways, .. }), "slots",
        0, 0..=8192u64,
        "slots of a set; 0: a piece may lie in any slot", "dm-cache has no sets"),
    name!(Placement: set_map in placement = Placement::Slots(Slots { set_map, .. }), SET_MAPS, 0,
        "which set a piece belongs to", "flashcache 3: hashed, before: modulo; EnhanceIO: masked"),
    number!(Admission: ghost_pieces in admission = AdmissionChoice::Always(AlwaysChoice { ghost_pieces }),
        "pieces",
        0, 0..=U32_MAX - 1,
        "pieces that are remembered after they left, for s3-fifo",
        "the systems that admit always remember nothing"),
    number!(Admission: first_reads in admission = AdmissionChoice::SecondRead(SecondReadChoice { ghost_pieces: first_reads }),
        "reads", 0, 0..=U32_MAX - 1,
        "first reads that are remembered; 0: as many as the cache has frames",
        "unverified: what gflash remembers is unknown"),
    name!(Admission: promotion_era in admission = AdmissionChoice::Mq(MqChoice { era: promotion_era, .. }),
        MQ_ERAS, 1,
        "which mq: of Linux 3.9, of 3.14 to 3.18, the last", "Linux, dm-cache-policy-mq.c: read"),
    number!(Admission: read_promote_adjustment in admission = AdmissionChoice::Mq(MqChoice { read_promote_adjustment, .. }), "hits",
        4, 0..=1_000_000u64, "hits above the threshold that a read needs", MQ),
    number!(Admission: write_promote_adjustment in admission = AdmissionChoice::Mq(MqChoice { write_promote_adjustment, .. }), "hits",
        8, 0..=1_000_000u64, "hits above the threshold that a write needs", MQ),
    number!(Admission: discard_promote_adjustment in admission = AdmissionChoice::Mq(MqChoice { discard_promote_adjustment, .. }), "hits",
        1, 0..=1_000_000u64, "hits that a write to a discarded piece needs", MQ),
    number!(Admission: sequential_threshold in admission =
            AdmissionChoice::Mq(MqChoice { detector: RunDetectorChoice { sequential_threshold, .. }, .. }),
        "requests",
        512, 0..=U32_MAX, "requests in a row that begin a sequential phase; 0: none does", MQ),
    number!(Admission: random_threshold in admission =
            AdmissionChoice::Mq(MqChoice { detector: RunDetectorChoice { random_threshold, .. }, .. }),
        "requests",
        4, 1..=U32_MAX, "other requests that end a sequential phase", MQ),
    name!(Admission: promotion_version in admission = AdmissionChoice::SmqHotspot(SmqHotspotChoice { version: promotion_version }),
        SMQ_VERSIONS, 1, "which smq: of Linux 4.2 to 4.11, or later", SMQ),
    number!(Cutoff: aligned_sectors in cutoff = CutoffChoice { aligned_sectors, .. }, "sectors",
        0, 0..=4096u64, Grain::PowerOfTwo,
        "requests that do not begin and end at multiples of this pass by; 0: none for this reason", TASTE),
    number!(Cutoff: cutoff_bytes in cutoff = CutoffChoice { runs: Some(RunsChoice { cutoff_bytes, .. }), .. },
        "bytes",
        4 * MIB, 0..=U32_MAX, "runs of this length and more pass by; 0: only congestion counts", BCACHE),
    number!(Cutoff: cutoff_runs in cutoff = CutoffChoice { runs: Some(RunsChoice { runs: cutoff_runs, .. }),
        .. }, "runs",
        128, 1..=65_536u64, "runs that are remembered for each volume", BCACHE),
    number!(Cutoff: forget_ms in cutoff = CutoffChoice { runs: Some(RunsChoice { forget_ms, .. }), .. }, "ms",
        5000, 0..=3_600_000u64, "a run that was not extended for this long is over; 0: never", BCACHE),
    number!(Cutoff: average_weight in cutoff = CutoffChoice { runs: Some(RunsChoice { average_weight, .. }),
        .. }, "runs",
        8, 0..=64u64, "a run is this part of its sender's average; 0: no average", BCACHE),
    flag!(Cutoff: exempts_sync_writes in cutoff = CutoffChoice { runs: Some(RunsChoice { exempts_sync_writes,
        .. }), .. }, false,
        "synchronous writes in writeback mode enter unless the cache is congested",
        "Linux 5.x, bcache's request.c"),
    flag!(Cutoff: jitters_cutoff in cutoff = CutoffChoice { runs: Some(RunsChoice { jitters_cutoff, .. }),
        .. }, false,
        "chance shortens the cutoff, and congestion's limit takes its place",
        "Linux 5.x, bcache's request.c"),
    flag!(Cutoff: merges_runs in cutoff = CutoffChoice { runs: Some(RunsChoice { merges: merges_runs, .. }),
        .. }, true,
        "requests are joined to runs; else each counts for itself", BCACHE),
    number!(Cutoff: congested_read_us in cutoff = CutoffChoice { congestion: Some(CongestionChoice { read_us: congested_read_us, .. }), .. },
        "us", 2000, 0..=10_000_000u64, "a read of the cache device is slow above this; 0: reads do not count",
        BCACHE),
    number!(Cutoff: congested_write_us in cutoff = CutoffChoice { congestion: Some(CongestionChoice { write_us: congested_write_us, .. }), .. },
        "us", 20_000, 0..=10_000_000u64,
        "a write to the cache device is slow above this; 0: writes do not count", BCACHE),
    name!(Replacement: free_order in replacement = ReplacementChoice::Fifo { free_order }, FREE_ORDERS, 0,
        "which free frame is used next", "EnhanceIO, find_invalid_dbn: read"),
    number!(Replacement: draw_blocks in replacement = ReplacementChoice::Forebay(ForebayChoice { draw_blocks }), "blocks",
        16, 2..=64u64, "cached blocks that are drawn at a time; of the least worth of them follows what leaves", TASTE),
    number!(Replacement: laps_max in replacement = ReplacementChoice::FifoReinsertion(Reinsertion { laps_max, .. }),
        "laps",
        3, 0..=3u64, "laps of the ring that hits earn a block, one each; 0: nothing is appended again",
        "S3-FIFO's main queue: Yang et al., SOSP 2023"),
    number!(Replacement: keep_percent in replacement = ReplacementChoice::FifoReinsertion(Reinsertion { keep_percent, .. }),
        "percent",
        50, 0..=90u64, "share of a reclaimed segment that may be appended again",
        "by taste: each reclaimed segment frees half of itself"),
    number!(Replacement: credit_percent in replacement = ReplacementChoice::FifoReinsertion(Reinsertion { credit_percent, .. }),
        "percent",
        50, 0..=100u64,
        "unused part of that share that later segments may spend, of the ring",
        "by taste: hits are not spread evenly over segments"),
    name!(Replacement: random_kind in replacement = ReplacementChoice::Random { kind: random_kind },
        RANDOM_KINDS, 0,
        "what stands for chance", "EnhanceIO's rand is a counter that all sets share"),
    number!(Replacement: hot_percent in replacement = ReplacementChoice::WarmHotLru { hot_percent, .. },
        "percent",
        50, 0..=100u64, "share of the hot list of a set",
        "flashcache, lru_hot_pct: 75 is shown, 50 is in force"),
    number!(Replacement: promote_hits in replacement = ReplacementChoice::WarmHotLru { promote_hits, .. },
        "hits",
        2, 1..=255u64, "hits that bring a warm frame into the hot list", FLASHCACHE),
    name!(Replacement: mq_era in replacement = ReplacementChoice::Mq { era: mq_era }, MQ_ERAS, 1,
        "which mq: of Linux 3.9, of 3.14 to 3.18, the last", "Linux, dm-cache-policy-mq.c: read"),
    name!(Replacement: smq_version in replacement = ReplacementChoice::Smq { version: smq_version },
        SMQ_VERSIONS, 1,
        "which smq: of Linux 4.2 to 4.11, or later", SMQ),
    name!(Replacement: bucket_kind in replacement = ReplacementChoice::BucketLru { kind: bucket_kind, .. },
        BUCKET_KINDS, 0,
        "what decides which bucket goes", BCACHE),
    number!(Replacement: bucket_sectors in replacement = ReplacementChoice::BucketLru { bucket_sectors, .. },
        "sectors",
        1024, 8..=65_536u64, Grain::PowerOfTwo, "sectors of a bucket",
        "make-bcache's default, as in geomflash-2015"),
    number!(Replacement: small_permille in replacement = ReplacementChoice::S3Fifo { small_permille },
        "permille",
        100, 1..=999u64, "share of the small queue", "Yang et al., SOSP 2023"),
    flag!(Writes: first_gap_only in writes = WritesChoice::Extents(ExtentWrites { first_gap_only, .. }), true,
        "of a read only the first missing range is put into the cache", "Linux, bcache's request.c"),
    number!(Writes: cutoff_writeback_percent in writes = WritesChoice::Extents(ExtentWrites { cutoff_writeback_percent, .. }), "percent",
        40, 0..=100u64, "with more buckets in use only synchronous writes go to the cache", BCACHE),
    number!(Writes: cutoff_writeback_sync_percent in writes =
            WritesChoice::Extents(ExtentWrites { cutoff_writeback_sync_percent, .. }), "percent",
        70, 0..=100u64, "with more buckets in use no write goes to the cache", BCACHE),
    number!(Writes: cutoff_add_percent in writes = WritesChoice::Extents(ExtentWrites { cutoff_add_percent,
        .. }), "percent",
        95, 0..=100u64, "with more buckets in use nothing enters", BCACHE),
    flag!(Writes: all_or_nothing in writes = WritesChoice::InPlace(SlotWrites { all_or_nothing, .. })
            | WritesChoice::Invalidate(SlotWrites { all_or_nothing, .. })
            | WritesChoice::BothIfClean(SlotWrites { all_or_nothing, .. }), false,
        "a write goes to the cache only if all parts of it can", "device mapper splits requests"),
    flag!(Writes: splits_requests in writes = WritesChoice::InPlace(SlotWrites { splits_requests, .. })
            | WritesChoice::Invalidate(SlotWrites { splits_requests, .. })
            | WritesChoice::BothIfClean(SlotWrites { splits_requests, .. }), true,
        "each piece of a request is an operation of its own", "device mapper splits requests"),
    flag!(Writes: rereads_whole in writes = WritesChoice::InPlace(SlotWrites { rereads_whole, .. })
            | WritesChoice::Invalidate(SlotWrites { rereads_whole, .. })
            | WritesChoice::BothIfClean(SlotWrites { rereads_whole, .. }), false,
        "if one piece of a read is missing the origin is asked for all of it",
        "device mapper splits requests"),
    number!(Persistence: journal_delay_ms in persistence = PersistenceChoice::Journal(Journal { journal_delay_ms, .. }), "ms",
        100, 0..=60_000u64, "a key is on the device after this long at the latest", BCACHE),
    number!(Persistence: journal_permille in persistence = PersistenceChoice::Journal(Journal { journal_permille, .. }), "permille",
        16, 1..=500u64, "share of the device for keys",
        "ours: room for 4 KiB extents; bcache: buckets/128, 2 to 256 of them, and the b-tree"),
    number!(Persistence: ring_permille in persistence = PersistenceChoice::Frames(Frames { ring_permille }), "permille",
        150, 1..=500u64, "share of the device for the ring, where what clients write lies until it is home", TASTE),
    number!(Persistence: recount_part in persistence = PersistenceChoice::Journal(Journal { recount_part,
        .. }), "parts",
        16, 1..=1024u64, "what is in use is counted again after this part of the cache was written: 1/n",
        BCACHE),
    number!(Persistence: priorities_part in persistence = PersistenceChoice::Journal(Journal { priorities_part,
        .. }), "parts",
        1024, 0..=65_536u64, "a bucket of priorities is written for each 4/n of the buckets that are begun; 0: never",
        BCACHE),
    flag!(Persistence: cleans_per_block in persistence = PersistenceChoice::SyncSector { cleans_per_block },
        false,
        "a page is written for each block that went home; else one for the set",
        "EnhanceIO: for the set; flashcache: for each"),
    number!(Persistence: commit_ms in persistence = PersistenceChoice::Commit(Commit { commit_ms, .. })
            | PersistenceChoice::BitTree(BitTree { commit: Commit { commit_ms, .. }, .. }), "ms",
        1000, 1..=60_000u64, "what changed is committed after this long at the latest",
        "Linux, dm-cache-target.c"),
    flag!(Persistence: commits_promotions in persistence = PersistenceChoice::Commit(Commit { commits_promotions, .. })
            | PersistenceChoice::BitTree(BitTree { commit: Commit { commits_promotions, .. }, .. }), false,
        "a promotion is committed before its request goes on", "Linux 4.12 and later, dm-cache-target.c"),
    number!(Persistence: tree_levels in persistence = PersistenceChoice::BitTree(BitTree { tree_levels, .. }),
        "levels",
        13, 1..=TREE_LEVELS, "levels below the root; 13 are 8192 finest leaves", MAPPERX),
    number!(Persistence: leaf_pieces in persistence = PersistenceChoice::BitTree(BitTree { leaf_pieces, .. }),
        "pieces",
        32, 1..=65_536u64, Grain::PowerOfTwo,
        "pieces of the origin below a finest leaf; doubled for large volumes", MAPPERX),
    number!(Persistence: sla_permille in persistence = PersistenceChoice::BitTree(BitTree { sla_permille,
        .. }), "permille",
        1, 0..=1000u64, "writes of bits for requests above which leaves are merged", MAPPERX),
    number!(Persistence: adjust_ms in persistence = PersistenceChoice::BitTree(BitTree { adjust_ms, .. }),
        "ms",
        1000, 10..=3_600_000u64, "how often leaves are merged or split", MAPPERX),
    number!(Persistence: adjust_steps in persistence = PersistenceChoice::BitTree(BitTree { adjust_steps,
        .. }), "steps",
        5, 1..=1000u64, "how many of them at a time", MAPPERX),
    number!(Persistence: ram_bytes in persistence = PersistenceChoice::Mirror(Mirror { ram_bytes, .. }),
        "bytes",
        128 * MIB, 128 * MIB..=16 * GIB, Grain::Multiple(128 * MIB), "memory for dirty data", GFLASH),
    number!(Persistence: batch_writes_max in persistence = PersistenceChoice::Mirror(Mirror { batch_writes_max, .. }), "writes",
        4, 1..=200u64, "clients' writes that share a header", "inferred from geomflash-2015's bytes"),
    number!(Persistence: early_ack_writes in persistence = PersistenceChoice::Mirror(Mirror { early_ack_writes, .. }), "writes",
        4, 0..=64u64, "writes acknowledged before they are on the device, unless safe", GFLASH),
    flag!(Persistence: keeps_written in persistence = PersistenceChoice::Mirror(Mirror { keeps_written, .. }),
        true,
        "what went home can still be read from the cache", "unverified: unknown of gflash"),
    number!(Destage: idle_ms in destage = DestageChoice::Sweep(Sweep { idle_ms, .. }), "ms",
        300, 1..=600_000u64, "after this long without a client's request the cache destages what it has",
        TASTE),
    number!(Destage: destage_runs in destage = DestageChoice::Sweep(Sweep { destage_runs, .. })
            | DestageChoice::MirrorFill(MirrorFillChoice { runs_max: destage_runs, .. }), "runs",
        16, 2..=64u64,
        "runs of neighbouring dirty blocks on their way home at the same time, for each volume",
        "by taste: half of what a SATA disk can queue, so that clients' reads find room"),
    name!(Destage: pi_era in destage = DestageChoice::Pi(PiChoice { era: pi_era, .. }), PI_ERAS, 2,
        "which controller: of Linux 3.10, of 3.13 to 4.14, or later", "Linux, bcache's writeback.c: read"),
    number!(Destage: writeback_percent in destage = DestageChoice::Pi(PiChoice { writeback_percent, .. }),
        "percent",
        10, 0..=40u64, "how much of the cache may be dirty; 0: no limit of the rate", BCACHE),
    number!(Destage: writeback_delay_s in destage = DestageChoice::Pi(PiChoice { writeback_delay_s, .. }),
        "s",
        30, 0..=DAY_S, "the rest after a sweep", BCACHE),
    number!(Destage: update_s in destage = DestageChoice::Pi(PiChoice { update_s, .. }), "s",
        5, 1..=60u64, "how often the rate is set", BCACHE),
    number!(Destage: p_inverse in destage = DestageChoice::Pi(PiChoice { p_inverse, .. }), "s",
        40, 1..=U32_MAX, "how slowly the rate follows the error", BCACHE),
    number!(Destage: i_inverse in destage = DestageChoice::Pi(PiChoice { i_inverse, .. }), "s",
        10_000, 1..=U32_MAX, "era c: how slowly the rate follows the sum of errors", BCACHE),
    number!(Destage: d_term in destage = DestageChoice::Pi(PiChoice { d_term, .. }), "s",
        30, 0..=U32_MAX, "eras a and b: weight of the trend", BCACHE),
    number!(Destage: d_smooth in destage = DestageChoice::Pi(PiChoice { d_smooth, .. }), "updates",
        8, 1..=1000u64, "era a: updates in the trend", "Linux 3.10, bcache's writeback.c"),
    number!(Destage: rate_start in destage = DestageChoice::Pi(PiChoice { rate_start, .. }), "sectors/s",
        1024, 1..=1_000_000u64, "the rate at first; era a: hundreds of sectors", BCACHE),
    number!(Destage: rate_min in destage = DestageChoice::Pi(PiChoice { rate_min, .. }), "sectors/s",
        8, 1..=1_000_000u64, "era c: the lowest rate", BCACHE),
    number!(Destage: copies_max in destage = DestageChoice::Pi(PiChoice { copies_max, .. }), "copies",
        64, 1..=4096u64, "copies at the same time", "Linux, bcache's writeback.c"),
    flag!(Destage: considers_fragments in destage = DestageChoice::Pi(PiChoice { considers_fragments, .. }),
        true,
        "era c: buckets with little dirty data raise the rate", "Linux 5.12 and later, bcache"),
    number!(Destage: fragment_term_low in destage = DestageChoice::Pi(PiChoice { fragment_terms: [fragment_term_low, _, _], .. }), "parts",
        1, 1..=1_000_000u64, "what each percent above 50 of buckets in use adds then", BCACHE),
    number!(Destage: fragment_term_mid in destage = DestageChoice::Pi(PiChoice { fragment_terms: [_,
        fragment_term_mid, _], .. }), "parts",
        10, 1..=1_000_000u64, "the same above 57 percent", BCACHE),
    number!(Destage: fragment_term_high in destage = DestageChoice::Pi(PiChoice { fragment_terms: [_, _,
        fragment_term_high], .. }), "parts",
        1000, 1..=1_000_000u64, "the same above 64 percent", BCACHE),
    flag!(Destage: idles_at_max in destage = DestageChoice::Pi(PiChoice { idles_at_max, .. }), true,
        "era c: an idle cache has no limit", "Linux 4.19 (unverified) and later, bcache"),
    number!(Destage: set_dirty_percent in destage = DestageChoice::Threshold(ThresholdChoice { set_dirty_percent, .. }), "percent",
        20, 10..=95u64, "how much of a set may be dirty", "flashcache-sa-guide, dirty_thresh_pct"),
    number!(Destage: set_runs_max in destage = DestageChoice::Threshold(ThresholdChoice { set_runs_max, .. }),
        "copies",
        2, 1..=512u64, "copies of one set chosen at the same time", "flashcache-sa-guide, max_clean_ios_set"),
    number!(Destage: cache_runs_max in destage = DestageChoice::Threshold(ThresholdChoice { cache_runs_max,
        .. }), "copies",
        4, 1..=4096u64, "copies of the cache chosen at the same time",
        "flashcache-sa-guide, max_clean_ios_total"),
    number!(Destage: fallow_delay_s in destage = DestageChoice::Threshold(ThresholdChoice { fallow_delay_s,
        .. }), "s",
        900, 0..=DAY_S, "dirty frames found unused twice, this far apart, go home; 0: they do not",
        "flashcache-sa-guide, fallow_delay"),
    number!(Destage: fallow_rounds_per_s in destage = DestageChoice::Threshold(ThresholdChoice { fallow_rounds_per_s, .. }), "rounds/s",
        2, 1..=100u64, "how often a set may send such frames home",
        "flashcache-sa-guide, fallow_clean_speed"),
    number!(Destage: retry_ms in destage = DestageChoice::Threshold(ThresholdChoice { retry_ms, .. }), "ms",
        1000, 10..=60_000u64, "when a set that could start nothing is tried again",
        "flashcache_main.c: read"),
    number!(Destage: cache_high_percent in destage = DestageChoice::ThresholdSets(ThresholdSetsChoice { cache_high_percent, .. }), "percent",
        30, 0..=100u64, "so much of the cache may not be dirty; off if not above the low one", ENHANCEIO),
    number!(Destage: cache_low_percent in destage = DestageChoice::ThresholdSets(ThresholdSetsChoice { cache_low_percent, .. }), "percent",
        10, 0..=100u64, "what is left then", ENHANCEIO),
    number!(Destage: set_high_percent in destage = DestageChoice::ThresholdSets(ThresholdSetsChoice { set_high_percent, .. }), "percent",
        100, 1..=100u64, "so much of a set may not be dirty; off if not above the low one", ENHANCEIO),
    number!(Destage: set_low_percent in destage = DestageChoice::ThresholdSets(ThresholdSetsChoice { set_low_percent, .. }), "percent",
        30, 0..=100u64, "what is left then", ENHANCEIO),
    number!(Destage: pause_above_requests in destage = DestageChoice::ThresholdSets(ThresholdSetsChoice { pause_above_requests, .. }), "requests",
        128, 0..=1024u64, "with more requests under way nothing is triggered; 0: never", ENHANCEIO),
    number!(Destage: age_minutes in destage = DestageChoice::ThresholdSets(ThresholdSetsChoice { age_minutes,
        .. }), "minutes",
        0, 0..=720u64, "a set not dirtied for so long goes home; 0: it does not", ENHANCEIO),
    flag!(Destage: age_by_size in destage = DestageChoice::ThresholdSets(ThresholdSetsChoice { age_by_size,
        .. }), true,
        "a minute for each 16 GiB of cache, 1 to 720, instead of age_minutes", ENHANCEIO),
    name!(Destage: idle_era in destage = DestageChoice::Idle(IdleChoice { era: idle_era, .. }), IDLE_ERAS, 3,
        "whose rules: of mq 1.0, mq, smq 1.0 or smq 2.0", "Linux, dm-cache: read"),
    number!(Destage: migration_threshold_sectors in destage = DestageChoice::Idle(IdleChoice { migration_threshold_sectors, .. })
            | DestageChoice::Cleaner(CleanerChoice { migration_threshold_sectors, .. }), "sectors",
        2048, 0..=U32_MAX, "sectors in copies under way", "Linux, dm-cache's document"),
    flag!(Destage: cleans_while_busy in destage = DestageChoice::Cleaner(CleanerChoice { cleans_while_busy,
        .. }), true,
        "also while clients send requests", SMQ),
    number!(Destage: join_sectors in destage = DestageChoice::MirrorFill(MirrorFillChoice { join_sectors,
        .. }), "sectors",
        512, 8..=2048u64, Grain::Multiple(8), "neighbours of one run at the most", TASTE),
    number!(Fetch: readahead_bytes in fetch = Fetch::Request { readahead_bytes }, "bytes",
        0, 0..=MIB, Grain::Multiple(512), "read beyond the end of what was asked for", BCACHE),
    number!(Fetch: neighbour_bytes in fetch = Fetch::Neighbourhood { neighbour_bytes }, "bytes",
        16 << 20, 256 << 10..=16 << 20u64, Grain::Multiple(4096), "memory for what was read beside; half as much again for what is read ahead", TASTE),
    flag!(Fetch: waits in fetch = Fetch::Frame { waits }, false,
        "the request waits for the copy and is served from it", "Linux 4.12 and later, dm-cache-target.c"),
    number!(Order: lag_ms in order = OrderChoice::Strict(StrictOrder { lag_ms, .. }), "ms",
        30_000, 1000..=86_400_000u64, "writes wait while an older one is not home after this long",
        "by taste: what Linux may keep of a file that is never synced"),
    number!(Order: lag_bytes in order = OrderChoice::Strict(StrictOrder { lag_bytes, .. }), "bytes",
        GIB, 64 << 20..=256 * GIB, Grain::Multiple(4096),
        "writes wait while so much is not home; half of a small cache at the most", TASTE),
    key!(None, flush_after_ms in common = Common { flush_after_ms, .. }, Unit::Count("ms"), 500,
        1..=60_000u64, Grain::Any,
        "what was written home is flushed, and thereby clean, after this long; what was written through may wait longer",
        "by taste: long enough to share a flush, short enough to free room"),
    key!(None, backoff_ms in common = Common { backoff_ms, .. }, Unit::Count("ms"), 1000, 10..=600_000u64,
        Grain::Any,
        "an origin that failed is left alone for this long", TASTE),
    key!(None, absent_ms in common = Common { absent_ms, .. }, Unit::Count("ms"), 30_000, 1000..=3_600_000u64,
        Grain::Any,
        "an origin that still fails this long after its first error is absent: writes beyond its volume's share of the cache fail",
        "by taste: as long as Linux waits for a command of a SCSI disk"),
];
