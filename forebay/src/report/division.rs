//! Division of a cache device into segments, slots or buckets, as reports say it.

use crate::output::Size;
use engine::format::Layout;
use engine::units::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Division of a cache device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Division {
    /// Into segments of a log.
    Segments {
        /// Number of slots.
        segments: u32,
        /// Bytes of one.
        segment_bytes: u64,
    },
    /// Into segments of a log for keys, and buckets.
    Buckets {
        /// Number of segments.
        segments: u32,
        /// Bytes of one.
        segment_bytes: u64,
        /// Number of buckets.
        buckets: u32,
        /// Bytes of one.
        bucket_bytes: u64,
    },
    /// Into segments of a log, and frames.
    Frames {
        /// Number of segments.
        segments: u32,
        /// Bytes of one.
        segment_bytes: u64,
        /// Number of frames.
        frames: u64,
        /// Bytes of one.
        frame_bytes: u64,
    },
    /// Into slots.
    Slots {
        /// Number of slots.
        slots: u32,
        /// Bytes of one.
        slot_bytes: u64,
        /// Slots of a set; 0: there are no sets.
        ways: u32,
    },
}

impl From<&Layout> for Division {
    fn from(layout: &Layout) -> Division {
        match layout {
            Layout::Log(geometry) => {
                Division::Segments { segments: geometry.segments, segment_bytes: geometry.segment_bytes() }
            }
            Layout::Keys(keys) => Division::Buckets {
                segments: keys.geometry.segments,
                segment_bytes: keys.geometry.segment_bytes(),
                buckets: keys.buckets,
                bucket_bytes: u64::from(keys.bucket_blocks) * BLOCK_BYTES,
            },
            Layout::Frames(layout) => Division::Frames {
                segments: layout.geometry.segments,
                segment_bytes: layout.geometry.segment_bytes(),
                frames: u64::from(layout.buckets) * u64::from(layout.bucket_blocks),
                frame_bytes: BLOCK_BYTES,
            },
            Layout::Slots(slots) => Division::Slots {
                slots: slots.shape().frames,
                slot_bytes: slots.slot_bytes(),
                ways: slots.ways(),
            },
        }
    }
}

impl fmt::Display for Division {
    /// `64 segments of 512 KiB`, `7680 slots of 4 KiB in sets of 512`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Division::Segments { segments, segment_bytes } => {
                write!(f, "{segments} segments of {}", Size(segment_bytes))
            }
            Division::Buckets { segments, segment_bytes, buckets, bucket_bytes } => {
                let (segment, bucket) = (Size(segment_bytes), Size(bucket_bytes));
                write!(f, "{buckets} buckets of {bucket}, keys in {segments} segments of {segment}")
            }
            Division::Frames { segments, segment_bytes, frames, frame_bytes } => {
                let (segment, frame) = (Size(segment_bytes), Size(frame_bytes));
                write!(f, "{frames} frames of {frame}, a ring of {segments} segments of {segment}")
            }
            Division::Slots { slots, slot_bytes, ways } => {
                write!(f, "{slots} slots of {}", Size(slot_bytes))?;
                if ways > 0 { write!(f, " in sets of {ways}") } else { Ok(()) }
            }
        }
    }
}
