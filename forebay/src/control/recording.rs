//! Answers of a recording.

use serde::{Deserialize, Serialize};

/// The beginning of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// Names of the volumes by number.
    pub volumes: Vec<Option<String>>,
    /// When it began, in microseconds since 1970.
    pub unix_us: u64,
}

/// A part of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedPart {
    /// Requests in the order of their arrival.
    pub requests: Vec<RecordedLine>,
    /// Requests that are missing, because the reader was too slow.
    pub dropped: u64,
}

/// A request: microseconds since the beginning; the number of the volume; `R`, `W`, `F`lush, `D`iscard or write
/// `Z`eroes; offset and length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedLine(pub u64, pub u8, pub char, pub u64, pub u64);
