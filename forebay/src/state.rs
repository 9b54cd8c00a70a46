//! The state directory: facts about a cache that must be known even when the cache is gone.
//!
//! There is one small TOML file for each cache, named by its set id, which no other cache ever has; the
//! device names under which it was served are inside. A file is replaced as a whole (written
//! beside, synced, renamed, directory synced), so a crash leaves the old one or the new one.
//!
//! Two facts about each volume are kept, and each errs to the safe side:
//!
//! - `may_be_dirty` is made true *before* the cache can hold anything the origin does not have, and false
//!   only when it holds nothing. A missing record counts as true.
//! - `abandoned` is made true *before* a write passes a missing cache to the origin (hazard 10): what the
//!   cache holds of the volume is void from then on. The next start that sees the cache makes it forget the
//!   volume's content, durably, before the mark is taken away.

use crate::run_dir::non_empty;
use crate::setting::{Kept, keep};
use anyhow::{Context, Result, bail};
use live::devices::DeviceSpec;
use rustix::fs::Access;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Device names that a record keeps; the oldest go first.
const NAMES_MAX: usize = 8;

/// Caches of a line that are followed from the first to the one of today.
const LINE_MAX: u32 = 1000;

/// The directory with the notes on all caches.
#[derive(Clone, Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

/// Notes on one cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheRecord {
    /// Its set id, in hexadecimal.
    pub set_id: String,
    /// Names under which the device was served, the newest last.
    pub caches: Vec<String>,
    /// Number of its newest superblock that was durable when this was noted: one that was written less often is that of
    /// an older copy. Earlier notes do not have it.
    #[serde(default)]
    pub superblock_update: u64,
    /// Bytes written to it by sessions before this note; a session that was killed wrote more than it noted.
    #[serde(default)]
    pub written_bytes: u64,
    /// The set id of the cache that took its place, in hexadecimal, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_by: Option<String>,
    /// Settings of the whole cache that were set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_settings: Vec<Kept>,
    /// Bytes that counted against the wear budget when that was noted, and when, in seconds since 1970.
    #[serde(default)]
    pub wear: (u64, u64),
    /// Its volumes.
    #[serde(default)]
    pub volumes: Vec<VolumeNote>,
    /// Settings of them that were set, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Vec<Kept>>,
}

impl CacheRecord {
    /// Keeps a setting of a volume.
    pub fn keep(&mut self, volume: &str, kept: Kept) {
        if kept.key().is_of_cache() {
            return keep(&mut self.cache_settings, kept);
        }
        keep(self.settings.entry(volume.to_owned()).or_default(), kept);
    }

    /// Settings of a volume that were set.
    #[must_use]
    pub fn settings_of(&self, volume: &str) -> &[Kept] {
        self.settings.get(volume).map_or(&[], Vec::as_slice)
    }
}

/// Notes on one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeNote {
    /// Its durable number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its origin, as a device name.
    pub origin: String,
    /// The origin's stable identity; empty if it has none.
    pub identity: String,
    /// Its size.
    pub size_bytes: u64,
    /// Whether clients may not write to it.
    pub read_only: bool,
    /// Whether the cache may hold something the origin does not have.
    pub may_be_dirty: bool,
    /// Whether the origin was written without the cache: the volume's cached content is void.
    pub abandoned: bool,
}

impl StateDirectory {
    /// `given`, or `FOREBAY_STATE_DIR`, or `/var/lib/forebay` as root, or
    /// `$XDG_STATE_HOME/forebay`, or `~/.local/state/forebay`.
    ///
    /// # Errors
    /// If there is no home directory either.
    pub fn find(given: Option<&Path>) -> Result<StateDirectory> {
        let path = if let Some(path) = given {
            path.to_owned()
        } else if let Some(path) = non_empty("FOREBAY_STATE_DIR") {
            path
        } else if rustix::process::geteuid().is_root() {
            PathBuf::from("/var/lib/forebay")
        } else if let Some(path) = non_empty("XDG_STATE_HOME") {
            path.join("forebay")
        } else if let Some(home) = non_empty("HOME") {
            home.join(".local/state/forebay")
        } else {
            bail!("there is no home directory to keep notes in; name a directory with --state-dir");
        };
        Ok(StateDirectory { path })
    }

    /// The record of the cache with this set id.
    ///
    /// # Errors
    /// If there is one that cannot be read: what it says must not be guessed.
    pub fn load(&self, set_id: &[u8; 16]) -> Result<Option<CacheRecord>> {
        self.read(&self.file(&hexadecimal(set_id)))
    }

    /// As [`StateDirectory::load`]; an empty record if there is none.
    ///
    /// # Errors
    /// As there.
    pub fn load_or_new(&self, set_id: &[u8; 16]) -> Result<CacheRecord> {
        let new = || CacheRecord {
            set_id: hexadecimal(set_id),
            caches: Vec::new(),
            superblock_update: 0,
            written_bytes: 0,
            cache_settings: Vec::new(),
            wear: (0, 0),
            succeeded_by: None,
            volumes: Vec::new(),
            settings: BTreeMap::new(),
        };
        Ok(self.load(set_id)?.unwrap_or_else(new))
    }

    /// The file with the record of a cache.
    #[must_use]
    pub fn file_of(&self, set_id: &[u8; 16]) -> PathBuf {
        self.file(&hexadecimal(set_id))
    }

    /// The name of the cache that is the one today in the line of the cache with this set id.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn name_of_line(&self, set_id: &[u8; 16]) -> Result<Option<String>> {
        let mut set_id = hexadecimal(set_id);
        for _ in 0..LINE_MAX {
            let Some(record) = self.read(&self.file(&set_id))? else { return Ok(None) };
            match record.succeeded_by {
                Some(next) => set_id = next,
                None => return Ok(record.caches.last().cloned()),
            }
        }
        Ok(None)
    }

    /// The record of the cache that was last served under this device name.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn find_by_device(&self, device: &DeviceSpec) -> Result<Option<CacheRecord>> {
        let names = names_of(device);
        Ok(self.all()?.into_iter().find(|record| record.caches.iter().any(|name| names.contains(name))))
    }

    /// All records.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn all(&self) -> Result<Vec<CacheRecord>> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                let path = self.path.display();
                return Err(error).with_context(|| format!("cannot read the state directory {path}"));
            }
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.with_context(|| format!("cannot read {}", self.path.display()))?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                records.extend(self.read(&path)?);
            }
        }
        Ok(records)
    }

    fn read(&self, path: &Path) -> Result<Option<CacheRecord>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let record = toml::from_str(&text).with_context(|| {
            format!("the notes in {} are damaged; restore the file, or move it away", path.display())
        })?;
        Ok(Some(record))
    }

    /// Writes a record; durable on return.
    ///
    /// # Errors
    /// If that fails: the old record may or may not be there still, and the new one may be.
    pub fn store(&self, record: &CacheRecord) -> Result<()> {
        let path = self.file(&record.set_id);
        self.replace(&path, record)
            .with_context(|| format!("cannot write the notes to {}; see --state-dir", path.display()))
    }

    /// Makes the directory if it does not exist, and makes sure that a record can be written there.
    ///
    /// # Errors
    /// If it cannot.
    pub fn make(&self) -> Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .and_then(|()| Ok(rustix::fs::access(&self.path, Access::WRITE_OK | Access::EXEC_OK)?))
            .with_context(|| format!("cannot write notes in {}; see --state-dir", self.path.display()))
    }

    fn replace(&self, path: &Path, record: &CacheRecord) -> Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        let text = toml::to_string(record)?;
        let beside = path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(&self.path)?.sync_all()?;
        Ok(())
    }

    /// Makes `record` the only one found under the device's name. A device that was formatted anew has an older
    /// record under the same name, of a cache that no longer exists.
    ///
    /// # Errors
    /// If records cannot be read or written.
    pub fn claim_name(&self, record: &mut CacheRecord, device: &DeviceSpec) -> Result<()> {
        let names = names_of(device);
        for mut other in self.all()? {
            let before = other.caches.len();
            other.caches.retain(|name| !names.contains(name));
            if other.set_id != record.set_id && other.caches.len() < before {
                self.store(&other)?;
            }
        }
        record.caches.retain(|name| !names.contains(name));
        record.caches.extend(names);
        let surplus = record.caches.len().saturating_sub(NAMES_MAX);
        record.caches.drain(..surplus);
        Ok(())
    }

    fn file(&self, set_id: &str) -> PathBuf {
        self.path.join(format!("{set_id}.toml"))
    }
}

/// The names by which a device is found again when it is missing: as written, which may be a link that is
/// missing too then, and with links resolved.
pub fn names_of(device: &DeviceSpec) -> Vec<String> {
    let absolute = device.absolute();
    let mut names =
        vec![absolute.path().map_or_else(|| absolute.to_string(), |p| p.to_string_lossy().into())];
    let canonical = device.canonical();
    if !names.contains(&canonical) {
        names.push(canonical);
    }
    names
}

/// Bytes in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The record of the cache that is being served, shared by the daemon's threads.
#[derive(Debug)]
pub struct LiveRecord {
    directory: StateDirectory,
    record: Mutex<CacheRecord>,
}

impl LiveRecord {
    /// Keeps `record` in `directory` from now on. Writes nothing yet.
    #[must_use]
    pub fn new(directory: StateDirectory, record: CacheRecord) -> LiveRecord {
        LiveRecord { directory, record: Mutex::new(record) }
    }

    /// Makes this record the only one found under the device's name, as [`StateDirectory::claim_name`], and writes it;
    /// durable on return.
    ///
    /// # Errors
    /// If records cannot be read or written.
    pub fn claim_name(&self, device: &DeviceSpec) -> Result<()> {
        let mut record = self.record.lock().expect("no thread panics while it holds the record");
        self.directory.claim_name(&mut record, device)?;
        self.directory.store(&record)
    }

    /// Keeps `next` from now on: the notes on the cache that takes the place of this one, with its volumes. This one has none
    /// any more: nobody is to serve their origins without the cache because of it. Durable on return.
    ///
    /// # Errors
    /// If records cannot be read or written; a crash, too, leaves notes that err to the safe side.
    pub fn succeed(&self, mut next: CacheRecord, device: &DeviceSpec) -> Result<()> {
        let mut record = self.record.lock().expect("no thread panics while it holds the record");
        next.volumes.clone_from(&record.volumes);
        next.settings.clone_from(&record.settings);
        next.cache_settings.clone_from(&record.cache_settings);
        self.directory.claim_name(&mut next, device)?;
        self.directory.store(&next)?;
        let mut left =
            self.directory.read(&self.directory.file(&record.set_id))?.unwrap_or_else(|| record.clone());
        left.volumes.clear();
        left.succeeded_by = Some(next.set_id.clone());
        self.directory.store(&left)?;
        *record = next;
        Ok(())
    }

    /// Bytes written to the cache by the sessions that were noted.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.record.lock().expect("no thread panics while it holds the record").written_bytes
    }

    /// Settings of the whole cache that were set, and what was noted of its wear budget.
    #[must_use]
    pub fn of_cache(&self) -> (Vec<Kept>, (u64, u64)) {
        let record = self.record.lock().expect("no thread panics while it holds the record");
        (record.cache_settings.clone(), record.wear)
    }

    /// Settings of a volume that were set.
    #[must_use]
    pub fn settings_of(&self, volume: &str) -> Vec<Kept> {
        let record = self.record.lock().expect("no thread panics while it holds the record");
        record.settings_of(volume).to_vec()
    }

    /// Changes the notes; durable on return. Writes nothing if `change` changes nothing.
    ///
    /// # Errors
    /// If the record cannot be written; the notes in memory are as before then.
    pub fn change(&self, change: impl FnOnce(&mut CacheRecord)) -> Result<()> {
        let mut record = self.record.lock().expect("no thread panics while it holds the record");
        let mut changed = record.clone();
        change(&mut changed);
        if changed != *record {
            self.directory.store(&changed)?;
            *record = changed;
        }
        Ok(())
    }

    /// Changes the note on one volume, as [`LiveRecord::change`].
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn change_volume(&self, id: u32, change: impl FnOnce(&mut VolumeNote)) -> Result<()> {
        self.change(|record| {
            if let Some(note) = record.volumes.iter_mut().find(|note| note.id == id) {
                change(note);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> StateDirectory {
        let path = std::env::temp_dir().join(format!("forebay-state-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        StateDirectory { path }
    }

    fn record(set_id: u8) -> CacheRecord {
        let note = VolumeNote {
            id: 1,
            name: "disk".to_owned(),
            origin: "/dev/\"odd\\name".to_owned(),
            identity: String::new(),
            size_bytes: 1 << 40,
            read_only: false,
            may_be_dirty: true,
            abandoned: false,
        };
        let set_id = hexadecimal(&[set_id; 16]);
        CacheRecord {
            set_id,
            caches: Vec::new(),
            superblock_update: 9,
            written_bytes: 7,
            cache_settings: vec![Kept::WearBudget(Some(1 << 40))],
            wear: (5, 6),
            succeeded_by: None,
            volumes: vec![note],
            settings: BTreeMap::from([("disk".to_owned(), vec![Kept::Iops(None)])]),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let directory = directory("round");
        assert_eq!(directory.load(&[7; 16]).unwrap(), None);
        directory.store(&record(7)).unwrap();
        assert_eq!(directory.load(&[7; 16]).unwrap(), Some(record(7)));
        fs::remove_dir_all(&directory.path).unwrap();
    }

    #[test]
    fn a_device_name_belongs_to_the_cache_served_last() {
        let directory = directory("claim");
        let device = live::devices::parse("/nowhere/cache.img").unwrap();
        let (mut old, mut new) = (record(1), record(2));
        directory.claim_name(&mut old, &device).unwrap();
        directory.store(&old).unwrap();
        assert_eq!(directory.find_by_device(&device).unwrap().unwrap().set_id, old.set_id);
        directory.claim_name(&mut new, &device).unwrap();
        directory.store(&new).unwrap();
        assert_eq!(directory.find_by_device(&device).unwrap().unwrap().set_id, new.set_id);
        assert!(directory.load(&[1; 16]).unwrap().unwrap().caches.is_empty());
        fs::remove_dir_all(&directory.path).unwrap();
    }

    #[test]
    fn damaged_notes_are_an_error_and_not_an_empty_record() {
        let directory = directory("damaged");
        directory.store(&record(3)).unwrap();
        fs::write(directory.file(&hexadecimal(&[3; 16])), "volumes = 7").unwrap();
        assert!(directory.load(&[3; 16]).is_err());
        fs::remove_dir_all(&directory.path).unwrap();
    }
}
