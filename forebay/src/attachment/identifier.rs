//! Identifiers of kernel devices: texts by which a daemon finds its own again.

use live::kernel::sysfs;
use std::fmt;

/// The beginning of every identifier of ours.
const MARK: &str = "forebay";

/// The identifier of a device: which volume it is, and by how many connections. The rules for udev in
/// `packaging/udev/60-forebay.rules` take the volume's name from it.
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

    /// The device of a volume, if there is one, and its identifier.
    #[must_use]
    pub fn find(set_id: &str, volume_id: u32) -> Option<(u32, Identifier)> {
        let devices = sysfs::attached().into_iter();
        devices
            .filter_map(|device| Some((device.index, Identifier::parse(&device.identifier)?)))
            .find(|(_, identifier)| identifier.set_id == set_id && identifier.volume_id == volume_id)
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
