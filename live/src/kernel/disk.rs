//! Disks: block devices of this machine that a kernel driver makes of us, and how they are called.

use std::fmt;

/// A driver of the kernel that makes block devices of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// `nbd`, which speaks NBD over sockets.
    Nbd,
    /// `ublk`, which speaks through the rings of io_uring.
    Ublk,
}

impl Maker {
    /// The name of its kernel module.
    #[must_use]
    pub fn module(self) -> &'static str {
        match self {
            Maker::Nbd => "nbd",
            Maker::Ublk => "ublk_drv",
        }
    }

    /// The beginning of its disks' names.
    fn prefix(self) -> &'static str {
        match self {
            Maker::Nbd => "nbd",
            Maker::Ublk => "ublkb",
        }
    }
}

impl fmt::Display for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Maker::Nbd => "nbd",
            Maker::Ublk => "ublk",
        })
    }
}

/// A disk, by its driver and its index there; shown as its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The driver.
    pub maker: Maker,
    /// The index.
    pub index: u32,
}

impl Disk {
    /// A disk of the `nbd` driver.
    #[must_use]
    pub fn nbd(index: u32) -> Disk {
        Disk { maker: Maker::Nbd, index }
    }

    /// A disk of the `ublk` driver.
    #[must_use]
    pub fn ublk(index: u32) -> Disk {
        Disk { maker: Maker::Ublk, index }
    }

    /// The disk that the kernel calls so; `None` if it is none of these drivers' disks, or a part of one.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Disk> {
        [Maker::Nbd, Maker::Ublk].into_iter().find_map(|maker| {
            let digits = name.strip_prefix(maker.prefix())?;
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            Some(Disk { maker, index: is_number.then(|| digits.parse().ok())?? })
        })
    }

    /// The kernel's name of it.
    #[must_use]
    pub fn name(self) -> String {
        format!("{}{}", self.maker.prefix(), self.index)
    }

    /// Its path.
    #[must_use]
    pub fn path(self) -> String {
        format!("/dev/{}", self.name())
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_known_by_their_names() {
        for disk in [Disk::nbd(0), Disk::nbd(17), Disk::ublk(3)] {
            assert_eq!(Disk::of_name(&disk.name()), Some(disk));
        }
        assert_eq!(Disk::ublk(3).to_string(), "/dev/ublkb3");
        for name in ["nbd", "nbd0p1", "ublkb", "ublkc0", "ublkb-1", "nbd+1", "sda"] {
            assert_eq!(Disk::of_name(name), None, "{name}");
        }
    }
}
