//! A composition as it is kept with a cache: its text in the superblock, and how it divides the device.

use super::axes::{Axis, Frames, Journal, PersistenceChoice, Placement};
use super::{Composition, ParseError};
use crate::format::{
    Geometry, GeometryError, KeyLayout, KeyLayoutError, Layout, SlotLayout, SlotLayoutError, SlotPersistence,
    Superblock,
};
use crate::limits::{Config, SEGMENT_OVERHEAD_BLOCKS};
use crate::policies::admission::AdmissionChoice;
use crate::policies::admission::always::AlwaysChoice;
use crate::policies::admission::second_read::SecondReadChoice;
use crate::policies::replacement::ReplacementChoice;
use crate::store::log::keys::buckets::free_low;
use crate::units::{BLOCK_BYTES, Place};
use alloc::string::String;
use thiserror::Error;

/// Sectors of a group of frames: 512 KiB.
const FRAME_GROUP_SECTORS: u32 = 1024;
/// Pieces that may be remembered without being cached, for each slot or block.
const REMEMBERED_PER_SLOT_MAX: u64 = 16;
/// Memory for a slot's state: its piece and flags 6, the way to it 8, its record 2, replacement up to 40.
const BYTES_PER_SLOT: u64 = 64;
/// Memory for the checksum of a block.
const BYTES_PER_BLOCK: u64 = 4;
/// Memory for a piece that is remembered: 10, and some room.
const BYTES_PER_REMEMBERED: u64 = 16;

/// Memory of an index of blocks at the least.
pub const INDEX_BYTES_LEAST: u64 = 4 << 20;
/// Memory of an index for each block that may be in it, if all are scattered.
const INDEX_BYTES_PER_BLOCK: u64 = 16;

/// Steps in which a size is looked for, for each time that it is as large as the present one.
const ROOM_STEPS: u64 = 256;

/// Why a device cannot be divided as a composition wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DivideError {
    /// Not into segments.
    #[error(transparent)]
    Segments(#[from] GeometryError),
    /// Not into slots.
    #[error(transparent)]
    Slots(#[from] SlotLayoutError),
    /// The cache would remember more uncached pieces than memory is worth.
    #[error("{pieces} pieces are to be remembered that are not cached: with room for {room} at most {most}")]
    Remembered {
        /// The number of pieces that was asked for.
        pieces: u64,
        /// Slots there are, or blocks.
        room: u32,
        /// The most.
        most: u64,
    },
    /// Not into buckets.
    #[error(transparent)]
    Buckets(#[from] KeyLayoutError),
}

impl DivideError {
    /// The size that the device should have had; `None` if that would not help.
    #[must_use]
    pub fn bytes_needed(&self) -> Option<u64> {
        match self {
            DivideError::Segments(GeometryError { minimum_bytes, .. })
            | DivideError::Slots(SlotLayoutError::CacheTooSmall { minimum_bytes, .. }) => {
                Some(*minimum_bytes)
            }
            DivideError::Buckets(KeyLayoutError::CacheTooSmall { minimum_bytes, .. }) => Some(*minimum_bytes),
            DivideError::Slots(_) | DivideError::Buckets(_) | DivideError::Remembered { .. } => None,
        }
    }
}

/// Reason why a superblock does not give the composition of its cache.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoredError {
    /// The text is none of a composition.
    #[error("What the cache is made of cannot be read: {0}")]
    Text(#[from] ParseError),
    /// It is the text of another cache.
    #[error("The cache is made of {placement}, but its device is divided otherwise")]
    OtherLayout {
        /// The placement that the text names.
        placement: &'static str,
    },
    /// No such cache is ever made.
    #[error("What the cache is made of cannot be: {0}")]
    Divide(#[from] DivideError),
}

/// The text of a ring from before reinsertion had a name, with that name. Such rings said `fifo`, and appended hit
/// blocks again nevertheless: with a mirror for one lap and without credit.
fn with_reinsertion_named(text: &str) -> Option<String> {
    const CHOICE: &str = "\nreplacement = fifo\n";
    if !text.contains("\nplacement = log\n") || !text.contains(CHOICE) {
        return None;
    }
    let tunables = if text.contains("\npersistence = mirror\n") {
        "\nlaps_max = 1\nkeep_percent = 50\ncredit_percent = 0\n"
    } else {
        "\nlaps_max = 3\nkeep_percent = 50\ncredit_percent = 50\n"
    };
    let text = text.replacen(CHOICE, "\nreplacement = fifo-reinsertion\n", 1);
    Some(text.replacen("\nfree_order = lowest\n", tunables, 1))
}

/// Lines that texts got later: the line before each, what it begins with, and how it reads for caches of before.
const LATER_LINES: [(&str, &str, &str); 2] = [
    ("\nfetch = ", "\norder = ", "free"),
    // Buckets were handed out without rounds.
    ("\nrecount_part = ", "\npriorities_part = ", "0"),
];

/// The text of a cache from before it had some lines, with those.
fn with_later_lines(mut text: String) -> String {
    for (before, name, value) in LATER_LINES {
        if !text.contains(name)
            && let Some(at) = text.find(before).map(|at| at + before.len())
            && let Some(end) = text[at..].find('\n')
        {
            text.insert_str(at + end, value);
            text.insert_str(at + end, name);
        }
    }
    text
}

impl Composition {
    /// The composition of the cache with this superblock.
    ///
    /// # Errors
    /// [`StoredError`]: nobody who can be trusted wrote that.
    pub fn of(superblock: &Superblock) -> Result<Composition, StoredError> {
        let composition = match superblock.composition.as_str() {
            // Caches of early builds have none.
            "" => Composition::plain_log(),
            text => {
                let text = with_later_lines(with_reinsertion_named(text).unwrap_or_else(|| text.into()));
                Composition::parse(&text)?
            }
        };
        let is_divided_so = match (superblock.layout, composition.placement) {
            (Layout::Log(_), Placement::Log { .. }) => {
                composition.key_shape().is_none() && composition.frames_permille().is_none()
            }
            (Layout::Keys(layout), Placement::Log { .. }) => {
                composition.key_shape().is_some_and(|(sectors, _)| sectors == layout.bucket_blocks * 8)
            }
            (Layout::Frames(_), Placement::Log { .. }) => composition.frames_permille().is_some(),
            (Layout::Slots(layout), Placement::Slots(slots)) => {
                layout.slot_bytes() == u64::from(slots.slot_bytes)
                    && layout.ways() == slots.ways
                    && SlotPersistence::of(composition.persistence) == Some(layout.persistence())
            }
            _ => false,
        };
        if is_divided_so {
            composition.check_remembered(&superblock.layout)?;
            return Ok(composition);
        }
        let placement = composition.choice(Axis::Placement).name;
        Err(StoredError::OtherLayout { placement })
    }

    /// How it divides a device.
    ///
    /// # Errors
    /// [`DivideError`], most often because the device is too small.
    pub fn divide(&self, cache_bytes: u64) -> Result<Layout, DivideError> {
        let layout = match self.placement {
            Placement::Log { .. } => match (self.key_shape(), self.frames_permille()) {
                (None, None) => Layout::Log(Geometry::choose(cache_bytes)?),
                (Some((sectors, permille)), _) => {
                    Layout::Keys(KeyLayout::choose(cache_bytes, sectors, permille)?)
                }
                (None, Some(permille)) => {
                    Layout::Frames(KeyLayout::choose(cache_bytes, FRAME_GROUP_SECTORS, permille)?)
                }
            },
            Placement::Slots(_) => Layout::Slots(SlotLayout::of_composition(cache_bytes, self)?),
        };
        self.check_remembered(&layout)?;
        Ok(layout)
    }

    /// Pieces that are remembered without being cached, if the composition gives their number.
    fn remembered(&self) -> u64 {
        match self.admission {
            AdmissionChoice::Always(AlwaysChoice { ghost_pieces }) => u64::from(ghost_pieces),
            AdmissionChoice::SecondRead(SecondReadChoice { ghost_pieces }) => u64::from(ghost_pieces),
            AdmissionChoice::RoomOrSecondRead | AdmissionChoice::Mq(_) | AdmissionChoice::SmqHotspot(_) => 0,
        }
    }

    /// HAZARD 15: a number in a superblock cannot make the engine take any amount of memory.
    fn check_remembered(&self, layout: &Layout) -> Result<(), DivideError> {
        let room = match layout {
            Layout::Slots(layout) => layout.shape().frames,
            // A ring tells admission of nothing that left: only first reads are remembered.
            _ if !matches!(self.admission, AdmissionChoice::SecondRead(_)) => return Ok(()),
            Layout::Log(ring) => ring.segments * ring.segment_blocks,
            Layout::Keys(keys) | Layout::Frames(keys) => {
                keys.ring_blocks() + keys.buckets * keys.bucket_blocks
            }
        };
        let (pieces, most) = (self.remembered(), u64::from(room) * REMEMBERED_PER_SLOT_MAX);
        if pieces > most { Err(DivideError::Remembered { pieces, room, most }) } else { Ok(()) }
    }

    /// Memory for the tables of a cache with slots, at the most.
    #[must_use]
    fn tables_bytes(&self, layout: &SlotLayout) -> u64 {
        let slots = u64::from(layout.shape().frames);
        // Without such a number, as many pieces are remembered as there are slots.
        let remembered = self.remembered().max(slots);
        slots * (BYTES_PER_SLOT + BYTES_PER_BLOCK * u64::from(layout.slot_blocks()))
            + remembered * BYTES_PER_REMEMBERED
    }

    /// Memory that the index of a cache divided like this needs at the most: where blocks are indexed one by one, as if all were
    /// scattered. A mirrored log may have twice as many, as clean ones are on one half.
    #[must_use]
    pub fn index_bytes(&self, layout: &Layout, is_mirrored: bool) -> u64 {
        let of_ring = |ring: &Geometry| u64::from(ring.segments) * u64::from(ring.segment_blocks);
        let of_buckets = |keys: &KeyLayout| u64::from(keys.buckets) * u64::from(keys.bucket_blocks);
        let blocks = match layout {
            Layout::Log(ring) => {
                let is_kept_once = is_mirrored && of_ring(ring) <= u64::from(Place::HALF_END);
                of_ring(ring) * (1 + u64::from(is_kept_once))
            }
            // Besides the index there is a list of each bucket's content.
            Layout::Keys(keys) => of_buckets(keys),
            Layout::Frames(frames) => of_ring(&frames.geometry) + of_buckets(frames),
            Layout::Slots(slots) => return self.tables_bytes(slots),
        };
        INDEX_BYTES_LEAST + blocks * INDEX_BYTES_PER_BLOCK
    }

    /// Bytes of clients' blocks that a cache divided like this can hold at the same time. The rest is for its records, or is
    /// kept free so that there is always room for what comes next.
    #[must_use]
    pub fn room_bytes(&self, layout: &Layout) -> u64 {
        let blocks = match layout {
            Layout::Log(geometry) => {
                let config = Config::for_cache(geometry.segments, geometry.segment_blocks);
                let segments = geometry.segments.saturating_sub(config.segments_low);
                u64::from(segments) * u64::from(geometry.segment_blocks - SEGMENT_OVERHEAD_BLOCKS)
            }
            Layout::Keys(keys) => {
                let buckets = keys.buckets.saturating_sub(free_low(keys.buckets));
                u64::from(buckets) * u64::from(keys.bucket_blocks)
            }
            Layout::Frames(frames) => {
                // Dirty data has the ring, clean data the frames.
                let config = Config::for_frames(frames);
                let segments = frames.geometry.segments.saturating_sub(config.segments_low);
                let ring =
                    u64::from(segments) * u64::from(frames.geometry.segment_blocks - SEGMENT_OVERHEAD_BLOCKS);
                ring + u64::from(frames.buckets) * u64::from(frames.bucket_blocks)
            }
            Layout::Slots(slots) => u64::from(slots.shape().frames) * u64::from(slots.slot_blocks()),
        };
        blocks * BLOCK_BYTES
    }

    /// The least size above `cache_bytes` of which blocks can have half or more, in steps of 1 MiB and of a part of the
    /// size; `None` if there is none up to 64 times as much.
    #[must_use]
    pub fn size_with_room(&self, cache_bytes: u64) -> Option<u64> {
        let step_bytes = (cache_bytes / ROOM_STEPS).next_multiple_of(1 << 20).max(1 << 20);
        let sizes =
            (1..=ROOM_STEPS * 64).map(|step| cache_bytes.next_multiple_of(1 << 20) + step * step_bytes);
        sizes
            .into_iter()
            .find(|&bytes| self.divide(bytes).is_ok_and(|layout| self.room_bytes(&layout) * 2 >= bytes))
    }

    /// Sectors of a bucket and the share of the ring, where data lies in buckets.
    fn key_shape(&self) -> Option<(u32, u32)> {
        match (self.persistence, self.replacement) {
            (
                PersistenceChoice::Journal(Journal { journal_permille, .. }),
                ReplacementChoice::BucketLru { bucket_sectors, .. },
            ) => Some((bucket_sectors, journal_permille)),
            _ => None,
        }
    }

    /// The share of the ring, where clean data lies in frames.
    fn frames_permille(&self) -> Option<u32> {
        match self.persistence {
            PersistenceChoice::Frames(Frames { ring_permille }) => Some(ring_permille),
            _ => None,
        }
    }

    /// The engine's bounds over a device that it divided.
    #[must_use]
    pub fn config(&self, layout: &Layout) -> Config {
        match layout {
            Layout::Log(geometry) => {
                let mut config = Config::for_cache(geometry.segments, geometry.segment_blocks);
                config.tune(self);
                config
            }
            Layout::Keys(layout) => {
                let mut config = Config::for_keys(layout);
                config.tune(self);
                config
            }
            Layout::Frames(layout) => {
                let mut config = Config::for_frames(layout);
                config.tune(self);
                config
            }
            Layout::Slots(layout) => Config::for_slots(layout, self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::composition::points::points;

    const CACHE_BYTES: u64 = 256 << 20;

    fn superblock(composition: &Composition) -> Superblock {
        let layout = composition.divide(CACHE_BYTES).expect("there is room");
        let new = Superblock::of_new_cache([1; 16], CACHE_BYTES, layout);
        Superblock { profile: "some".into(), composition: composition.text(), ..new }
    }

    fn slots() -> Composition {
        let mut composition = Composition::plain_log();
        for (name, value) in [
            ("placement", "slots"),
            ("replacement", "fifo"),
            ("writes", "in-place"),
            ("persistence", "sync-sector"),
            ("destage", "sweep"),
            ("slot_bytes", "8192"),
            ("ways", "64"),
        ] {
            composition.set(name, value).expect("it is there");
        }
        composition.validate().expect("it is possible");
        composition
    }

    /// Goal: what `create` writes is what `serve` finds. Method: every 97th possible point, of all placements and
    /// persistences.
    #[test]
    fn what_is_stored_is_found_again() {
        let mut of_slots = 0;
        for composition in points().filter(|point| point.validate().is_ok()).step_by(97) {
            let superblock = superblock(&composition);
            assert_eq!(Composition::of(&superblock), Ok(composition));
            of_slots += u32::from(matches!(superblock.layout, Layout::Slots(_)));
            assert!(composition.config(&superblock.layout).failing_dirty_blocks_max > 0);
        }
        assert!(of_slots > 100, "{of_slots}");
    }

    #[test]
    fn a_cache_without_a_text_is_a_plain_log() {
        let mut old = superblock(&Composition::plain_log());
        old.composition = String::new();
        assert_eq!(Composition::of(&old), Ok(Composition::plain_log()));
        let mut slots = superblock(&slots());
        slots.composition = String::new();
        let error = Composition::of(&slots).expect_err("it has slots");
        assert_eq!(error, StoredError::OtherLayout { placement: "log" });
    }

    #[test]
    fn a_cache_from_before_order_was_a_choice_has_any_order() {
        let mut old = superblock(&Composition::forebay());
        old.composition = old.composition.replace("order = free\n", "");
        assert_eq!(Composition::of(&old), Ok(Composition::forebay()));
    }

    #[test]
    fn buckets_from_before_priorities_were_written_have_no_rounds() {
        let mut buckets = Composition::plain_log();
        for (name, value) in [
            ("replacement", "bucket-lru"),
            ("writes", "extents"),
            ("persistence", "journal"),
            ("priorities_part", "0"),
        ] {
            buckets.set(name, value).expect("it is there");
        }
        let mut old = superblock(&buckets);
        old.composition = old.composition.replace("order = free\n", "").replace("priorities_part = 0\n", "");
        assert!(!old.composition.contains("priorities"), "{}", old.composition);
        assert_eq!(Composition::of(&old), Ok(buckets));
    }

    /// Goal: caches from before reinsertion had a name are opened, and keep as many hit blocks as they did.
    #[test]
    fn a_ring_that_says_fifo_reinserts_as_it_did() {
        let mut gflash = Composition::plain_log();
        for (name, value) in
            [("persistence", "mirror"), ("destage", "mirror"), ("laps_max", "1"), ("credit_percent", "0")]
        {
            gflash.set(name, value).expect("it is there");
        }
        for (today, lines) in [
            (Composition::plain_log(), "laps_max = 3\nkeep_percent = 50\ncredit_percent = 50\n"),
            (gflash, "laps_max = 1\nkeep_percent = 50\ncredit_percent = 0\n"),
        ] {
            let mut old = superblock(&today);
            assert!(old.composition.contains(lines), "{}", old.composition);
            old.composition =
                old.composition.replace("fifo-reinsertion", "fifo").replace(lines, "free_order = lowest\n");
            assert!(Composition::parse(&old.composition).is_err(), "no cache is made with that text today");
            assert_eq!(Composition::of(&old), Ok(today));
        }
        let plain = superblock(&slots());
        assert_eq!(Composition::of(&plain), Ok(slots()), "slots that say fifo mean it");
    }

    #[test]
    fn the_text_of_another_cache_is_refused() {
        let ours = superblock(&slots());
        for (name, value) in [("slot_bytes", "4096"), ("ways", "128"), ("persistence", "commit")] {
            let mut other = slots();
            other.set(name, value).expect("it is there");
            let hostile = Superblock { composition: other.text(), ..ours.clone() };
            let error = Composition::of(&hostile).expect_err("another one's");
            assert_eq!(error, StoredError::OtherLayout { placement: "slots" }, "{name}");
        }
        let hostile = Superblock { composition: "forebay composition 1\nsafe = maybe\n".into(), ..ours };
        assert!(matches!(Composition::of(&hostile), Err(StoredError::Text(_))));
    }

    #[test]
    fn a_device_that_is_too_small_is_refused_with_what_it_needs() {
        let error = slots().divide(16 << 20).expect_err("it is too small");
        assert!(matches!(error, DivideError::Slots(SlotLayoutError::CacheTooSmall { .. })), "{error}");
        let mut forgetful = slots();
        forgetful.set("ghost_pieces", "4294967294").expect("in range");
        let error = forgetful.divide(CACHE_BYTES).expect_err("more than memory is worth");
        assert!(matches!(error, DivideError::Remembered { pieces: 4_294_967_294, .. }), "{error}");
        let hostile = Superblock { composition: forgetful.text(), ..superblock(&slots()) };
        assert!(matches!(Composition::of(&hostile), Err(StoredError::Divide(_))));
        let mut forgetful = Composition::plain_log();
        for (name, value) in [("admission", "second-read"), ("first_reads", "4294967294")] {
            forgetful.set(name, value).expect("in range");
        }
        let error = forgetful.divide(CACHE_BYTES).expect_err("more than memory is worth, for a ring too");
        assert!(matches!(error, DivideError::Remembered { pieces: 4_294_967_294, .. }), "{error}");
        let hostile = Superblock { composition: forgetful.text(), ..superblock(&Composition::plain_log()) };
        assert!(matches!(Composition::of(&hostile), Err(StoredError::Divide(_))));
        let mut odd = slots();
        odd.set("slot_bytes", "12288").expect("a multiple of 4096");
        let error = odd.divide(CACHE_BYTES).expect_err("there are no such slots");
        assert_eq!(error, DivideError::Slots(SlotLayoutError::SlotBytes { slot_bytes: 12_288 }));
        let mut odd = slots();
        odd.set("ways", "3").expect("in range");
        let error = odd.divide(CACHE_BYTES).expect_err("there are no such sets");
        assert_eq!(error, DivideError::Slots(SlotLayoutError::Ways { ways: 3 }));
    }
}
