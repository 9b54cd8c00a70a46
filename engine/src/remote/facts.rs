//! Facts about an export that its server states, and the verdict on whether it is the one that was there before.

use super::places::Place;
use crate::mutation::{Mutation, Mutations};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The properties and abilities of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its size, a whole number of sectors.
    pub size_bytes: u64,
    /// Bytes behind that.
    pub unused_bytes: u64,
    /// The smallest aligned transfer, at least 512.
    pub sector_bytes: u32,
    /// The longest read or write, a whole number of sectors.
    pub payload_bytes_max: u32,
    /// The name that the server gives it, if it says one.
    pub name: Option<String>,
    /// It cannot be changed.
    pub is_read_only: bool,
    /// A flush makes changes durable.
    pub can_flush: bool,
    /// A change can be durable by itself.
    pub can_fua: bool,
    /// It can drop a range.
    pub can_trim: bool,
    /// It can zero a range.
    pub can_zero: bool,
    /// A flush on one connection covers all.
    pub has_several_connections: bool,
}

/// Difference between an export that was found and the one that was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It is smaller.
    Shrunk {
        /// Its size before.
        before_bytes: u64,
        /// Its size now.
        now_bytes: u64,
    },
    /// The server calls it something else.
    Name {
        /// Its name before.
        before: String,
        /// Its name now.
        now: String,
    },
    /// Its sectors are larger.
    Sectors {
        /// Bytes of a sector before.
        before_bytes: u32,
        /// Bytes of a sector now.
        now_bytes: u32,
    },
    /// It cannot be changed any more.
    ReadOnly,
    /// It cannot make changes durable any more.
    NotDurable,
    /// A place by which it is recognised has another content.
    Content {
        /// Where the place is.
        offset_bytes: u64,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Shrunk { before_bytes, now_bytes } => {
                write!(f, "it has shrunk from {before_bytes} to {now_bytes} bytes")
            }
            Difference::Name { before, now } => write!(f, "it is called {now:?} and was called {before:?}"),
            Difference::Sectors { before_bytes, now_bytes } => {
                write!(f, "its smallest block is {now_bytes} bytes and was {before_bytes}")
            }
            Difference::ReadOnly => f.write_str("it is read-only now"),
            Difference::NotDurable => f.write_str("it cannot make writes durable any more"),
            Difference::Content { offset_bytes } => {
                write!(f, "byte {offset_bytes} and what follows have another content")
            }
        }
    }
}

impl Facts {
    /// Reason why an export with the facts `now` cannot be the one that had these, or cannot take its place.
    #[must_use]
    pub fn difference(&self, now: &Facts, mutations: Mutations) -> Option<Difference> {
        let (before_bytes, now_bytes) = (self.size_bytes, now.size_bytes);
        if now_bytes < before_bytes && !mutations.has(Mutation::RejoinShrunk) {
            return Some(Difference::Shrunk { before_bytes, now_bytes });
        }
        if let (Some(before), Some(now)) = (&self.name, &now.name)
            && before != now
        {
            return Some(Difference::Name { before: before.clone(), now: now.clone() });
        }
        let (before_bytes, now_bytes) = (self.sector_bytes, now.sector_bytes);
        if now_bytes > before_bytes {
            return Some(Difference::Sectors { before_bytes, now_bytes });
        }
        if now.is_read_only && !self.is_read_only {
            return Some(Difference::ReadOnly);
        }
        let is_less = self.can_flush && !now.can_flush || !self.can_flush && self.can_fua && !now.can_fua;
        is_less.then_some(Difference::NotDurable)
    }
}

/// Knowledge by which an export is recognised.
#[derive(Clone, Debug)]
pub struct Known {
    /// The facts about it.
    pub facts: Facts,
    /// Places of it, those that were written last first.
    pub places: Vec<Place>,
    pub(super) mutations: Mutations,
}

impl Known {
    /// Compares an export with this knowledge. `checksum_at` reads a block of it; nothing is written to it.
    ///
    /// # Errors
    /// The error of `checksum_at`.
    pub fn compare<E>(
        &self,
        now: &Facts,
        mut checksum_at: impl FnMut(u64) -> Result<u32, E>,
    ) -> Result<Result<(), Difference>, E> {
        if let Some(difference) = self.facts.difference(now, self.mutations) {
            return Ok(Err(difference));
        }
        // HAZARD 16: what comes back may be another disk, or an older copy of this one.
        let is_trusted = self.mutations.has(Mutation::RejoinAnother);
        for Place { offset_bytes, checksum } in self.places.iter().copied() {
            if !is_trusted && checksum_at(offset_bytes)? != checksum {
                return Ok(Err(Difference::Content { offset_bytes }));
            }
        }
        Ok(Ok(()))
    }
}
