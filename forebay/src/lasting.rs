//! Memory that outlives a daemon: a file of its cache in the run directory (RULE 21).
//!
//! Headers of batches whose writes were answered may be there alone. Whoever opens the cache afterwards, for whatever purpose, reads
//! it as if they were on the device; the next session writes them. A cache that says that there is such a file, while the machine
//! runs on, is not served without it.

use crate::events::Event;
use crate::log::event;
use crate::run_dir::RunDirectory;
use crate::state::hexadecimal;
use anyhow::{Context, Result, bail};
use engine::format::{FlushNote, Layout, SetId, Superblock};
use engine::image::Image;
use engine::recovery;
use live::buffers::{BootId, LastingMemory, boot_id, left_in};
use live::devices::{BlockingDevice, DeviceSpec};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Remains of the last session of a cache in memory.
pub enum Left {
    /// Nothing, or nothing that is missed: it ended cleanly, had no such memory, or the power was off since.
    Nothing,
    /// The bytes that it stored.
    Bytes(Vec<u8>),
    /// The file is gone that had it.
    Missing(PathBuf),
}

/// Looks for what the last session of the cache with this superblock left in memory.
///
/// # Errors
/// If the file is there and cannot be read.
pub fn left(superblock: &Superblock) -> Result<Left> {
    let boot = boot_id().filter(|boot| *boot == superblock.lasting_boot && !superblock.clean_stop);
    let Some(boot) = boot else { return Ok(Left::Nothing) };
    let path = path_of(&superblock.set_id);
    let left = left_in(&path, boot).with_context(|| {
        format!("cannot read {}, which has what the last daemon had not written yet", path.display())
    })?;
    Ok(left.map_or(Left::Missing(path), Left::Bytes))
}

/// The device of a cache that no daemon serves, with what the last session left in memory.
///
/// # Errors
/// As [`left`].
pub fn with_left(image: BlockingDevice, superblock: &Superblock) -> Result<BlockingDevice> {
    let Left::Bytes(bytes) = left(superblock)? else { return Ok(image) };
    let late_headers = recovery::late_headers(superblock, &bytes);
    Ok(image.with_shadows(late_headers).with_flush_note(FlushNote::left_in(&bytes)))
}

/// Writes the late headers of a cache whose next session is about to begin.
///
/// # Errors
/// As [`left`], and those of the device.
pub fn restore(image: &mut impl Image, superblock: &Superblock, spec: &DeviceSpec) -> Result<()> {
    let Left::Bytes(bytes) = left(superblock)? else { return Ok(()) };
    match recovery::restore(image, &bytes) {
        Ok(_) => Ok(()),
        Err(errno) => bail!("the cache {spec} failed a write (errno {})", errno.0),
    }
}

/// Refuses a cache of which clients were told more than can be found.
///
/// # Errors
/// If it is so.
pub fn check_found(superblock: &Superblock, spec: &DeviceSpec) -> Result<()> {
    if let Left::Missing(path) = left(superblock)? {
        bail!(
            "the last daemon of {spec} was killed, and {}, which has what it wrote last, is gone: name its run directory with \
             FOREBAY_RUN_DIR, or take what the device has: forebay salvage {spec}, or give up what was not flushed: forebay \
             check {spec} --repair",
            path.display()
        );
    }
    Ok(())
}

/// The file of a cache that is served.
#[derive(Clone)]
pub struct LastingFile {
    boot: BootId,
    /// Its names: those of caches that took each other's places.
    names: Arc<Mutex<Vec<PathBuf>>>,
}

impl LastingFile {
    /// The file and the memory for a cache, if it can use any and the system gives it.
    pub fn open(superblock: &Superblock, is_mirrored: bool) -> Option<(LastingFile, LastingMemory)> {
        if is_mirrored || !matches!(superblock.layout, Layout::Log(_)) {
            return None;
        }
        let (boot, path) = (boot_id()?, path_of(&superblock.set_id));
        let opened = RunDirectory::find().make(None).and_then(|()| {
            LastingMemory::open(&path, boot).with_context(|| format!("cannot make {}", path.display()))
        });
        match opened {
            Ok(memory) => Some((LastingFile { boot, names: Arc::new(Mutex::new(vec![path])) }, memory)),
            Err(error) => {
                event(
                    Event::NoLastingMemory,
                    format_args!("small writes cost more than they need: {error:#}"),
                );
                None
            }
        }
    }

    /// The boot that the superblock of a session with it names.
    pub fn boot(&self) -> BootId {
        self.boot
    }

    /// Gives the file another name, too: that of a cache that takes the place of the first one.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn name_for(&self, set_id: &SetId) -> Result<()> {
        let path = path_of(set_id);
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.contains(&path) {
            return Ok(());
        }
        // One that is there is of a daemon that was killed before that cache was served: nothing was answered there.
        let _ = std::fs::remove_file(&path);
        std::fs::hard_link(&names[0], &path).with_context(|| format!("cannot make {}", path.display()))?;
        names.push(path);
        Ok(())
    }

    /// Takes all other names away: those caches gave their place to this one.
    pub fn name_only(&self, set_id: &SetId) {
        let own = path_of(set_id);
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        for path in names.extract_if(.., |path| *path != own) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Removes the file of a cache that stopped cleanly: it says nothing any more.
    pub fn remove(&self) {
        for path in self.names.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A start that may still be refused. If it is, the file that was made for it goes, unless the last session left it: dropped
/// while the cache is locked, it cannot take away that of another daemon.
pub struct Unbegun(Option<LastingFile>);

impl Unbegun {
    /// The start of a session with this file, on a cache with this superblock.
    pub fn new(file: Option<&LastingFile>, superblock: &Superblock) -> Unbegun {
        let is_left = |file: &LastingFile| file.boot == superblock.lasting_boot && !superblock.clean_stop;
        Unbegun(file.filter(|file| !is_left(file)).cloned())
    }

    /// The session begins.
    pub fn begin(mut self) {
        self.0 = None;
    }
}

impl Drop for Unbegun {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            file.remove();
        }
    }
}

fn path_of(set_id: &SetId) -> PathBuf {
    RunDirectory::find().file(&format!("{}.lasting", hexadecimal(set_id)))
}
