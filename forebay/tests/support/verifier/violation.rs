//! Findings of a verifying client: what a broken promise is, and which errors are none.

use super::history::{Crash, Entry, Wrong};
use super::load::Kind;
use super::stamp::{Content, Damage};
use engine::effect::Errno;
use live::nbd::client::ClientError;
use std::fmt;
use std::ops::Range;
use std::time::Instant;

/// A broken promise.
#[derive(Debug)]
pub enum Violation {
    /// A sector is not what it may be.
    Content {
        /// The verifier's seed.
        seed: u64,
        /// The sector.
        sector: usize,
        /// What was read, if it is a version of the sector at all.
        read: Result<Content, Damage>,
        /// What is wrong with it, if it is.
        wrong: Option<Wrong>,
        /// When the read was asked for and when it was answered.
        read_time: Range<u64>,
        /// The last crash before.
        crash: Option<(Crash, u64)>,
        /// The operations that may still show in the sector.
        history: Vec<Entry>,
    },
    /// Reading everything met an error.
    Unreadable {
        /// The first sector of the read.
        sector: usize,
        /// The error.
        errno: Errno,
    },
    /// An error for which nothing that happened is a reason.
    Unexcused(Failure),
    /// The server misbehaves on the wire, or does not answer at all.
    Wire(ClientError),
}

/// An operation that was answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was asked for.
    pub kind: Kind,
    /// Whether it was to be durable before its reply.
    pub fua: bool,
    /// Its first sector.
    pub start: u64,
    /// Its sectors.
    pub sectors: u64,
    /// The error.
    pub errno: Errno,
    /// When it was sent.
    pub asked_at: Instant,
    /// When it was answered.
    pub answered_at: Instant,
}

/// Judges errors by what is known of the devices.
pub trait Excuses: Sync {
    /// Whether something explains the error.
    fn explain(&self, failure: &Failure) -> bool;

    /// A flush that was sent then was answered.
    fn flush_answered(&self, asked_at: Instant);
}

/// For servers whose devices nobody watches: any error may be.
pub struct AnyError;

impl Excuses for AnyError {
    fn explain(&self, _: &Failure) -> bool {
        true
    }

    fn flush_answered(&self, _: Instant) {}
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Content { seed, sector, read, wrong, read_time, crash, history } => {
                writeln!(f, "Sector {sector} reads as {read:?}, which is {wrong:?}; seed {seed}")?;
                writeln!(f, "  asked at {}, answered at {}", read_time.start, read_time.end)?;
                writeln!(f, "  last crash {crash:?}; what may show:")?;
                history.iter().try_for_each(|entry| writeln!(f, "  {entry:?}"))
            }
            Violation::Unreadable { sector, errno } => {
                write!(f, "Reading from sector {sector} on gives errno {}", errno.0)
            }
            Violation::Unexcused(failure) => {
                let Failure { kind, fua, start, sectors, errno, asked_at, answered_at } = failure;
                let took = answered_at.duration_since(*asked_at);
                write!(
                    f,
                    "{kind:?} of {sectors} sectors from {start} on (fua: {fua}) gives errno {} after {took:?}",
                    errno.0
                )?;
                write!(f, ", and no fault explains it")
            }
            Violation::Wire(error) => write!(f, "{error}: {error:?}"),
        }
    }
}

impl std::error::Error for Violation {}

impl From<ClientError> for Violation {
    fn from(error: ClientError) -> Violation {
        Violation::Wire(error)
    }
}
