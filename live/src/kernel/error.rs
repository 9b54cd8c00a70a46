//! Reasons why the kernel makes no disk.

use super::disk::{Disk, Maker};
use std::io;
use std::path::Path;
use thiserror::Error;

/// The largest block of a disk: a page.
pub const BLOCK_BYTES_MAX: u32 = 4096;

/// Reason why the kernel makes no disk.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The driver is there, but not loaded.
    #[error("the kernel module {module} is not loaded; run: modprobe {module}")]
    NotLoaded {
        /// The driver's module.
        module: &'static str,
    },
    /// The running kernel has no such driver.
    #[error(
        "the running kernel, {release}, has no module {module}; install a kernel that has it (Debian: linux-image-amd64)"
    )]
    NoModule {
        /// The driver's module.
        module: &'static str,
        /// The release of the kernel.
        release: String,
    },
    /// The driver lacks something that came later.
    #[error(
        "the ublk driver of the running kernel, {release}, is too old; Linux 6.5 or newer is needed, or --door nbd"
    )]
    TooOld {
        /// The release of the kernel.
        release: String,
    },
    /// The process may not make disks.
    #[error("only root (CAP_SYS_ADMIN) may make a kernel device; run the daemon as root")]
    NotPermitted,
    /// The kernel gives the process no ring.
    #[error("the kernel refuses io_uring, without which there is no ublk; take --door nbd")]
    NoRing,
    /// The disk is in use.
    #[error("{disk} is in use; leave the index out, and the kernel takes a free one")]
    IndexTaken {
        /// The disk.
        disk: Disk,
    },
    /// The driver takes no blocks of that size.
    #[error(
        "the origin's sectors have {block_bytes} bytes, and the kernel's {maker} driver takes at most {BLOCK_BYTES_MAX}"
    )]
    BlockSize {
        /// The driver.
        maker: Maker,
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// Another refusal.
    #[error("the kernel's {maker} driver could not {step}: {source}")]
    Refused {
        /// The driver.
        maker: Maker,
        /// The step that it was asked for.
        step: &'static str,
        /// Why it could not.
        source: io::Error,
    },
}

impl KernelError {
    /// The reason why a driver is not there.
    pub(super) fn missing(maker: Maker) -> KernelError {
        let (module, release) = (maker.module(), release());
        if has_module(&Path::new("/lib/modules").join(&release), module) {
            KernelError::NotLoaded { module }
        } else {
            KernelError::NoModule { module, release }
        }
    }

    /// A driver that lacks something.
    pub(super) fn too_old() -> KernelError {
        KernelError::TooOld { release: release() }
    }
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Whether the modules of a kernel have this one among its block drivers.
fn has_module(modules: &Path, module: &str) -> bool {
    let Ok(found) = std::fs::read_dir(modules.join("kernel/drivers/block")) else { return false };
    found.flatten().any(|file| file.file_name().to_string_lossy().starts_with(&format!("{module}.ko")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_compressed_or_not() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("kernel/drivers/block");
        assert!(!has_module(directory.path(), "nbd"), "no modules at all");
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("nbdx.ko"), "").unwrap();
        assert!(!has_module(directory.path(), "nbd"));
        std::fs::write(place.join("nbd.ko.xz"), "").unwrap();
        assert!(has_module(directory.path(), "nbd"));
        assert!(!has_module(directory.path(), "ublk_drv"));
    }
}
