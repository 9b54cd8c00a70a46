//! The compositions that the engine carries out: one table, by persistence.
//!
//! A choice that a store has learned is added here; then every profile that names it can be run.

use super::Composition;
use super::axes::Axis;
use super::keys::{Key, Value};
use core::fmt;

/// The choices that are carried out with one choice of [`Axis::Persistence`].
struct Support {
    persistence: &'static str,
    /// On each axis that is named the choices that are carried out; on the others all that couplings allow.
    choices: &'static [(Axis, &'static [&'static str])],
    /// Tunables that nothing looks at yet: only this value is carried out.
    fixed: &'static [(&'static str, u64)],
}

/// Only a journal has the buckets that these are about.
const BUCKETS: [(&str, u64); 4] = [
    ("considers_fragments", 1),
    ("fragment_term_low", 1),
    ("fragment_term_mid", 10),
    ("fragment_term_high", 1000),
];
/// Slots have no record of discards, read nothing ahead, and are no buckets.
const SLOTS_FIXED: &[(&str, u64)] = &[
    ("readahead_bytes", 0),
    ("discard_promote_adjustment", 1),
    BUCKETS[0],
    BUCKETS[1],
    BUCKETS[2],
    BUCKETS[3],
];

/// All that is carried out. A choice of persistence without a row is not.
const SUPPORT: &[Support] = &[
    Support {
        persistence: "inline",
        choices: &[
            (Axis::Admission, &["always", "second-read", "room-or-second-read"]),
            (Axis::Replacement, &["fifo-reinsertion"]),
            (Axis::Destage, &["sweep", "pi"]),
            (Axis::Fetch, &["request", "neighbourhood"]),
        ],
        fixed: &[("ghost_pieces", 0), ("readahead_bytes", 0), BUCKETS[0], BUCKETS[1], BUCKETS[2], BUCKETS[3]],
    },
    Support {
        persistence: "journal",
        choices: &[
            (Axis::Admission, &["always", "second-read", "room-or-second-read"]),
            (Axis::Destage, &["sweep", "pi"]),
            (Axis::Fetch, &["request"]),
        ],
        fixed: &[("ghost_pieces", 0), ("readahead_bytes", 0)],
    },
    Support {
        persistence: "frames",
        choices: &[
            (Axis::Admission, &["always"]),
            (Axis::Destage, &["sweep", "pi"]),
            (Axis::Fetch, &["request", "neighbourhood"]),
        ],
        fixed: &[("ghost_pieces", 0), ("readahead_bytes", 0), BUCKETS[0], BUCKETS[1], BUCKETS[2], BUCKETS[3]],
    },
    Support {
        persistence: "mirror",
        choices: &[
            (Axis::Admission, &["always", "second-read", "room-or-second-read"]),
            (Axis::Replacement, &["fifo-reinsertion"]),
            (Axis::Fetch, &["request"]),
        ],
        fixed: &[
            ("ghost_pieces", 0),
            ("keeps_written", 1),
            ("readahead_bytes", 0),
            BUCKETS[0],
            BUCKETS[1],
            BUCKETS[2],
            BUCKETS[3],
        ],
    },
    Support { persistence: "sync-sector", choices: &[], fixed: SLOTS_FIXED },
    Support { persistence: "commit", choices: &[], fixed: SLOTS_FIXED },
    Support { persistence: "bit-tree", choices: &[], fixed: SLOTS_FIXED },
];

/// Something that a composition has and the engine does not carry out yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A choice.
    Choice {
        /// On which axis.
        axis: Axis,
        /// Its name.
        choice: &'static str,
    },
    /// The value of a tunable.
    Tunable {
        /// The key.
        key: &'static Key,
        /// Its value.
        value: Value,
    },
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::Choice { axis, choice } => write!(f, "{} = {choice}", axis.name()),
            Lack::Tunable { key, value } => write!(f, "{} = {value}", key.name),
        }
    }
}

impl Composition {
    /// The first thing that the engine does not carry out yet; `None`: a cache of this kind can be run.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        let persistence = self.choice(Axis::Persistence).name;
        let Some(support) = SUPPORT.iter().find(|support| support.persistence == persistence) else {
            return Some(Lack::Choice { axis: Axis::Persistence, choice: persistence });
        };
        for (axis, choices) in support.choices {
            let choice = self.choice(*axis).name;
            if !choices.contains(&choice) {
                return Some(Lack::Choice { axis: *axis, choice });
            }
        }
        support.fixed.iter().find_map(|(name, only)| {
            let key = Key::named(name).expect("a test looks at the names");
            let value = key.get(self).filter(|value| value != only)?;
            Some(Lack::Tunable { key, value: key.show(value) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::composition::points::points;

    #[test]
    fn the_table_names_what_there_is() {
        for support in SUPPORT {
            assert!(Axis::Persistence.choice(support.persistence).is_some(), "{}", support.persistence);
            for (axis, choices) in support.choices {
                for choice in *choices {
                    assert!(axis.choice(choice).is_some(), "{choice}");
                }
            }
            for (name, only) in support.fixed {
                let key = Key::named(name).expect("it exists");
                assert!((key.least..=key.most).contains(only), "{name}");
            }
        }
    }

    /// Goal: nothing is refused without a name, and our own runs. Method: every possible point.
    #[test]
    fn what_is_lacking_has_a_name() {
        assert_eq!(Composition::forebay().lack(), None);
        let mut idle = Composition::plain_log();
        idle.set("idle_ms", "400").expect("in range");
        assert_eq!(idle.lack(), None, "the engine obeys it");
        idle.set("readahead_bytes", "4096").expect("in range");
        assert_eq!(idle.lack().map(|lack| std::format!("{lack}")).as_deref(), Some("readahead_bytes = 4096"));
        let refused = |composition: &mut Composition, name, value| {
            composition.set(name, value).expect("in range");
            composition.lack().map(|lack| std::format!("{lack}"))
        };
        let mut mq = Composition::plain_slots();
        for (name, value) in [("ways", "0"), ("admission", "mq"), ("replacement", "mq"), ("destage", "pi")] {
            assert_eq!(refused(&mut mq, name, value), None);
        }
        assert_eq!(refused(&mut mq, "d_term", "20"), None);
        let discards = "discard_promote_adjustment = 2";
        assert_eq!(refused(&mut mq, "discard_promote_adjustment", "2").as_deref(), Some(discards));
        assert_eq!(refused(&mut mq, "discard_promote_adjustment", "1"), None);
        let fragments = "considers_fragments = false";
        assert_eq!(refused(&mut mq, "considers_fragments", "false").as_deref(), Some(fragments));
        let (mut run, mut lacking) = (0, 0);
        for point in points().filter(|point| point.validate().is_ok()) {
            match point.lack() {
                None => run += 1,
                Some(Lack::Choice { axis, choice }) => {
                    assert_eq!(point.choice(axis).name, choice);
                    lacking += 1;
                }
                Some(Lack::Tunable { .. }) => lacking += 1,
            }
        }
        assert!(run > 0 && lacking == 0, "{run} run, {lacking} do not");
    }
}
