//! The start of a store: from the findings of recovery and the composition.

use super::policies::Policies;
use super::records::Records;
use super::records::lost::LostRecords;
use super::records::mappings::Mappings;
use super::table::SlotTable;
use super::table::directory::Directory;
use super::table::set_map::{CLUSTER_BYTES, SetMap, SetMapKind};
use super::{BUSY_SLOTS_MAX, SlotStore};
use crate::composition::Composition;
use crate::composition::axes::{Placement, SetMap as SetMapChoice, Slots};
use crate::format::{SetId, SlotLayout};
use crate::mutation::Mutations;
use crate::number::to_u32;
use crate::policies::controllers::{Destage, Pressure};
use crate::policies::replacement::free_frames::FreeFrames;
use crate::policies::replacement::{Policy, Replacement};
use crate::store::slots::records::persistence::areas::Areas;
use crate::store::slots::records::persistence::sync_sector::SyncSector;
use crate::table::bits::Bits;
use crate::table::key_map::KeyMap;
use crate::units::{BlockKey, Frame, Nanos, VOLUMES_MAX};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use slab::Slab;

/// The findings that a store begins with.
pub(crate) struct SlotStart {
    pub set_id: SetId,
    pub layout: SlotLayout,
    pub table: SlotTable,
    pub directory: Directory,
    /// Slots of each volume that a record may name.
    pub recorded: [u32; VOLUMES_MAX],
    /// Replacement's hints of a clean stop, by the number of the slot.
    pub hints: Vec<(Frame, u16)>,
    /// Pieces of all volumes together.
    pub origin_pieces: u64,
    /// Blocks whose only copy rotted, and the device's table of them.
    pub lost: (BTreeSet<BlockKey>, LostRecords),
    /// The mappings, where slots are recorded by transactions.
    pub mappings: Option<Box<Mappings>>,
    /// Planted bugs, in tests only.
    pub mutations: Mutations,
}

impl SlotStore {
    /// The store of a cache that does what `composition` says. The content of the table is that of an earlier
    /// process.
    pub fn new(start: SlotStart, composition: &Composition) -> SlotStore {
        let SlotStart { set_id, layout, table, directory, recorded, origin_pieces, hints, .. } = start;
        let SlotStart { lost, mappings, mutations, .. } = start;
        let (lost, lost_records) = lost;
        let shape = layout.shape();
        let seed = seed(&set_id);
        let mut replacement = Replacement::new(&composition.replacement, shape, seed);
        let free =
            FreeFrames::new(shape, composition.replacement.free_order(), |slot| table.piece(slot).is_none());
        for slot in (0..shape.frames).map(Frame).filter(|&slot| table.piece(slot).is_some()) {
            let hint = hints.binary_search_by_key(&slot, |(hinted, _)| *hinted);
            let hint = hint.ok().map(|at| hints[at].1);
            replacement.restore(slot, hint, table.is_dirty(slot));
        }
        let mut destage = Destage::new(&composition.destage, shape, to_u32(layout.slot_bytes()));
        for slot in (0..shape.frames).map(Frame).filter(|&slot| table.is_dirty(slot)) {
            let pressure = Pressure { requests: u32::MAX, ..Pressure::default() };
            destage.set_dirty(slot, shape.set_of(slot), true, &pressure);
            destage.touched(shape.set_of(slot));
        }
        let records = match mappings {
            Some(mappings) => Records::Commit(mappings),
            // SAFE: without it a record does not wait for its data, nor a slot for its record's end.
            None => {
                let is_dirty = |slot| table.is_dirty(Frame(slot));
                let records = SyncSector::new(shape.frames, composition.safe, is_dirty);
                Records::SyncSector(Box::new(records.with_mutations(mutations)))
            }
        };
        SlotStore {
            destage,
            written_home: Bits::new(shape.frames),
            cleaning: None,
            ask_again: Nanos(0),
            last_origin: Nanos(0),
            wants_room: false,
            set_id,
            layout,
            records,
            areas: Areas::new(layout.areas(), layout.open_areas_max(), composition.safe, mutations),
            policies: Policies::new(composition, shape, origin_pieces, seed),
            answers: BTreeMap::new(),
            promotions: Slab::new(),
            promotions_begun: Vec::new(),
            is_worker_first: false,
            table,
            directory,
            free,
            replacement,
            writing: KeyMap::new(BUSY_SLOTS_MAX.min(shape.frames)),
            changing: BTreeSet::new(),
            changing_reads: Vec::new(),
            waiting: VecDeque::new(),
            is_released: false,
            look_again: Nanos(0),
            lost,
            lost_records,
            rotten: BTreeSet::new(),
            doubted: BTreeSet::new(),
            completed: 0,
            recorded,
            filling_blocks: [0; VOLUMES_MAX],
            is_volume_leaving: [false; VOLUMES_MAX],
            mutations,
            pages_in_flight: 0,
            pages_stopped: 0,
        }
    }
}

/// The map from pieces to sets of a cache with that layout and composition.
pub(super) fn set_map(layout: &SlotLayout, composition: &Composition) -> SetMap {
    let kind = match composition.placement {
        Placement::Slots(Slots { set_map: SetMapChoice::Masked, .. }) => SetMapKind::Masked,
        Placement::Slots(Slots { set_map: SetMapChoice::Hashed, slot_bytes, .. }) => {
            SetMapKind::Hashed { pieces: u64::from((CLUSTER_BYTES / slot_bytes).max(1)) }
        }
        Placement::Slots(_) | Placement::Log { .. } => SetMapKind::Modulo,
    };
    SetMap::new(kind, layout.shape())
}

/// The seed of policies that draw random numbers.
fn seed(set_id: &SetId) -> u64 {
    let (low, high) = set_id.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    number(low) ^ number(high)
}
