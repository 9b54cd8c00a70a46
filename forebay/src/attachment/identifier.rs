//! Identifiers of kernel devices: by them a daemon finds its own again. The nbd driver keeps a text, the ublk driver a
//! number.

use crate::run_dir::fnv1a;
use std::fmt;

/// The beginning of every identifier of ours.
const MARK: &str = "forebay";

/// The identifier of a device: which volume it is, and by how many connections. The rules for udev in
/// `packaging/udev/60-forebay.rules` take the name of an nbd device's volume from its text.
///
/// The volume's durable number is in it: another volume that comes to have the same name later, or the same one
/// after its content was written elsewhere, is not taken for this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identifier {
    /// The set id of the cache, in hexadecimal.
    pub set_id: String,
    /// The durable number of the volume.
    pub volume_id: u32,
    /// Connections that the device was made with.
    pub connections: usize,
    /// The name that the volume had then.
    pub name: String,
}

impl Identifier {
    /// The identifier that this text is; `None` if it is none of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Identifier> {
        let mut parts = text.split(':');
        let mut next = || parts.next();
        let (MARK, set_id, volume_id, connections, name, None) =
            (next()?, next()?, next()?, next()?, next()?, next())
        else {
            return None;
        };
        let (volume_id, connections) = (volume_id.parse().ok()?, connections.parse().ok()?);
        Some(Identifier { set_id: set_id.to_owned(), volume_id, connections, name: name.to_owned() })
    }

    /// The number that a ublk device of the volume has. Set ids are random, so those of two volumes are as good as never
    /// the same, and it is none of the small numbers that other servers use.
    #[must_use]
    pub fn mark(&self) -> u64 {
        fnv1a(format!("{MARK}:{}:{}", self.set_id, self.volume_id).as_bytes())
    }

    /// Whether it is of that volume.
    #[must_use]
    pub fn is_of(&self, other: &Identifier) -> bool {
        self.set_id == other.set_id && self.volume_id == other.volume_id
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identifier { set_id, volume_id, connections, name } = self;
        write!(f, "{MARK}:{set_id}:{volume_id}:{connections}:{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_that_of_the_volume_whatever_its_name_and_connections() {
        let identifier = |set_id: &str, volume_id, connections, name: &str| Identifier {
            set_id: set_id.to_owned(),
            volume_id,
            connections,
            name: name.to_owned(),
        };
        let mark = identifier("00ff", 7, 2, "a").mark();
        assert_eq!(identifier("00ff", 7, 1, "b").mark(), mark);
        for other in [identifier("00ff", 8, 2, "a"), identifier("00fe", 7, 2, "a")] {
            assert_ne!(other.mark(), mark);
        }
    }

    #[test]
    fn an_identifier_is_read_back_and_others_are_not_ours() {
        let identifier =
            Identifier { set_id: "00ff".to_owned(), volume_id: 7, connections: 2, name: "a".to_owned() };
        assert_eq!(Identifier::parse(&identifier.to_string()), Some(identifier));
        for text in ["", "forebay", "forebay:a:1:1", "forebay:a:x:1:n", "forebay:a:1:1:n:m", "other:a:1:1:n"]
        {
            assert_eq!(Identifier::parse(text), None, "{text}");
        }
    }
}
