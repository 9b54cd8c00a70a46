//! The place of a cache in a line of caches that took each other's places.
//!
//! ```text
//!   0    u8 kind: 0 none, 1 heir, 2 replaced, 3 remade · u8 whether there is an ancestor · u8 whether all is home
//!   8    u64 bytes of the cache that it is made anew as
//!   16   set id of the other cache (16) · ancestor (16)
//! ```

use super::bytes::{array, put, u8_at, u64_at};
use super::{FormatError, SetId};

/// Bytes of a [`Line`].
pub(super) const LINE_BYTES: usize = 48;

/// The fate of a cache in its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Succession {
    /// It is a cache like any other.
    #[default]
    None,
    /// It waits to take the place of another one: it has no volumes yet.
    Heir {
        /// The other one.
        of: SetId,
    },
    /// Another one took its place: it is never to be believed again.
    Replaced {
        /// The other one.
        by: SetId,
    },
    /// It is made anew on its own device: what is on it besides its superblock is void.
    Remade {
        /// The set id of the new cache.
        by: SetId,
        /// Its size.
        cache_bytes: u64,
    },
}

/// The place of a cache in its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Its fate.
    pub succession: Succession,
    /// The first cache of the line, if this one took the place of another: devices of volumes are known by it.
    pub ancestor: Option<SetId>,
    /// Whether nothing dirty was left at the last clean stop. Says nothing without that.
    pub is_home: bool,
}

impl Line {
    pub(super) fn encode(&self, bytes: &mut [u8]) {
        let (kind, other, cache_bytes) = match self.succession {
            Succession::None => (0, SetId::default(), 0),
            Succession::Heir { of } => (1, of, 0),
            Succession::Replaced { by } => (2, by, 0),
            Succession::Remade { by, cache_bytes } => (3, by, cache_bytes),
        };
        bytes[0] = kind;
        bytes[1] = u8::from(self.ancestor.is_some());
        bytes[2] = u8::from(self.is_home);
        put(bytes, 8, &cache_bytes.to_le_bytes());
        put(bytes, 16, &other);
        put(bytes, 32, &self.ancestor.unwrap_or_default());
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Line, FormatError> {
        let other = array(bytes, 16)?;
        let succession = match u8_at(bytes, 0)? {
            0 => Succession::None,
            1 => Succession::Heir { of: other },
            2 => Succession::Replaced { by: other },
            3 => Succession::Remade { by: other, cache_bytes: u64_at(bytes, 8)? },
            _ => return Err(FormatError::Field("succession")),
        };
        let ancestor = match u8_at(bytes, 1)? {
            0 => None,
            1 => Some(array(bytes, 32)?),
            _ => return Err(FormatError::Field("ancestor")),
        };
        let is_home = match u8_at(bytes, 2)? {
            0 => false,
            1 => true,
            _ => return Err(FormatError::Field("is_home")),
        };
        Ok(Line { succession, ancestor, is_home })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_succession_reads_back() {
        let all = [
            Succession::None,
            Succession::Heir { of: [3; 16] },
            Succession::Replaced { by: [4; 16] },
            Succession::Remade { by: [5; 16], cache_bytes: 1 << 40 },
        ];
        for succession in all {
            for ancestor in [None, Some([9; 16])] {
                let line = Line { succession, ancestor, is_home: ancestor.is_some() };
                let mut bytes = [0; LINE_BYTES];
                line.encode(&mut bytes);
                assert_eq!(Line::decode(&bytes), Ok(line));
            }
        }
        assert_eq!(Line::decode(&[0; LINE_BYTES]), Ok(Line::default()), "older caches have none");
        for at in [0, 1, 2] {
            let mut bytes = [0; LINE_BYTES];
            bytes[at] = 7;
            assert!(Line::decode(&bytes).is_err());
        }
    }
}
