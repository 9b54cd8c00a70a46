//! Facts about an export that its server states in the handshake.

use crate::nbd::client::negotiation::ExportInfo;
use crate::nbd::wire::protocol::{
    FLAG_CAN_MULTI_CONN, FLAG_HAS_FLAGS, FLAG_SEND_FLUSH, FLAG_SEND_FUA, FLAG_SEND_TRIM,
    FLAG_SEND_WRITE_ZEROES,
};
use engine::units::SECTOR_BYTES;

/// The largest minimum block that volumes can have.
const MIN_BLOCK_BYTES_MAX: u32 = 64 << 10;
/// The longest READ or WRITE where the server states no limit, as the protocol has it.
const PAYLOAD_BYTES_DEFAULT: u32 = 32 << 20;

/// The properties and abilities of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Its size, a whole number of sectors.
    pub size_bytes: u64,
    /// Bytes behind that.
    pub unused_bytes: u64,
    /// The smallest aligned transfer, at least 512.
    pub sector_bytes: u32,
    /// The longest READ or WRITE, a whole number of sectors.
    pub payload_bytes_max: u32,
    /// The name that the server gives it, if it says one.
    pub name: Option<String>,
    pub is_read_only: bool,
    pub can_flush: bool,
    pub can_fua: bool,
    pub can_trim: bool,
    pub can_zero: bool,
    pub has_several_connections: bool,
}

impl Facts {
    /// The facts in the server's words.
    ///
    /// # Errors
    /// A statement of what makes no sense: for a line that begins with the server's name.
    pub(super) fn of(info: &ExportInfo) -> Result<Facts, String> {
        let [min_block_bytes, _, max_block_bytes] =
            info.block_sizes.unwrap_or([1, 4096, PAYLOAD_BYTES_DEFAULT]);
        if !min_block_bytes.is_power_of_two() || min_block_bytes > MIN_BLOCK_BYTES_MAX {
            return Err(format!("states a smallest block of {min_block_bytes} bytes, which cannot be used"));
        }
        let sector_bytes = min_block_bytes.max(u32::try_from(SECTOR_BYTES).expect("a sector"));
        let payload_bytes_max = max_block_bytes.min(PAYLOAD_BYTES_DEFAULT);
        let payload_bytes_max = payload_bytes_max - payload_bytes_max % sector_bytes;
        if payload_bytes_max == 0 {
            return Err(format!("states a largest block of {max_block_bytes} bytes, which cannot be used"));
        }
        if i64::try_from(info.size_bytes).is_err() {
            return Err(format!("states a size of {} bytes, which no disk has", info.size_bytes));
        }
        let unused_bytes = info.size_bytes % u64::from(sector_bytes);
        let has = |flag: u16| info.flags & FLAG_HAS_FLAGS != 0 && info.flags & flag != 0;
        Ok(Facts {
            size_bytes: info.size_bytes - unused_bytes,
            unused_bytes,
            sector_bytes,
            payload_bytes_max,
            name: info.name.clone(),
            is_read_only: info.is_read_only(),
            can_flush: has(FLAG_SEND_FLUSH),
            can_fua: has(FLAG_SEND_FUA),
            can_trim: has(FLAG_SEND_TRIM),
            can_zero: has(FLAG_SEND_WRITE_ZEROES),
            has_several_connections: has(FLAG_CAN_MULTI_CONN),
        })
    }

    /// Reason why an export cannot be the one that had the facts `self` before, or cannot take its place.
    pub(super) fn difference(&self, now: &Facts) -> Option<String> {
        let Facts { size_bytes, name, .. } = self;
        if now.size_bytes < *size_bytes {
            return Some(format!("it has shrunk from {size_bytes} to {} bytes", now.size_bytes));
        }
        if let (Some(before), Some(now)) = (name, &now.name)
            && before != now
        {
            return Some(format!("it is called {now:?} and was called {before:?}"));
        }
        if now.sector_bytes > self.sector_bytes {
            return Some(format!(
                "its smallest block is {} bytes and was {}",
                now.sector_bytes, self.sector_bytes
            ));
        }
        if now.is_read_only && !self.is_read_only {
            return Some("it is read-only now".to_owned());
        }
        let is_less = self.can_flush && !now.can_flush || !self.can_flush && self.can_fua && !now.can_fua;
        is_less.then(|| "it cannot make writes durable any more".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> ExportInfo {
        ExportInfo {
            size_bytes: (1 << 20) + 700,
            flags: FLAG_HAS_FLAGS | FLAG_SEND_FLUSH,
            ..ExportInfo::default()
        }
    }

    #[test]
    fn an_export_is_whole_sectors() {
        let facts = Facts::of(&info()).unwrap();
        assert_eq!((facts.size_bytes, facts.unused_bytes, facts.sector_bytes), ((1 << 20) + 512, 188, 512));
        assert!(facts.can_flush && !facts.can_fua && !facts.is_read_only);
        assert_eq!(facts.payload_bytes_max, 32 << 20);
        let large = ExportInfo { block_sizes: Some([4096, 4096, 100_000]), ..info() };
        let facts = Facts::of(&large).unwrap();
        assert_eq!((facts.sector_bytes, facts.payload_bytes_max, facts.size_bytes), (4096, 98_304, 1 << 20));
    }

    #[test]
    fn a_server_that_lies_is_refused() {
        for block_sizes in [[0, 0, 0], [3, 4096, 4096], [1 << 20, 1 << 20, 1 << 20], [512, 512, 100]] {
            assert!(Facts::of(&ExportInfo { block_sizes: Some(block_sizes), ..info() }).is_err());
        }
        assert!(Facts::of(&ExportInfo { size_bytes: u64::MAX, ..info() }).is_err());
    }

    #[test]
    fn an_export_may_grow_and_not_become_less() {
        let facts = Facts::of(&info()).unwrap();
        let with = |change: fn(&mut Facts)| {
            let mut now = facts.clone();
            change(&mut now);
            facts.difference(&now)
        };
        assert_eq!(with(|now| now.size_bytes *= 2), None);
        assert!(with(|now| now.size_bytes -= 512).unwrap().contains("shrunk"));
        assert!(with(|now| now.sector_bytes = 4096).unwrap().contains("smallest block"));
        assert!(with(|now| now.is_read_only = true).unwrap().contains("read-only"));
        assert!(with(|now| now.can_flush = false).unwrap().contains("durable"));
    }
}
