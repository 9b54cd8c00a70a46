//! The promise of a composition for power cuts and crashes of the process, as data.
//!
//! With `safe`, the default, that is always what a disk promises ([`Contract::process`] all, no device
//! needs power-loss protection); what differs is what the cache still knows. Without it a composition
//! behaves as the system it was taken from, and [`Contract::gives_up`] says what that costs.

use super::Composition;
use super::axes::{BitTree, Commit, PersistenceChoice};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Acknowledged writes without a flush that survive when the process alone dies.
    pub process: Keeps,
    /// An acknowledged flush is worth nothing unless the cache device keeps what it acknowledged.
    pub cache_needs_plp: bool,
    /// A block that went home is safe only if the origin keeps what it acknowledged.
    pub origin_needs_plp: bool,
    /// The state of the cache after a power cut.
    pub aftermath: Aftermath,
    /// When it is noticed that a cached block rotted.
    pub rot: Rot,
}

/// The acknowledged writes that survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// All.
    All,
    /// All but the newest few.
    AllButNewest {
        /// How many may be lost.
        writes: u32,
    },
    /// All but those of the last moments.
    AllButLast {
        /// How long before the crash.
        within_ms: u32,
    },
}

/// The state of the cache after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aftermath {
    /// All writes up to some point, and all dirty data.
    Prefix,
    /// Dirty blocks; clean data is forgotten.
    DirtyKept,
    /// All that was cached; everything counts as dirty and is written home.
    AllDirty,
    /// All cached data; pieces below a marked leaf count as dirty.
    DirtySuperset {
        /// Pieces below a finest leaf.
        leaf_pieces: u32,
        /// Finest leaves.
        leaves: u32,
    },
}

/// When rot of a cached block is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rot {
    /// At every read.
    Always,
    /// At every read, but of slots near those that were written in the second before a crash.
    Areas,
    /// At reads of data written since the start, or before a clean stop; not across a crash.
    Session,
}

impl fmt::Display for Keeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keeps::All => f.write_str("all acknowledged writes"),
            Keeps::AllButNewest { writes } => write!(f, "all acknowledged writes but the newest {writes}"),
            Keeps::AllButLast { within_ms } => {
                write!(f, "all acknowledged writes but those of the last {within_ms} ms")
            }
        }
    }
}

impl fmt::Display for Aftermath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Aftermath::Prefix => f.write_str("everything cached, and what of it is dirty"),
            Aftermath::DirtyKept => f.write_str("what is dirty; clean data is forgotten"),
            Aftermath::AllDirty => f.write_str("everything cached, all of it as dirty"),
            Aftermath::DirtySuperset { leaf_pieces, leaves } => write!(
                f,
                "everything cached; as dirty what is near something dirty \
                 (at the finest {leaf_pieces} pieces, {leaves} leaves)"
            ),
        }
    }
}

impl fmt::Display for Rot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rot::Always => "at every read",
            Rot::Areas => "at every read, but near slots that were written in the second before a crash",
            Rot::Session => "at reads of what was written since the start or before a clean stop",
        })
    }
}

impl Composition {
    /// Its promise.
    #[must_use]
    pub fn contract(&self) -> Contract {
        let kept = |aftermath, rot| Contract {
            process: Keeps::All,
            cache_needs_plp: false,
            origin_needs_plp: false,
            aftermath,
            rot,
        };
        // Most published systems take unflushed data of the origin for clean.
        let careless = |contract: Contract| Contract { origin_needs_plp: !self.safe, ..contract };
        let in_slots = if self.safe { Rot::Areas } else { Rot::Session };
        match self.persistence {
            PersistenceChoice::Inline | PersistenceChoice::Frames(_) => kept(Aftermath::Prefix, Rot::Always),
            PersistenceChoice::Journal(journal) => Contract {
                process: self.unless_safe(Keeps::AllButLast { within_ms: journal.journal_delay_ms }),
                ..careless(kept(Aftermath::Prefix, Rot::Always))
            },
            PersistenceChoice::SyncSector { .. } => {
                Contract { cache_needs_plp: !self.safe, ..careless(kept(Aftermath::DirtyKept, in_slots)) }
            }
            PersistenceChoice::Commit(commit) => Contract {
                process: self.keeps_mappings(commit),
                ..careless(kept(Aftermath::AllDirty, in_slots))
            },
            PersistenceChoice::BitTree(BitTree { commit, tree_levels, leaf_pieces, .. }) => {
                let aftermath = Aftermath::DirtySuperset { leaf_pieces, leaves: 1 << tree_levels };
                Contract { process: self.keeps_mappings(commit), ..careless(kept(aftermath, in_slots)) }
            }
            PersistenceChoice::Mirror(mirror) => Contract {
                process: self.unless_safe(match mirror.early_ack_writes {
                    0 => Keeps::All,
                    writes => Keeps::AllButNewest { writes },
                }),
                ..kept(Aftermath::Prefix, Rot::Always)
            },
        }
    }

    fn unless_safe(&self, keeps: Keeps) -> Keeps {
        if self.safe { Keeps::All } else { keeps }
    }

    /// Where a promotion does not wait for its commit, data written to it may be lost with its mapping.
    fn keeps_mappings(&self, commit: Commit) -> Keeps {
        let waits = commit.commits_promotions;
        self.unless_safe(if waits { Keeps::All } else { Keeps::AllButLast { within_ms: commit.commit_ms } })
    }
}

impl Contract {
    /// The promises of `other` that it does not make, a line for each.
    #[must_use]
    pub fn gives_up(&self, other: &Contract) -> Vec<String> {
        let mut lines = Vec::new();
        if self.process != other.process {
            lines.push(alloc::format!("a crash, of the process too, keeps {}", self.process));
        }
        if self.cache_needs_plp && !other.cache_needs_plp {
            lines
                .push("FLUSH does not wait for the cache device: it needs power-loss protection".to_string());
        }
        if self.origin_needs_plp && !other.origin_needs_plp {
            lines.push(
                "what went home is dropped before the origin flushed it: the origin needs \
                 power-loss protection"
                    .to_string(),
            );
        }
        if self.rot != other.rot {
            lines.push("after a crash rot of a cached block is read as data, and goes home".to_string());
        }
        lines
    }
}
