//! Control socket: the protocol between the verbs and a running daemon. One unix socket for each cache, one line of
//! JSON for each question, one or more lines of JSON as the answer.

mod client;
mod recording;
mod scrubbed;
mod server;

pub use client::Connection;
pub use recording::{RecordedLine, RecordedPart, Recording};
pub use scrubbed::{Damage, DamagedRange, Scrubbed};
pub use server::{Answering, Listener, SocketFile};

use crate::addition::{Added, Wish};
use crate::attachment::{AttachOptions, Attached};
use crate::output::Size;
use crate::report::{AdviceReport, StatsReport, StatusReport};
use crate::running::halves::{RejoinWish, Rejoined};
use crate::running::succession::{ReplaceWish, Succeeded};
use crate::setting::Setting;
use engine::units::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The longest question in bytes: the names of an origin, twice, are far shorter.
const QUESTION_BYTES_MAX: u64 = 16 << 10;

/// Answer to a question that a daemon of another version does not know.
const NOT_UNDERSTOOD: &str = "the daemon does not understand the question";

/// Question to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Question {
    /// Its status report.
    Status,
    /// Its statistics.
    Stats,
    /// Advice from its load.
    Advice,
    /// A recording of what clients ask for, from now on until the connection ends.
    Record,
    /// Change a volume; the only one if it is not named.
    Set {
        /// The volume.
        volume: Option<String>,
        /// The change.
        setting: Setting,
    },
    /// Change a volume in several ways, or in none if one of them is refused beforehand.
    SetAll {
        /// The volume.
        volume: Option<String>,
        /// The changes.
        settings: Vec<Setting>,
    },
    /// Bring dirty data home; of all volumes if none is named.
    Flush {
        /// The volume.
        volume: Option<String>,
    },
    /// Bring dirty data home and take the volume off; the only one if it is not named.
    Detach {
        /// The volume.
        volume: Option<String>,
        /// Compare it with its origin before.
        verify: bool,
    },
    /// Put one more volume on the cache.
    Add {
        /// The volume.
        wish: Wish,
    },
    /// Put another device in the place of the cache.
    Replace {
        /// The device.
        wish: ReplaceWish,
    },
    /// Put a device in the place of the half of a mirrored cache that is out.
    Rejoin {
        /// The device.
        wish: RejoinWish,
    },
    /// Give the cache another size.
    Resize {
        /// The size; absent for that of its device.
        wanted_bytes: Option<u64>,
    },
    /// Fill the cache with what a warm list names.
    Warm {
        /// The volume; all that the list names if none is named.
        volume: Option<String>,
        /// The list; the one that is kept of the cache if none is named.
        list: Option<PathBuf>,
        /// Bytes that are read in a second at the most.
        rate_bytes: u64,
    },
    /// Compare all that is cached with its checksums.
    Scrub {
        /// Bytes that are read in a second at the most.
        rate_bytes: u64,
    },
    /// Make a device of a volume; the only one if it is not named.
    Attach {
        /// The volume.
        volume: Option<String>,
        /// How.
        options: AttachOptions,
    },
    /// Take the device of a volume away; of the only one if it is not named.
    Unattach {
        /// The volume.
        volume: Option<String>,
    },
}

impl Question {
    /// Whether it changes nothing.
    #[must_use]
    pub fn only_looks(&self) -> bool {
        matches!(self, Question::Status | Question::Stats | Question::Advice)
    }
}

/// Answer of a daemon. [`Answer::Progress`] may come any number of times before the last one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// Progress of a long job.
    Progress(Progress),
    /// Its status report.
    Status(Box<StatusReport>),
    /// Its statistics.
    Stats(Box<StatsReport>),
    /// Advice from its load.
    Advice(Box<AdviceReport>),
    /// A recording has begun; parts of it follow.
    Recording(Recording),
    /// A part of a recording.
    Recorded(RecordedPart),
    /// It is set.
    Set,
    /// The dirty data is home.
    Flushed(Flushed),
    /// The volume is off the cache.
    Detached(Detached),
    /// The volume is on the cache, and offered to clients.
    Added(Added),
    /// Another device is the cache, or the cache has another size.
    Succeeded(Succeeded),
    /// Both halves of the mirrored cache count.
    Rejoined(Rejoined),
    /// The cache is warm.
    Warmed(Warmed),
    /// All that is cached was compared with its checksums.
    Scrubbed(Scrubbed),
    /// The volume has a device.
    Attached(Attached),
    /// It has none any more.
    Unattached(Attached),
    /// It could not be done.
    Refused {
        /// Why, in one line.
        why: String,
    },
}

/// Progress of a long job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The volume.
    pub volume: String,
    /// Phase of the job.
    pub phase: Phase,
    /// Bytes that are left.
    pub left_bytes: u64,
    /// The reason why nothing goes on; absent if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// A part of a long job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Dirty data goes home.
    Flushing,
    /// The cache's content is compared with the origin.
    Comparing,
    /// The cache is filled from the origin.
    Warming,
    /// The cache's content is compared with its checksums.
    Scrubbing,
    /// The cache's content is copied to a half.
    Copying,
}

/// Result of `warm`, in blocks of 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warmed {
    /// Blocks that were named.
    pub listed_blocks: u64,
    /// Blocks that were read from origins, those that failed included.
    pub read_blocks: u64,
    /// Blocks of these that the cache has now.
    pub cached_blocks: u64,
    /// Blocks that were cached already.
    pub skipped_blocks: u64,
    /// Blocks that an origin could not read.
    pub failed_blocks: u64,
    /// Blocks for which the cache had no room left.
    pub without_room_blocks: u64,
}

impl fmt::Display for Warmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |blocks: u64| Size(blocks * BLOCK_BYTES);
        write!(
            f,
            "{} read, {} of that are cached now, {} were cached already",
            size(self.read_blocks),
            size(self.cached_blocks),
            size(self.skipped_blocks)
        )?;
        if self.failed_blocks > 0 {
            write!(f, ", {} could not be read", size(self.failed_blocks))?;
        }
        if self.without_room_blocks > 0 {
            write!(f, ", for {} there was no room", size(self.without_room_blocks))?;
        }
        Ok(())
    }
}

/// Result of `flush`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    /// The volumes whose data is home.
    pub volumes: Vec<String>,
    /// Bytes that were dirty at the beginning.
    pub dirty_bytes: u64,
}

/// Result of `detach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The volume.
    pub volume: String,
    /// Its origin, which holds all of its data now.
    pub origin: String,
    /// Bytes that were compared and found equal; absent if that was not asked for.
    pub verified_bytes: Option<u64>,
    /// Where the configuration of the daemon names the volume still: a file and a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured_at: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_one_line_and_read_back() {
        let question = Question::Set { volume: Some("a".to_owned()), setting: Setting::SizeOfOrigin };
        let text = serde_json::to_string(&question).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<Question>(&text).unwrap(), question);
    }
}
