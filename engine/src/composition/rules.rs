//! Which choices do not go together, and why.

use super::Composition;
use super::axes::{DestageChoice, OrderChoice, PersistenceChoice, Placement, WritesChoice};
use crate::effect::WriteMode;
use crate::policies::admission::AdmissionChoice;
use crate::policies::fetch::Fetch;
use crate::policies::replacement::ReplacementChoice;
use crate::policies::replacement::free_frames::FreeOrder;
use crate::units::BLOCK_BYTES;

/// Two choices that do not go together.
#[derive(Debug)]
pub struct Coupling {
    /// Its name, unique.
    pub name: &'static str,
    /// The condition that has to hold.
    pub rule: &'static str,
    /// Why.
    pub why: &'static str,
    breaks: fn(&Composition) -> bool,
}

/// There is one coupling of a name.
impl PartialEq for Coupling {
    fn eq(&self, other: &Coupling) -> bool {
        self.name == other.name
    }
}

impl Eq for Coupling {}

impl Coupling {
    /// Whether a composition has both.
    #[must_use]
    pub fn is_broken(&self, composition: &Composition) -> bool {
        (self.breaks)(composition)
    }
}

/// The largest slot of a set, and of one whose record is written with its data.
const SMALL_SLOT_BYTES_MAX: u32 = 65_536;

fn is_log(composition: &Composition) -> bool {
    matches!(composition.placement, Placement::Log { .. })
}

fn is_journal(composition: &Composition) -> bool {
    matches!(composition.persistence, PersistenceChoice::Journal(_))
}

fn has_frames(composition: &Composition) -> bool {
    matches!(composition.persistence, PersistenceChoice::Frames(_))
}

/// Whether data lies in the segments of a ring.
fn is_ring(composition: &Composition) -> bool {
    is_log(composition) && !is_journal(composition)
}

fn is_strict(composition: &Composition) -> bool {
    matches!(composition.order, OrderChoice::Strict(_))
}

/// Whether whole blocks are appended, with what their writes left out merged in.
fn is_merge(writes: WritesChoice) -> bool {
    matches!(writes, WritesChoice::Merge | WritesChoice::MergeOrBypass)
}

/// Slots of a set; 0: no sets.
fn ways(composition: &Composition) -> u32 {
    match composition.placement {
        Placement::Log { .. } => 0,
        Placement::Slots(slots) => slots.ways,
    }
}

/// Bytes of a slot; 0: no slots.
fn slot_bytes(composition: &Composition) -> u32 {
    match composition.placement {
        Placement::Log { .. } => 0,
        Placement::Slots(slots) => slots.slot_bytes,
    }
}

fn has_sets_or_log(composition: &Composition) -> bool {
    is_log(composition) || ways(composition) > 0
}

/// All of them. A composition is possible if it breaks none.
pub const COUPLINGS: &[Coupling] = &[
    Coupling {
        name: "inline-needs-log",
        rule: "persistence = inline needs placement = log",
        why: "header and data are one append",
        breaks: |c| c.persistence == PersistenceChoice::Inline && !is_log(c),
    },
    Coupling {
        name: "journal-needs-log",
        rule: "persistence = journal needs placement = log",
        why: "keys are appended to the log's ring",
        breaks: |c| is_journal(c) && !is_log(c),
    },
    Coupling {
        name: "mirror-needs-log",
        rule: "persistence = mirror needs placement = log",
        why: "groups of writes are appended",
        breaks: |c| matches!(c.persistence, PersistenceChoice::Mirror(_)) && !is_log(c),
    },
    Coupling {
        name: "records-need-slots",
        rule: "persistence = sync-sector, commit or bit-tree needs placement = slots",
        why: "they record places that do not move",
        breaks: |c| {
            let records = matches!(
                c.persistence,
                PersistenceChoice::SyncSector { .. }
                    | PersistenceChoice::Commit(_)
                    | PersistenceChoice::BitTree(_)
            );
            records && is_log(c)
        },
    },
    Coupling {
        name: "buckets-need-journal",
        rule: "replacement = bucket-lru needs persistence = journal",
        why: "only there are buckets",
        breaks: |c| matches!(c.replacement, ReplacementChoice::BucketLru { .. }) && !is_journal(c),
    },
    Coupling {
        name: "journal-needs-buckets",
        rule: "persistence = journal needs replacement = bucket-lru",
        why: "the unit that is given up is the bucket",
        breaks: |c| is_journal(c) && !matches!(c.replacement, ReplacementChoice::BucketLru { .. }),
    },
    Coupling {
        name: "frames-need-log",
        rule: "persistence = frames needs placement = log",
        why: "what clients write is appended, and so are the keys of clean data",
        breaks: |c| has_frames(c) && !is_log(c),
    },
    Coupling {
        name: "frames-need-worth",
        rule: "persistence = frames needs replacement = forebay",
        why: "a frame has no neighbours whose order could say which of them leaves",
        breaks: |c| has_frames(c) && !matches!(c.replacement, ReplacementChoice::Forebay(_)),
    },
    Coupling {
        name: "worth-admits",
        rule: "replacement = forebay needs admission = always",
        why: "worth decides what enters, too",
        breaks: |c| {
            matches!(c.replacement, ReplacementChoice::Forebay(_))
                && !matches!(c.admission, AdmissionChoice::Always(_))
        },
    },
    Coupling {
        name: "worth-needs-frames",
        rule: "replacement = forebay needs persistence = frames",
        why: "a block that stays has to stay where it is",
        breaks: |c| !has_frames(c) && matches!(c.replacement, ReplacementChoice::Forebay(_)),
    },
    Coupling {
        name: "ring-is-fifo",
        rule: "placement = log without journal and frames needs replacement = fifo-reinsertion",
        why: "segments are reused in the order of the ring, or old copies come back after a crash",
        breaks: |c| {
            is_ring(c) && !has_frames(c) && !matches!(c.replacement, ReplacementChoice::FifoReinsertion(_))
        },
    },
    Coupling {
        name: "reinsertion-needs-ring",
        rule: "replacement = fifo-reinsertion needs placement = log without journal and frames",
        why: "only there is a block that stays appended again",
        breaks: |c| {
            (!is_ring(c) || has_frames(c)) && matches!(c.replacement, ReplacementChoice::FifoReinsertion(_))
        },
    },
    Coupling {
        name: "whole-needs-any-place",
        rule: "replacement = mq, smq or s3-fifo, and free_order = near-last, need ways = 0",
        why: "their lists span all frames",
        breaks: |c| {
            let spans_all = matches!(
                c.replacement,
                ReplacementChoice::Mq { .. }
                    | ReplacementChoice::Smq { .. }
                    | ReplacementChoice::S3Fifo { .. }
                    | ReplacementChoice::Fifo { free_order: FreeOrder::NearLast }
            );
            spans_all && ways(c) > 0
        },
    },
    Coupling {
        name: "warm-hot-needs-sets",
        rule: "replacement = warm-hot-lru needs sets",
        why: "its two lists are those of a set",
        breaks: |c| matches!(c.replacement, ReplacementChoice::WarmHotLru { .. }) && !has_sets_or_log(c),
    },
    Coupling {
        name: "mq-needs-mq",
        rule: "admission = mq needs replacement = mq of the same era",
        why: "the hits that a newcomer needs are formed from those of what is cached",
        breaks: |c| match (c.admission, c.replacement) {
            (AdmissionChoice::Mq(promotion), ReplacementChoice::Mq { era }) => promotion.era != era,
            (AdmissionChoice::Mq(_), _) => true,
            _ => false,
        },
    },
    Coupling {
        name: "smq-needs-smq",
        rule: "admission = smq-hotspot needs replacement = smq of the same version",
        why: "the level from which regions enter follows from how well replacement's queues do",
        breaks: |c| match (c.admission, c.replacement) {
            (AdmissionChoice::SmqHotspot(promotion), ReplacementChoice::Smq { version }) => {
                promotion.version != version
            }
            (AdmissionChoice::SmqHotspot(_), _) => true,
            _ => false,
        },
    },
    Coupling {
        name: "second-read-is-small",
        rule: "admission = second-read needs placement = log or slot_bytes = 4096",
        why: "it remembers blocks of 4 KiB",
        breaks: |c| {
            matches!(c.admission, AdmissionChoice::SecondRead(_))
                && !is_log(c)
                && u64::from(slot_bytes(c)) != BLOCK_BYTES
        },
    },
    Coupling {
        name: "idle-needs-ages",
        rule: "destage = idle needs replacement = mq or smq",
        why: "only they tell old frames from others",
        breaks: |c| {
            let tells_age =
                matches!(c.replacement, ReplacementChoice::Mq { .. } | ReplacementChoice::Smq { .. });
            matches!(c.destage, DestageChoice::Idle(_)) && !tells_age
        },
    },
    Coupling {
        name: "threshold-needs-sets",
        rule: "destage = threshold or threshold-sets needs ways above 0",
        why: "they count by set",
        breaks: |c| {
            matches!(c.destage, DestageChoice::Threshold(_) | DestageChoice::ThresholdSets(_)) && ways(c) == 0
        },
    },
    Coupling {
        name: "memory-needs-mirror",
        rule: "destage = mirror needs persistence = mirror",
        why: "what goes home is taken from memory",
        breaks: |c| {
            matches!(c.destage, DestageChoice::MirrorFill(_))
                && !matches!(c.persistence, PersistenceChoice::Mirror(_))
        },
    },
    Coupling {
        name: "mirror-needs-memory",
        rule: "persistence = mirror needs destage = mirror",
        why: "only that one follows how full memory is",
        breaks: |c| {
            matches!(c.persistence, PersistenceChoice::Mirror(_))
                && !matches!(c.destage, DestageChoice::MirrorFill(_))
        },
    },
    Coupling {
        name: "cleaner-needs-slots",
        rule: "destage = cleaner needs placement = slots",
        why: "it takes replacement's order, and the ring has none",
        breaks: |c| matches!(c.destage, DestageChoice::Cleaner(_)) && is_log(c),
    },
    Coupling {
        name: "cleaner-empties",
        rule: "destage = cleaner does not go with write_mode = writeback",
        why: "what it cleans would become dirty again",
        breaks: |c| matches!(c.destage, DestageChoice::Cleaner(_)) && c.write_mode == WriteMode::Writeback,
    },
    Coupling {
        name: "frame-needs-slots",
        rule: "fetch = frame or filled-request needs placement = slots",
        why: "the log has no frames that could be read wholly, and nobody waits for what it appends beside",
        breaks: |c| matches!(c.fetch, Fetch::Frame { .. } | Fetch::Filled) && is_log(c),
    },
    Coupling {
        name: "neighbourhood-needs-inline-or-frames",
        rule: "fetch = neighbourhood needs persistence = inline or frames",
        why: "the published systems read what was asked for, or slots wholly",
        breaks: |c| {
            let is_ours = matches!(c.persistence, PersistenceChoice::Inline | PersistenceChoice::Frames(_));
            matches!(c.fetch, Fetch::Neighbourhood { .. }) && !is_ours
        },
    },
    Coupling {
        name: "merge-needs-ring",
        rule: "writes = merge or merge-or-bypass needs placement = log without a journal",
        why: "whole blocks are appended with their header",
        breaks: |c| is_merge(c.writes) && !is_ring(c),
    },
    Coupling {
        name: "extents-need-journal",
        rule: "writes = extents needs persistence = journal",
        why: "extents lie in buckets",
        breaks: |c| matches!(c.writes, WritesChoice::Extents(_)) && !is_journal(c),
    },
    Coupling {
        name: "places-need-slots",
        rule: "writes = in-place, invalidate or both-if-clean needs placement = slots",
        why: "the log overwrites nothing",
        breaks: |c| !is_merge(c.writes) && !matches!(c.writes, WritesChoice::Extents(_)) && is_log(c),
    },
    Coupling {
        name: "both-needs-sync-sector",
        rule: "writes = both-if-clean needs persistence = sync-sector",
        why: "a crash between the two writes must forget the clean slot, which the others keep",
        breaks: |c| {
            matches!(c.writes, WritesChoice::BothIfClean(_))
                && !matches!(c.persistence, PersistenceChoice::SyncSector { .. })
        },
    },
    Coupling {
        name: "sets-have-small-slots",
        rule: "ways above 0 needs slot_bytes of 65536 at the most",
        why: "a set of larger slots is larger than what a few hot regions fill, and the rest passes by",
        breaks: |c| ways(c) > 0 && slot_bytes(c) > SMALL_SLOT_BYTES_MAX,
    },
    Coupling {
        name: "records-have-small-slots",
        rule: "persistence = sync-sector needs slot_bytes of 65536 at the most",
        why: "every partial write of a clean slot would go to the origin",
        breaks: |c| {
            matches!(c.persistence, PersistenceChoice::SyncSector { .. })
                && slot_bytes(c) > SMALL_SLOT_BYTES_MAX
        },
    },
    Coupling {
        name: "strict-needs-inline",
        rule: "order = strict needs persistence = inline",
        why: "what was overwritten stays in the ring until it is home",
        breaks: |c| is_strict(c) && c.persistence != PersistenceChoice::Inline,
    },
    Coupling {
        name: "strict-needs-sweep",
        rule: "order = strict needs destage = sweep",
        why: "a controller chooses blocks without regard to flushes",
        breaks: |c| is_strict(c) && !matches!(c.destage, DestageChoice::Sweep(_)),
    },
    Coupling {
        name: "strict-needs-writeback",
        rule: "order = strict needs write_mode = writeback",
        why: "in the other modes nothing is left behind whose order could matter",
        breaks: |c| is_strict(c) && c.write_mode != WriteMode::Writeback,
    },
    Coupling {
        name: "congestion-needs-runs",
        rule: "congestion needs runs",
        why: "it shortens the runs that may enter",
        breaks: |c| c.cutoff.congestion.is_some() && c.cutoff.runs.is_none(),
    },
    Coupling {
        name: "bucket-cutoffs-rise",
        rule: "cutoff_writeback_percent, cutoff_writeback_sync_percent and cutoff_add_percent do not fall",
        why: "each lets less enter than the one before",
        breaks: |c| match c.writes {
            WritesChoice::Extents(writes) => {
                writes.cutoff_writeback_percent > writes.cutoff_writeback_sync_percent
                    || writes.cutoff_writeback_sync_percent > writes.cutoff_add_percent
            }
            _ => false,
        },
    },
];
