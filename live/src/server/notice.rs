//! Notices: events that the operator should know.

use crate::devices::nbd::Event;
use crate::server::Refusal;
use engine::effect::{Notice, Target};
use std::fmt;
use std::io;

/// Event that the operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerNotice {
    /// Something the engine noticed.
    Engine(Notice),
    /// A device did not answer in time. It is not used any more until the next start.
    DeviceGone {
        /// The device.
        target: Target,
    },
    /// The server of an origin is away.
    OriginAway {
        /// The origin.
        target: Target,
        /// Why.
        reason: String,
    },
    /// The server of an origin serves something else now.
    OriginOther {
        /// The origin.
        target: Target,
        /// The difference.
        reason: String,
    },
    /// The server of an origin may have lost what it acknowledged and did not flush: the next flush fails.
    OriginLost {
        /// The origin.
        target: Target,
    },
    /// The server of an origin is back.
    OriginBack {
        /// The origin.
        target: Target,
        /// It was away for so long.
        away_ms: u64,
    },
    /// A client was sent away: as many are connected as can be.
    TooManyClients {
        /// The number of clients.
        clients: usize,
    },
    /// A client was refused for what it is.
    ClientRefused {
        /// Its address.
        peer: String,
        /// Why.
        refusal: Refusal,
    },
    /// The kernel refuses io_uring: threads do the work, and more slowly.
    NoIoUring {
        /// The system's error number.
        errno: i32,
    },
}

impl ServerNotice {
    pub(crate) fn of_export(target: Target, event: Event) -> ServerNotice {
        match event {
            Event::Away { reason } => ServerNotice::OriginAway { target, reason },
            Event::Other { reason } => ServerNotice::OriginOther { target, reason },
            Event::MayHaveLost => ServerNotice::OriginLost { target },
            Event::Back { away_ns } => ServerNotice::OriginBack { target, away_ms: away_ns / 1_000_000 },
        }
    }
}

impl fmt::Display for ServerNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |errno: i32| io::Error::from_raw_os_error(errno);
        match self {
            ServerNotice::Engine(Notice::OriginError { volume, errno }) => {
                write!(f, "the origin of volume {} failed and is tried again: {}", volume.0, said(errno.0))
            }
            ServerNotice::Engine(Notice::ChangesLost { volume, errno }) => write!(
                f,
                "the origin of volume {} may have lost what was not flushed, and the next FLUSH fails: {}",
                volume.0,
                said(errno.0)
            ),
            ServerNotice::Engine(Notice::CacheLatched { errno }) => {
                write!(f, "the cache failed and is not written any more: {}", said(errno.0))
            }
            ServerNotice::Engine(Notice::CacheSlow { usual_us, slow_us }) => write!(
                f,
                "the cache is slow: its reads take {slow_us} us instead of {usual_us}; they pass it by where the origin \
                 is faster"
            ),
            ServerNotice::Engine(Notice::CacheWell { passed_ms }) => {
                write!(f, "the cache is as fast as before and is used again, after {passed_ms} ms")
            }
            ServerNotice::Engine(Notice::CorruptClean { volume, block, errno }) => {
                write!(f, "cached block {block} of volume {} ", volume.0)?;
                match errno {
                    None => f.write_str("was corrupt but clean")?,
                    Some(errno) => write!(f, "was clean and could not be read ({})", said(errno.0))?,
                }
                f.write_str("; the origin serves it")
            }
            ServerNotice::Engine(Notice::Lost { volume, block }) => write!(
                f,
                "block {block} of volume {} is lost: it was not at the origin yet and its cached copy is corrupt",
                volume.0
            ),
            ServerNotice::Engine(Notice::DirtyUnread { volume, block, errno }) => write!(
                f,
                "block {block} of volume {} is not at the origin yet and could not be read ({})",
                volume.0,
                said(errno.0)
            ),
            ServerNotice::Engine(Notice::Uncached { volume }) => {
                write!(f, "volume {} goes on without its cache", volume.0)
            }
            ServerNotice::Engine(Notice::HalfLost { half, errno }) => write!(
                f,
                "half {} of the mirrored cache failed and is out: {}; the cache goes on with the other one",
                half.at() + 1,
                said(errno.0)
            ),
            ServerNotice::Engine(Notice::HalfBack { half }) => {
                write!(f, "half {} of the mirrored cache is back: both count", half.at() + 1)
            }
            ServerNotice::Engine(Notice::Drained { volume }) => {
                write!(f, "volume {} has no dirty data any more", volume.0)
            }
            ServerNotice::DeviceGone { target: Target::Origin(volume) } => {
                write!(f, "the origin of volume {} did not answer in time and counts as gone", volume.0)
            }
            ServerNotice::DeviceGone { .. } => {
                f.write_str("the cache did not answer in time and counts as gone")
            }
            ServerNotice::OriginAway { reason, .. } => {
                write!(f, "the origin is away: {reason}; it is looked for")
            }
            ServerNotice::OriginOther { reason, .. } => {
                write!(f, "the origin's server serves another disk, which is not used: {reason}")
            }
            ServerNotice::OriginLost { .. } => {
                write!(f, "the origin's server may have lost what was not flushed, and the next FLUSH fails")
            }
            ServerNotice::OriginBack { away_ms, .. } => {
                write!(f, "the origin is back after {}.{:03} s", away_ms / 1000, away_ms % 1000)
            }
            ServerNotice::TooManyClients { clients } => {
                write!(f, "a client was sent away: {clients} are connected, which is the most")
            }
            ServerNotice::ClientRefused { peer, refusal } => {
                write!(f, "the client at {peer} is refused: {refusal}")
            }
            ServerNotice::NoIoUring { errno } => {
                write!(f, "io_uring is not available ({}); threads are used, which is slower", said(*errno))
            }
        }
    }
}
