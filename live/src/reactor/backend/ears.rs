//! Ears: what others send to this process without being asked by the ring, heard by a reactor's own thread at a time when
//! it does not hold up the others.
//!
//! The ring only says that something has come; reading it is the ear's own affair. What it hears it keeps for the next
//! turn.

use crate::reactor::backend::Token;
use slab::Slab;
use std::os::fd::RawFd;

/// Set in the token of the poll for an ear; no owner's token has it.
const AT_EAR: u64 = 1 << 62;

/// A place where something comes that nobody reads but a reactor.
pub(crate) trait Ear {
    /// The descriptor that is ready when something has come. It stays open as long as the ear is there.
    fn descriptor(&self) -> RawFd;
    /// Hears what has come, without waiting. False if it is not to be called again.
    fn hear(&self) -> bool;
}

/// The ears of a reactor.
#[derive(Default)]
pub(super) struct Ears {
    ears: Slab<Box<dyn Ear>>,
}

impl Ears {
    /// Takes an ear; returns the token of the poll for it.
    pub(super) fn add(&mut self, ear: Box<dyn Ear>) -> Token {
        Token(AT_EAR | self.ears.insert(ear) as u64)
    }

    /// Whether there is one with that descriptor.
    pub(super) fn have(&self, descriptor: RawFd) -> bool {
        self.ears.iter().any(|(_, ear)| ear.descriptor() == descriptor)
    }

    /// The number of ears. For each there is a poll.
    pub(super) fn len(&self) -> usize {
        self.ears.len()
    }

    /// Whether the token is that of a poll for an ear.
    pub(super) fn is_for_ear(token: Token) -> bool {
        token.0 & AT_EAR != 0
    }

    /// Lets an ear hear, the poll for which has ended; its descriptor, if it wants another one.
    pub(super) fn hear(&mut self, token: Token) -> Option<RawFd> {
        let place = usize::try_from(token.0 & !AT_EAR).expect("a place of ours");
        if self.ears[place].hear() {
            return Some(self.ears[place].descriptor());
        }
        self.ears.remove(place);
        None
    }
}
