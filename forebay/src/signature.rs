//! Signatures: the probable content of a device, by the magic numbers of file systems, partition tables, volume
//! managers and caches. `create` refuses a cache device that holds any of it.

use engine::effect::Errno;
use live::devices::BlockingDevice;
use std::fmt;

/// Something a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The name of the content.
    pub name: &'static str,
    /// Where its mark was found.
    pub offset_bytes: u64,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (its mark is at byte {})", self.name, self.offset_bytes)
    }
}

/// A mark at a fixed place from the beginning.
struct Magic {
    name: &'static str,
    offset_bytes: usize,
    bytes: &'static [u8],
}

const fn magic(name: &'static str, offset_bytes: usize, bytes: &'static [u8]) -> Magic {
    Magic { name, offset_bytes, bytes }
}

/// Sources: the superblock definitions in the Linux kernel (fs/*, drivers/md, include/uapi/linux), e2fsprogs,
/// util-linux libblkid, cryptsetup's on-disk format, OpenZFS vdev_impl.h.
const MAGICS: &[Magic] = &[
    magic("an ext2, ext3 or ext4 file system", 1024 + 56, &[0x53, 0xef]),
    magic("an XFS file system", 0, b"XFSB"),
    magic("a btrfs file system", 65536 + 64, b"_BHRfS_M"),
    magic("an F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    magic("an NTFS file system", 3, b"NTFS    "),
    magic("an exFAT file system", 3, b"EXFAT   "),
    magic("a FAT file system", 54, b"FAT1"),
    magic("a FAT file system", 82, b"FAT32"),
    magic("an ISO 9660 file system", 32769, b"CD001"),
    magic("a UDF file system", 32769, b"BEA01"),
    magic("a SquashFS file system", 0, b"hsqs"),
    magic("an EROFS file system", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    magic("a JFS file system", 32768, b"JFS1"),
    magic("a ReiserFS file system", 65536 + 52, b"ReIsEr"),
    magic("an HFS+ file system", 1024, b"H+"),
    magic("an APFS container", 32, b"NXSB"),
    magic("a BitLocker volume", 3, b"-FVE-FS-"),
    magic("swap space", 4096 - 10, b"SWAPSPACE2"),
    magic("swap space", 4096 - 10, b"SWAP-SPACE"),
    magic("swap space", 65536 - 10, b"SWAPSPACE2"),
    magic("a suspended system", 4096 - 10, b"S1SUSPEND"),
    magic("an LVM physical volume", 0, b"LABELONE"),
    magic("an LVM physical volume", 512, b"LABELONE"),
    magic("an LVM physical volume", 1024, b"LABELONE"),
    magic("an LVM physical volume", 1536, b"LABELONE"),
    magic("a LUKS volume", 0, b"LUKS\xba\xbe"),
    magic("a LUKS volume", 16384, b"SKUL\xba\xbe"),
    magic("a Linux RAID member", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    magic("a Linux RAID member", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    magic("a GPT partition table", 512, b"EFI PART"),
    magic("a GPT partition table", 4096, b"EFI PART"),
    magic(
        "a bcache device",
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
    ),
    magic(
        "a bcachefs file system",
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
    ),
    // The kernel writes dm-cache's magic as 06142003, which C reads as octal.
    magic("dm-cache metadata", 32, &0o6_142_003_u64.to_le_bytes()),
    magic("dm-thin metadata", 32, &27_022_010_u64.to_le_bytes()),
    magic("dm-era metadata", 32, &2_126_579_579_u64.to_le_bytes()),
    magic("a Ceph OSD", 0, b"bluestore block device"),
    magic("a qcow2 image", 0, b"QFI\xfb"),
    // Last: boot sectors of file systems end the same way.
    magic("a partition table or boot sector", 510, &[0x55, 0xaa]),
];

/// Bytes that are looked at from the beginning of a device.
const HEAD_BYTES: u64 = 384 << 10;
/// Bytes that are looked at up to its end.
const TAIL_BYTES: u64 = 128 << 10;
/// The magic of a ZFS uberblock, in the byte order of the machine that wrote it.
const ZFS_UBERBLOCK: u64 = 0x00ba_b10c;
/// Offset of the uberblocks in the first label.
const ZFS_UBERBLOCKS: std::ops::Range<usize> = 131_072..262_144;
/// Mark of a Linux RAID member, versions 0.90 and 1.0, near the device's end.
const RAID: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];

/// Content of the device, if its marks are known.
///
/// # Errors
/// The device's errno.
pub fn find(device: &mut BlockingDevice, size_bytes: u64) -> Result<Option<Signature>, Errno> {
    let mut head = vec![0; HEAD_BYTES.min(size_bytes) as usize];
    device.read_at(0, &mut head)?;
    if let Some(found) = in_head(&head) {
        return Ok(Some(found));
    }
    let tail_bytes = TAIL_BYTES.min(size_bytes);
    let mut tail = vec![0; tail_bytes as usize];
    device.read_at(size_bytes - tail_bytes, &mut tail)?;
    Ok(in_tail(&tail, size_bytes))
}

fn in_head(head: &[u8]) -> Option<Signature> {
    for magic in MAGICS {
        let end = magic.offset_bytes + magic.bytes.len();
        if head.get(magic.offset_bytes..end) == Some(magic.bytes) {
            return Some(Signature { name: magic.name, offset_bytes: magic.offset_bytes as u64 });
        }
    }
    let little = ZFS_UBERBLOCK.to_le_bytes();
    let big = ZFS_UBERBLOCK.to_be_bytes();
    ZFS_UBERBLOCKS
        .step_by(1024)
        .find(|offset| head.get(*offset..offset + 8).is_some_and(|mark| mark == little || mark == big))
        .map(|offset| Signature { name: "a ZFS pool member", offset_bytes: offset as u64 })
}

fn in_tail(tail: &[u8], size_bytes: u64) -> Option<Signature> {
    let tail_at = size_bytes - tail.len() as u64;
    let places = [
        // A 0.90 superblock is in the last whole 64 KiB but one; a 1.0 superblock 8 KiB before the end or further.
        ("a Linux RAID member", (size_bytes & !0xffff).checked_sub(65536), &RAID[..]),
        ("a Linux RAID member", (size_bytes & !0xfff).checked_sub(8192), &RAID[..]),
        ("a GPT partition table", size_bytes.checked_sub(512), b"EFI PART"),
        ("a GPT partition table", size_bytes.checked_sub(4096), b"EFI PART"),
    ];
    places.into_iter().find_map(|(name, offset, bytes)| {
        let offset_bytes = offset?;
        let at = usize::try_from(offset_bytes.checked_sub(tail_at)?).ok()?;
        let found = tail.get(at..at + bytes.len())?;
        (found == bytes).then_some(Signature { name, offset_bytes })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_at_the_beginning_is_found() {
        for magic in MAGICS {
            let mut head = vec![0; HEAD_BYTES as usize];
            head[magic.offset_bytes..magic.offset_bytes + magic.bytes.len()].copy_from_slice(magic.bytes);
            let found = in_head(&head).expect("the mark is there");
            assert_eq!(found, Signature { name: magic.name, offset_bytes: magic.offset_bytes as u64 });
        }
    }

    #[test]
    fn an_uberblock_in_either_byte_order_is_found() {
        for mark in [ZFS_UBERBLOCK.to_le_bytes(), ZFS_UBERBLOCK.to_be_bytes()] {
            let mut head = vec![0; HEAD_BYTES as usize];
            head[131_072 + 5 * 1024..][..8].copy_from_slice(&mark);
            assert_eq!(in_head(&head).expect("the mark is there").name, "a ZFS pool member");
        }
    }

    #[test]
    fn marks_at_the_end_are_found() {
        let size_bytes = (64 << 20) + 512;
        let tail_at = size_bytes - TAIL_BYTES;
        for (at, bytes) in [
            ((64 << 20) - 65536, &RAID[..]),
            ((64 << 20) - 8192, &RAID[..]),
            (size_bytes - 512, &b"EFI PART"[..]),
        ] {
            let mut tail = vec![0; TAIL_BYTES as usize];
            tail[(at - tail_at) as usize..][..bytes.len()].copy_from_slice(bytes);
            assert_eq!(in_tail(&tail, size_bytes).expect("the mark is there").offset_bytes, at);
        }
    }

    #[test]
    fn nothing_is_found_in_zeroes_and_in_tiny_devices() {
        assert_eq!(in_head(&vec![0; HEAD_BYTES as usize]), None);
        for size in [0usize, 1, 511, 512, 4096, 8192, 65536] {
            assert_eq!(in_head(&vec![0; size]), None);
            assert_eq!(in_tail(&vec![0; size], size as u64), None);
        }
    }
}
