//! Facts about an export that its server states in the handshake.

use crate::nbd::client::negotiation::ExportInfo;
use crate::nbd::wire::protocol::{
    FLAG_CAN_MULTI_CONN, FLAG_HAS_FLAGS, FLAG_SEND_FLUSH, FLAG_SEND_FUA, FLAG_SEND_TRIM,
    FLAG_SEND_WRITE_ZEROES,
};
use engine::remote::facts::Facts;
use engine::units::{BLOCK_BYTES, SECTOR_BYTES};

/// The longest READ or WRITE where the server states no limit, as the protocol has it.
const PAYLOAD_BYTES_DEFAULT: u32 = 32 << 20;

/// The facts in the server's words.
///
/// # Errors
/// A statement of what makes no sense: for a line that begins with the server's name.
pub(super) fn of(info: &ExportInfo) -> Result<Facts, String> {
    let [min_block_bytes, _, max_block_bytes] = info.block_sizes.unwrap_or([1, 4096, PAYLOAD_BYTES_DEFAULT]);
    if !min_block_bytes.is_power_of_two() || u64::from(min_block_bytes) > BLOCK_BYTES {
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
        let facts = of(&info()).unwrap();
        assert_eq!((facts.size_bytes, facts.unused_bytes, facts.sector_bytes), ((1 << 20) + 512, 188, 512));
        assert!(facts.can_flush && !facts.can_fua && !facts.is_read_only);
        assert_eq!(facts.payload_bytes_max, 32 << 20);
        let large = ExportInfo { block_sizes: Some([4096, 4096, 100_000]), ..info() };
        let facts = of(&large).unwrap();
        assert_eq!((facts.sector_bytes, facts.payload_bytes_max, facts.size_bytes), (4096, 98_304, 1 << 20));
    }

    #[test]
    fn a_server_that_lies_is_refused() {
        for block_sizes in
            [[0, 0, 0], [3, 4096, 4096], [8192, 8192, 8192], [1 << 20, 1 << 20, 1 << 20], [512, 512, 100]]
        {
            assert!(of(&ExportInfo { block_sizes: Some(block_sizes), ..info() }).is_err());
        }
        assert!(of(&ExportInfo { size_bytes: u64::MAX, ..info() }).is_err());
    }
}
