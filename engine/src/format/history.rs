//! The last changes of a cache's settings, kept in its superblock.
//!
//! ```text
//!   448·n + 0    u8 1 for a change, 0 for none · u8 lengths of the four texts · u64 seconds since 1970 at 8
//!   448·n + 16   volume (64) · what (48) · old value (160) · new value (160)
//! ```

use super::FormatError;
use super::bytes::{put, u8_at, u64_at};
use crate::number::to_u8;
use alloc::string::String;
use alloc::vec::Vec;

/// Changes that are kept: the oldest one goes first.
pub const CHANGES_MAX: usize = 8;
/// Bytes of a change.
const CHANGE_BYTES: usize = 448;
/// Bytes of a history.
pub(super) const HISTORY_BYTES: usize = CHANGES_MAX * CHANGE_BYTES;

const SECONDS_AT: usize = 8;
/// The texts of a change: where each begins, and its bytes at the most.
const TEXTS: [(usize, usize); 4] = [(16, 64), (80, 48), (128, 160), (288, 160)];

/// One change of a setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// When, in seconds since 1970; 0 where nobody told.
    pub unix_seconds: u64,
    /// The volume, or empty for the cache itself.
    pub volume: String,
    /// The setting.
    pub what: String,
    /// The value before; empty if there was none.
    pub old: String,
    /// The value after; empty if there is none.
    pub new: String,
}

/// The last changes, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    changes: Vec<Change>,
}

impl Change {
    /// A change of a volume, or of the cache if that is empty. A text that is too long loses its beginning, which of a path
    /// tells less than its end.
    #[must_use]
    pub fn new(unix_seconds: u64, volume: &str, what: &str, old: &str, new: &str) -> Change {
        let [volume, what, old, new] = [volume, what, old, new].map(String::from);
        let mut change = Change { unix_seconds, volume, what, old, new };
        for (text, (_, most)) in change.texts_mut().into_iter().zip(TEXTS) {
            text.retain(|character| !character.is_control());
            let mut from = text.len().saturating_sub(most);
            while !text.is_char_boundary(from) {
                from += 1;
            }
            text.drain(..from);
        }
        change
    }

    fn texts(&self) -> [&String; 4] {
        [&self.volume, &self.what, &self.old, &self.new]
    }

    fn texts_mut(&mut self) -> [&mut String; 4] {
        [&mut self.volume, &mut self.what, &mut self.old, &mut self.new]
    }

    fn encode(&self, bytes: &mut [u8]) {
        bytes[0] = 1;
        put(bytes, SECONDS_AT, &self.unix_seconds.to_le_bytes());
        for (at, (text, (start, _))) in self.texts().into_iter().zip(TEXTS).enumerate() {
            bytes[1 + at] = to_u8(text.len());
            put(bytes, start, text.as_bytes());
        }
    }

    fn decode(bytes: &[u8]) -> Result<Option<Change>, FormatError> {
        match u8_at(bytes, 0)? {
            0 => return Ok(None),
            1 => (),
            _ => return Err(FormatError::Field("history")),
        }
        let mut change = Change { unix_seconds: u64_at(bytes, SECONDS_AT)?, ..Change::default() };
        for (at, (text, (start, most))) in change.texts_mut().into_iter().zip(TEXTS).enumerate() {
            let len = usize::from(u8_at(bytes, 1 + at)?);
            let found = bytes.get(start..start + len).filter(|_| len <= most);
            let found = found.and_then(|found| core::str::from_utf8(found).ok());
            let found = found.filter(|found| !found.contains(char::is_control));
            *text = found.ok_or(FormatError::Field("history"))?.into();
        }
        Ok(Some(change))
    }
}

impl History {
    /// Notes a change, and forgets the oldest one where there is no room. One that changes nothing is none.
    pub fn note(&mut self, change: Change) {
        if change.old == change.new {
            return;
        }
        if self.changes.len() == CHANGES_MAX {
            self.changes.remove(0);
        }
        self.changes.push(change);
    }

    /// The changes, oldest first.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub(super) fn encode(&self, bytes: &mut [u8]) {
        for (change, place) in self.changes.iter().zip(bytes.chunks_exact_mut(CHANGE_BYTES)) {
            change.encode(place);
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<History, FormatError> {
        let mut changes = Vec::new();
        for place in bytes.chunks_exact(CHANGE_BYTES) {
            changes.extend(Change::decode(place)?);
        }
        Ok(History { changes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn the_last_changes_are_read_as_they_were_noted() {
        let mut history = History::default();
        for number in 0..CHANGES_MAX as u64 + 3 {
            let new = std::format!("{number}");
            history.note(Change::new(number, "disk", "mode", "before", &new));
        }
        history.note(Change::new(99, "disk", "mode", "same", "same"));
        assert_eq!(history.changes().len(), CHANGES_MAX);
        assert_eq!(history.changes()[0].new, "3", "the oldest are forgotten");
        let mut bytes = vec![0; HISTORY_BYTES];
        history.encode(&mut bytes);
        assert_eq!(History::decode(&bytes), Ok(history));
        assert_eq!(History::decode(&[0; HISTORY_BYTES]), Ok(History::default()), "older caches have none");
    }

    #[test]
    fn long_texts_keep_their_ends_and_hostile_bytes_are_refused() {
        let path = std::format!("/{}/é{}", "x".repeat(300), "y".repeat(150));
        let change = Change::new(1, "disk", "origin", "a\nb", &path);
        assert_eq!(change.old, "ab");
        assert!(change.new.len() <= 160 && path.ends_with(&change.new));
        let mut bytes = vec![0; HISTORY_BYTES];
        for (at, byte) in [(0, 2), (0, 1)] {
            bytes[at] = byte;
            bytes[1] = if byte == 1 { 65 } else { 0 };
            assert_eq!(History::decode(&bytes), Err(FormatError::Field("history")));
        }
        bytes[1] = 1;
        bytes[16] = 0xff;
        assert_eq!(History::decode(&bytes), Err(FormatError::Field("history")), "not UTF-8");
    }
}
