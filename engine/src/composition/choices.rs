//! The choices of each axis, by name.

use super::Composition;
use super::axes::{
    Axis, BitTree, Commit, DestageChoice, ExtentWrites, Frames, Journal, Mirror, OrderChoice,
    PersistenceChoice, Placement, SetMap, SlotWrites, Slots, StrictOrder, Sweep, WritesChoice,
};
use super::keys::{self, KEYS, Key};
use crate::effect::WriteMode;
use crate::policies::admission::always::AlwaysChoice;
use crate::policies::admission::congestion::CongestionChoice;
use crate::policies::admission::mq::MqChoice;
use crate::policies::admission::runs::RunsChoice;
use crate::policies::admission::second_read::SecondReadChoice;
use crate::policies::admission::smq_hotspot::SmqHotspotChoice;
use crate::policies::admission::{AdmissionChoice, CutoffChoice};
use crate::policies::controllers::cleaner::CleanerChoice;
use crate::policies::controllers::idle::IdleChoice;
use crate::policies::controllers::mirror_fill::MirrorFillChoice;
use crate::policies::controllers::pi::PiChoice;
use crate::policies::controllers::threshold::ThresholdChoice;
use crate::policies::controllers::threshold_sets::ThresholdSetsChoice;
use crate::policies::fetch::Fetch;
use crate::policies::replacement::ReplacementChoice;
use crate::policies::replacement::smq::SmqVersion;

/// One answer.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// To which question.
    pub axis: Axis,
    /// Its name, unique on its axis.
    pub name: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    chosen: Chosen,
}

/// The change that a choice makes to a composition.
#[derive(Clone, Copy, Debug)]
enum Chosen {
    /// A field of it gets a value.
    Field(fn(&mut Composition)),
    /// Its replacement is this one.
    Replacement(ReplacementChoice),
}

impl Choice {
    /// Makes it a composition's choice, with the defaults of its keys.
    pub(super) fn choose(&self, composition: &mut Composition) {
        match self.chosen {
            Chosen::Field(set) => set(composition),
            Chosen::Replacement(choice) => composition.replacement = choice,
        }
        keys::set_defaults(composition, self.axis);
    }

    /// The tunables of this choice.
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> {
        let mut composition = Composition::plain_log();
        self.choose(&mut composition);
        let axis = self.axis;
        KEYS.iter().filter(move |key| key.axis == Some(axis) && key.get(&composition).is_some())
    }
}

/// Every choice of every axis.
pub fn all() -> impl Iterator<Item = &'static Choice> {
    CHOICES.iter().chain(REPLACEMENTS)
}

impl Axis {
    /// The choices of this axis.
    pub fn choices(self) -> impl Iterator<Item = &'static Choice> {
        all().filter(move |choice| choice.axis == self)
    }

    /// The choice of that name.
    #[must_use]
    pub fn choice(self, name: &str) -> Option<&'static Choice> {
        self.choices().find(|choice| choice.name == name)
    }
}

const EXTENT_WRITES: ExtentWrites = ExtentWrites {
    first_gap_only: true,
    cutoff_writeback_percent: 40,
    cutoff_writeback_sync_percent: 70,
    cutoff_add_percent: 95,
};
const SLOT_WRITES: SlotWrites =
    SlotWrites { all_or_nothing: false, splits_requests: true, rereads_whole: false };
const COMMIT: Commit = Commit { commit_ms: 1000, commits_promotions: false };

/// A row of [`CHOICES`]: axis, name, meaning, and the value that becomes that field of the composition.
macro_rules! choice {
    ($axis:ident, $name:literal, $meaning:literal, $field:ident = $value:expr) => {
        Choice {
            axis: Axis::$axis,
            name: $name,
            meaning: $meaning,
            chosen: Chosen::Field(|composition| composition.$field = $value),
        }
    };
}

/// The policies of replacement: their table is where they are.
const REPLACEMENTS: &[Choice] = &{
    let policies = ReplacementChoice::ALL;
    let (name, meaning, first) = policies[0];
    let choice = Choice { axis: Axis::Replacement, name, meaning, chosen: Chosen::Replacement(first) };
    let mut choices = [choice; ReplacementChoice::ALL.len()];
    let mut at = 1;
    while at < choices.len() {
        let (name, meaning, policy) = policies[at];
        choices[at] = Choice { name, meaning, chosen: Chosen::Replacement(policy), ..choice };
        at += 1;
    }
    choices
};

/// Every choice of every other axis.
#[rustfmt::skip]
const CHOICES: &[Choice] = &[
    choice!(
        Placement,
        "log",
        "in segments that are only appended to",
        placement = Placement::Log { false_dirty_bytes: 0 }
    ),
    choice!(
        Placement,
        "slots",
        "in slots of one size, anywhere or in sets",
        placement = Placement::Slots(Slots { slot_bytes: 0, ways: 0, set_map: SetMap::Modulo })
    ),
    choice!(
        Admission,
        "always",
        "everything enters at its first touch",
        admission = AdmissionChoice::Always(AlwaysChoice { ghost_pieces: 0 })
    ),
    choice!(
        Admission,
        "second-read",
        "a block enters when it is read for the second time, or written",
        admission = AdmissionChoice::SecondRead(SecondReadChoice { ghost_pieces: 0 })
    ),
    choice!(
        Admission,
        "room-or-second-read",
        "everything while there is room; then a block that is read for the second time, or written",
        admission = AdmissionChoice::RoomOrSecondRead
    ),
    choice!(
        Admission,
        "mq",
        "what was asked for often enough, counted piece by piece",
        admission = AdmissionChoice::Mq(MqChoice::PUBLISHED)
    ),
    choice!(
        Admission,
        "smq-hotspot",
        "what lies in a hot region",
        admission = AdmissionChoice::SmqHotspot(SmqHotspotChoice { version: SmqVersion::Two })
    ),
    choice!(
        Cutoff,
        "none",
        "nothing passes by but what is not aligned",
        cutoff = CutoffChoice { aligned_sectors: 0, runs: None, congestion: None }
    ),
    choice!(
        Cutoff,
        "runs",
        "long sequential runs",
        cutoff = CutoffChoice { aligned_sectors: 0, runs: Some(RunsChoice::PUBLISHED), congestion: None }
    ),
    choice!(
        Cutoff,
        "runs-and-congestion",
        "long runs, and shorter ones while the cache device is slow",
        cutoff = CutoffChoice {
            aligned_sectors: 0,
            runs: Some(RunsChoice::PUBLISHED),
            congestion: Some(CongestionChoice::PUBLISHED),
        }
    ),
    choice!(
        WriteMode,
        "writeback",
        "the cache has it; it goes home later",
        write_mode = WriteMode::Writeback
    ),
    choice!(WriteMode, "writethrough", "cache and origin have it", write_mode = WriteMode::Writethrough),
    choice!(
        WriteMode,
        "writearound",
        "the origin has it, and no cached copy stays",
        write_mode = WriteMode::Writearound
    ),
    choice!(
        WriteMode,
        "passthrough",
        "the origin has it, and nothing new is cached",
        write_mode = WriteMode::Passthrough
    ),
    choice!(WriteMode, "readonly", "clients may not write", write_mode = WriteMode::Readonly),
    choice!(
        Writes,
        "merge",
        "what is missing of a block is read first, whole blocks are appended",
        writes = WritesChoice::Merge
    ),
    choice!(
        Writes,
        "merge-or-bypass",
        "the same, but where the origin would have to be read, or room to be made, a write goes around the cache",
        writes = WritesChoice::MergeOrBypass
    ),
    choice!(
        Writes,
        "extents",
        "extents go to buckets, as long as few enough of them are in use",
        writes = WritesChoice::Extents(EXTENT_WRITES)
    ),
    choice!(
        Writes,
        "in-place",
        "a cached piece is written in place, in part too",
        writes = WritesChoice::InPlace(SLOT_WRITES)
    ),
    choice!(
        Writes,
        "invalidate",
        "a piece that is not written wholly is dropped",
        writes = WritesChoice::Invalidate(SLOT_WRITES)
    ),
    choice!(
        Writes,
        "both-if-clean",
        "a part of a dirty piece in place, one of a clean piece to both devices",
        writes = WritesChoice::BothIfClean(SLOT_WRITES)
    ),
    choice!(Persistence, "inline", "header and data are one write", persistence = PersistenceChoice::Inline),
    choice!(
        Persistence,
        "journal",
        "keys are appended, data lies in buckets",
        persistence =
            PersistenceChoice::Journal(Journal { journal_delay_ms: 0, journal_permille: 0, recount_part: 1, priorities_part: 0 })
    ),
    choice!(
        Persistence,
        "sync-sector",
        "a slot's record is written before a dirty write is acknowledged",
        persistence = PersistenceChoice::SyncSector { cleans_per_block: false }
    ),
    choice!(
        Persistence,
        "commit",
        "mappings by copy-on-write; after a crash everything counts as dirty",
        persistence = PersistenceChoice::Commit(COMMIT)
    ),
    choice!(
        Persistence,
        "bit-tree",
        "the same, and a tree of bits tells where something may be dirty",
        persistence = PersistenceChoice::BitTree(BitTree {
            commit: COMMIT,
            tree_levels: 1,
            leaf_pieces: 1,
            sla_permille: 0,
            adjust_ms: 1,
            adjust_steps: 1,
        })
    ),
    choice!(
        Persistence,
        "mirror",
        "header and data in small groups; dirty data stays in memory too",
        persistence = PersistenceChoice::Mirror(Mirror {
            ram_bytes: 0,
            batch_writes_max: 1,
            early_ack_writes: 0,
            keeps_written: false,
        })
    ),
    choice!(
        Persistence,
        "frames",
        "header and data of a write are one write; clean data lies in frames of one block",
        persistence = PersistenceChoice::Frames(Frames { ring_permille: 1 })
    ),
    choice!(
        Destage,
        "sweep",
        "round and round in the order of the origin",
        destage = DestageChoice::Sweep(Sweep { idle_ms: 1, destage_runs: 1 })
    ),
    choice!(
        Destage,
        "pi",
        "at a rate that follows how far dirty data is from a target",
        destage = DestageChoice::Pi(PiChoice::PUBLISHED)
    ),
    choice!(
        Destage,
        "threshold",
        "what a set has beyond its limit, few copies at a time",
        destage = DestageChoice::Threshold(ThresholdChoice::PUBLISHED)
    ),
    choice!(
        Destage,
        "threshold-sets",
        "whole sets when the cache or a set has too much",
        destage = DestageChoice::ThresholdSets(ThresholdSetsChoice::PUBLISHED)
    ),
    choice!(
        Destage,
        "idle",
        "one frame a copy as replacement says, mostly while nobody asks",
        destage = DestageChoice::Idle(IdleChoice::PUBLISHED)
    ),
    choice!(
        Destage,
        "cleaner",
        "everything, and nothing enters",
        destage = DestageChoice::Cleaner(CleanerChoice::PUBLISHED)
    ),
    choice!(
        Destage,
        "mirror",
        "from memory while nobody reads the origin, or because memory is full",
        destage = DestageChoice::MirrorFill(MirrorFillChoice::PUBLISHED)
    ),
    choice!(
        Fetch,
        "request",
        "what was asked for; nobody waits for the fill",
        fetch = Fetch::Request { readahead_bytes: 0 }
    ),
    choice!(
        Fetch,
        "filled-request",
        "what was asked for; the request waits until that is in the cache, too",
        fetch = Fetch::Filled
    ),
    choice!(
        Fetch,
        "neighbourhood",
        "what was asked for, and what lies beside it as far as that pays, which stays in memory",
        fetch = Fetch::Neighbourhood { neighbour_bytes: 16 << 20 }
    ),
    choice!(Fetch, "frame", "every frame that is touched, wholly", fetch = Fetch::Frame { waits: false }),
    choice!(Order, "free", "anything: blocks go home as is fastest", order = OrderChoice::Free),
    choice!(
        Order,
        "strict",
        "what its client had flushed, a bounded time ago",
        order = OrderChoice::Strict(StrictOrder { lag_ms: 1, lag_bytes: 0 })
    ),
];

impl Composition {
    /// The choice on an axis.
    #[must_use]
    pub fn choice(&self, axis: Axis) -> &'static Choice {
        let name = match axis {
            Axis::Placement => match self.placement {
                Placement::Log { .. } => "log",
                Placement::Slots(_) => "slots",
            },
            Axis::Admission => match self.admission {
                AdmissionChoice::Always(_) => "always",
                AdmissionChoice::SecondRead(_) => "second-read",
                AdmissionChoice::RoomOrSecondRead => "room-or-second-read",
                AdmissionChoice::Mq(_) => "mq",
                AdmissionChoice::SmqHotspot(_) => "smq-hotspot",
            },
            Axis::Cutoff => match (self.cutoff.runs, self.cutoff.congestion) {
                (None, _) => "none",
                (Some(_), None) => "runs",
                (Some(_), Some(_)) => "runs-and-congestion",
            },
            Axis::Replacement => self.replacement.name(),
            Axis::WriteMode => self.write_mode.name(),
            Axis::Writes => match self.writes {
                WritesChoice::Merge => "merge",
                WritesChoice::MergeOrBypass => "merge-or-bypass",
                WritesChoice::Extents(_) => "extents",
                WritesChoice::InPlace(_) => "in-place",
                WritesChoice::Invalidate(_) => "invalidate",
                WritesChoice::BothIfClean(_) => "both-if-clean",
            },
            Axis::Persistence => match self.persistence {
                PersistenceChoice::Inline => "inline",
                PersistenceChoice::Journal(_) => "journal",
                PersistenceChoice::SyncSector { .. } => "sync-sector",
                PersistenceChoice::Commit(_) => "commit",
                PersistenceChoice::BitTree(_) => "bit-tree",
                PersistenceChoice::Mirror(_) => "mirror",
                PersistenceChoice::Frames(_) => "frames",
            },
            Axis::Destage => match self.destage {
                DestageChoice::Sweep(_) => "sweep",
                DestageChoice::Pi(_) => "pi",
                DestageChoice::Threshold(_) => "threshold",
                DestageChoice::ThresholdSets(_) => "threshold-sets",
                DestageChoice::Idle(_) => "idle",
                DestageChoice::Cleaner(_) => "cleaner",
                DestageChoice::MirrorFill(_) => "mirror",
            },
            Axis::Fetch => match self.fetch {
                Fetch::Request { .. } => "request",
                Fetch::Filled => "filled-request",
                Fetch::Neighbourhood { .. } => "neighbourhood",
                Fetch::Frame { .. } => "frame",
            },
            Axis::Order => match self.order {
                OrderChoice::Free => "free",
                OrderChoice::Strict(_) => "strict",
            },
        };
        axis.choice(name).expect("every variant is in the table of choices")
    }
}
