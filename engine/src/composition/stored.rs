//! A composition as it is kept with a cache: its text in the superblock, and how it divides the device.

use super::axes::{Axis, BitTree, DestageChoice, Journal, PersistenceChoice, Placement};
use super::{Composition, ParseError};
use crate::format::{
    FormatError, Geometry, GeometryError, KeyLayout, KeyLayoutError, Layout, SlotLayout, SlotLayoutError, SlotPersistence, Superblock,
    TreeShape,
};
use crate::limits::Config;
use crate::replacement::ReplacementChoice;
use crate::units::{BLOCK_BYTES, Nanos};
use thiserror::Error;

/// Why a device cannot be divided as a composition wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DivideError {
    /// Not into segments.
    #[error(transparent)]
    Segments(#[from] GeometryError),
    /// Not into slots.
    #[error(transparent)]
    Slots(#[from] SlotLayoutError),
    /// Not into buckets.
    #[error(transparent)]
    Buckets(#[from] KeyLayoutError),
    /// There is no such tree.
    #[error("There is no tree of {levels} levels")]
    Tree {
        /// What was asked for.
        levels: u32,
    },
}

/// Why a superblock does not say what its cache is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoredError {
    /// The text is none of a composition.
    #[error("What the cache is made of cannot be read: {0}")]
    Text(#[from] ParseError),
    /// It is the text of another cache.
    #[error("The cache is made of {placement}, but its device is divided otherwise")]
    OtherLayout {
        /// What the text says.
        placement: &'static str,
    },
}

impl Composition {
    /// What the cache with this superblock is made of.
    ///
    /// # Errors
    /// [`StoredError`]: nobody who can be trusted wrote that.
    pub fn of(superblock: &Superblock) -> Result<Composition, StoredError> {
        let composition = match superblock.composition.as_str() {
            // Caches of early builds have none.
            "" => Composition::forebay(),
            text => Composition::parse(text)?,
        };
        let is_divided_so = match (superblock.layout, composition.placement) {
            (Layout::Log(_), Placement::Log { .. }) => composition.key_shape().is_none(),
            (Layout::Keys(layout), Placement::Log { .. }) => {
                composition.key_shape().is_some_and(|(sectors, _)| sectors == layout.bucket_blocks * 8)
            }
            (Layout::Slots(layout), Placement::Slots(slots)) => {
                layout.slot_bytes() == u64::from(slots.slot_bytes)
                    && layout.ways() == slots.ways
                    && composition.slot_persistence() == Ok(Some(layout.persistence()))
            }
            _ => false,
        };
        if is_divided_so {
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
        let Placement::Slots(slots) = self.placement else {
            return Ok(match self.key_shape() {
                None => Layout::Log(Geometry::choose(cache_bytes)?),
                Some((sectors, permille)) => Layout::Keys(KeyLayout::choose(cache_bytes, sectors, permille)?),
            });
        };
        let tree = |_| DivideError::Tree { levels: self.tree_levels() };
        let persistence = self.slot_persistence().map_err(tree)?.expect("a coupling gives slots one of theirs");
        Ok(Layout::Slots(SlotLayout::choose(cache_bytes, slots.slot_bytes, slots.ways, persistence)?))
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

    fn tree_levels(&self) -> u32 {
        match self.persistence {
            PersistenceChoice::BitTree(BitTree { tree_levels, .. }) => tree_levels,
            _ => 0,
        }
    }

    /// What is durable of its slots; `None` for what a log has.
    fn slot_persistence(&self) -> Result<Option<SlotPersistence>, FormatError> {
        Ok(match self.persistence {
            PersistenceChoice::SyncSector { .. } => Some(SlotPersistence::SyncSector),
            PersistenceChoice::Commit(_) => Some(SlotPersistence::Commit),
            PersistenceChoice::BitTree(BitTree { tree_levels, .. }) => {
                let levels = u8::try_from(tree_levels).map_err(|_| FormatError::Field("tree levels"))?;
                Some(SlotPersistence::BitTree { tree: TreeShape::new(levels)? })
            }
            PersistenceChoice::Inline | PersistenceChoice::Journal(_) | PersistenceChoice::Mirror(_) => None,
        })
    }

    /// The engine's bounds over a device that it divided.
    #[must_use]
    pub fn config(&self, layout: &Layout) -> Config {
        let mut config = match layout {
            Layout::Log(geometry) => Config::for_cache(geometry.segments, geometry.segment_blocks),
            Layout::Keys(layout) => Config::for_keys(layout),
            Layout::Slots(layout) => Config::for_slots(layout.shape().frames, layout.slot_blocks()),
        };
        self.bound(&mut config);
        config
    }

    /// Sets those of the engine's bounds that are tunables.
    pub fn bound(&self, config: &mut Config) {
        let nanos = |ms: u32| u64::from(ms) * Nanos::MILLISECOND;
        if let Placement::Log { false_dirty_bytes } = self.placement {
            // A small cache has a lower limit of its own.
            config.false_dirty_blocks_max =
                config.false_dirty_blocks_max.min(false_dirty_bytes / BLOCK_BYTES);
        }
        if let DestageChoice::Sweep(sweep) = self.destage {
            config.idle_ns = nanos(sweep.idle_ms);
            config.destage_runs_max = sweep.destage_runs;
        }
        config.flush_after_ns = nanos(self.common.flush_after_ms);
        config.backoff_ns = nanos(self.common.backoff_ms);
        config.absent_after_ns = nanos(self.common.absent_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::composition::points::points;
    use alloc::string::String;

    const CACHE_BYTES: u64 = 256 << 20;

    fn superblock(composition: &Composition) -> Superblock {
        Superblock {
            set_id: [1; 16],
            update: 1,
            session: 1,
            cut_sequence: 0,
            base_sequence: 1,
            clean_stop: true,
            cache_bytes: CACHE_BYTES,
            layout: composition.divide(CACHE_BYTES).expect("there is room"),
            profile: "some".into(),
            composition: composition.text(),
            next_volume_id: 1,
            volumes: Default::default(),
        }
    }

    fn slots() -> Composition {
        let mut composition = Composition::forebay();
        for (name, value) in [
            ("placement", "slots"),
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
    fn a_cache_without_a_text_is_our_own() {
        let mut old = superblock(&Composition::forebay());
        old.composition = String::new();
        assert_eq!(Composition::of(&old), Ok(Composition::forebay()));
        let mut slots = superblock(&slots());
        slots.composition = String::new();
        let error = Composition::of(&slots).expect_err("it has slots");
        assert_eq!(error, StoredError::OtherLayout { placement: "log" });
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
