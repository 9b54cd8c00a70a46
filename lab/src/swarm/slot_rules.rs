//! Compositions of caches with slots in the swarm: together they use every variant of the slots' code.

use engine::composition::Composition;
use engine::units::BLOCK_BYTES;

/// Their number; higher numbers begin anew.
pub const SLOT_RULES: u64 = 6;

/// Settings by name.
type Settings = &'static [(&'static str, &'static str)];

const FLASHCACHE: Settings = &[
    ("writes", "invalidate"),
    ("destage", "threshold"),
    ("set_dirty_percent", "25"),
    ("free_order", "last-freed"),
    ("splits_requests", "true"),
];
const ENHANCEIO: Settings = &[
    ("writes", "both-if-clean"),
    ("destage", "threshold-sets"),
    ("replacement", "lru"),
    ("set_map", "masked"),
    ("all_or_nothing", "true"),
    ("splits_requests", "false"),
    ("rereads_whole", "true"),
];
const MQ: Settings = &[
    ("admission", "mq"),
    ("replacement", "mq"),
    ("promotion_era", "split"),
    ("mq_era", "split"),
    ("read_promote_adjustment", "1"),
    ("write_promote_adjustment", "1"),
    ("destage", "idle"),
    ("idle_era", "mq"),
    ("fetch", "frame"),
    ("waits", "true"),
];
const SMQ: Settings = &[
    ("admission", "smq-hotspot"),
    ("replacement", "smq"),
    ("destage", "idle"),
    ("fetch", "frame"),
    ("waits", "false"),
    ("splits_requests", "true"),
];
const MIXED: Settings = &[
    ("admission", "second-read"),
    ("cutoff", "runs"),
    ("replacement", "s3-fifo"),
    ("destage", "pi"),
    ("writes", "invalidate"),
];

/// The composition of a number, with slots of so many blocks and sets of so many ways as far as it allows them.
/// `None`: there are no such slots.
pub(super) fn slot_rules(rules: u64, slot_blocks: u64, ways: u64) -> Option<Composition> {
    let (settings, ways, slot_blocks) = match rules % SLOT_RULES {
        1 => (FLASHCACHE, ways.max(4), slot_blocks),
        2 => (ENHANCEIO, ways.max(4), slot_blocks),
        3 => (MQ, 0, slot_blocks),
        4 => (SMQ, 0, slot_blocks),
        5 => (MIXED, 0, slot_blocks.min(1)),
        _ => (&[] as Settings, ways, slot_blocks),
    };
    let mut composition = Composition::plain_slots();
    for (name, value) in settings {
        composition.set(name, value).expect("names and values of the tables");
    }
    let slot_bytes = slot_blocks.saturating_mul(BLOCK_BYTES);
    for (name, value) in [("slot_bytes", slot_bytes), ("ways", ways)] {
        composition.set(name, &value.to_string()).ok()?;
    }
    composition.validate().is_ok().then_some(composition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rules_are_possible() {
        for rules in 0..SLOT_RULES {
            for (slot_blocks, ways) in [(1, 0), (1, 64), (16, 0), (16, 16)] {
                assert!(slot_rules(rules, slot_blocks, ways).is_some(), "{rules} {slot_blocks} {ways}");
            }
        }
        assert!(slot_rules(0, 64, 16).is_none() && slot_rules(0, u64::MAX, 0).is_none());
    }
}
