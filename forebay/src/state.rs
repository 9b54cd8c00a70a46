//! The state directory: facts about a cache that must be known even when the cache is gone.
//!
//! There is one small TOML file for each cache, named by its set id, which no other cache ever has; the
//! device names under which it was served are inside. A file is replaced as a whole (written
//! beside, synced, renamed, directory synced), so a crash leaves the old one or the new one.
//!
//! Of an ephemeral cache, whose device may be blank at any start, all is kept that another one needs to take its place
//! (`renewal.rs`), and which one that was: what comes back of the older one is void (rule 17).
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
use engine::effect::WriteMode;
use engine::format::VolumeRecord;
use engine::units::SECTOR_BYTES;
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
    /// The device names of both halves, the first half first; only of a mirrored cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halves: Option<[String; 2]>,
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
    /// Set id of the cache that took its place, in hexadecimal: what this one holds is void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
    /// How another one is made in its place; only of an ephemeral cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<Renewal>,
    /// Settings of the whole cache that were set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_settings: Vec<Kept>,
    /// Bytes that counted against the wear budget when that was noted, and when, in seconds since 1970.
    #[serde(default)]
    pub wear: (u64, u64),
    /// The last scrub of the whole cache that came to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrubbed: Option<ScrubNote>,
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

/// A scrub of the whole cache that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubNote {
    /// When it ended, in seconds since 1970.
    pub ended_seconds: u64,
    /// Blocks that were compared with their checksums.
    pub read_blocks: u64,
    /// Blocks that were damaged.
    pub damaged_blocks: u64,
}

/// How an ephemeral cache is made anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The name of its profile.
    pub profile: String,
    /// Its composition, as text.
    pub composition: String,
    /// Whether no space is reserved for it, if it is a file.
    pub is_sparse: bool,
    /// It was begun to be formatted in the place of another one, and is perhaps not whole.
    pub is_forming: bool,
    /// It was made anew, and is not filled from its warm list yet.
    #[serde(default)]
    pub is_cold: bool,
    /// The name of its warm list in the state directory, which was that of the caches before it, too.
    pub list: String,
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
    /// The loss at its origin of which no FLUSH has told clients yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untold: Option<UntoldNote>,
    /// The rest of its record in the superblock; only of an ephemeral cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordNote>,
}

/// A loss of which no FLUSH has told clients yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UntoldNote {
    /// The error number with which FLUSH has to fail.
    pub errno: i32,
    /// The machine's boot in hexadecimal: its clients end with it.
    pub boot: String,
}

/// The record of a volume, but for what its note has anyway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordNote {
    /// Its mode.
    pub mode: String,
    /// The smallest request its clients should send.
    pub sector_bytes: u32,
    /// Well-known places of its origin as they were when the cache was stopped; none while it is served: then they change
    /// and nobody notes that here.
    pub places: Vec<PlaceNote>,
}

/// The content of a well-known place of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceNote {
    /// Its offset.
    pub offset_bytes: u64,
    /// Its checksum.
    pub checksum: u32,
}

impl VolumeNote {
    /// The note on a volume of a cache that is not served, which may be dirty as `may_be_dirty` says.
    #[must_use]
    pub fn new(volume: &VolumeRecord, is_ephemeral: bool, may_be_dirty: bool) -> VolumeNote {
        VolumeNote {
            id: volume.id.0,
            name: volume.name.clone(),
            origin: volume.origin.clone(),
            identity: volume.identity.clone(),
            size_bytes: volume.size_sectors * SECTOR_BYTES,
            read_only: volume.mode == WriteMode::Readonly,
            may_be_dirty,
            abandoned: false,
            untold: None,
            record: is_ephemeral.then(|| RecordNote::new(volume)),
        }
    }
}

impl RecordNote {
    /// The note on what a superblock says of a volume.
    #[must_use]
    pub fn new(volume: &VolumeRecord) -> RecordNote {
        let places = volume.fingerprint.iter().flatten();
        RecordNote {
            mode: volume.mode.name().to_owned(),
            sector_bytes: volume.sector_bytes,
            places: places
                .map(|place| PlaceNote { offset_bytes: place.offset_bytes, checksum: place.checksum })
                .collect(),
        }
    }
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
        self.read(&self.file_named(&hexadecimal(set_id)))
    }

    /// As [`StateDirectory::load`]; an empty record if there is none.
    ///
    /// # Errors
    /// As there.
    pub fn load_or_new(&self, set_id: &[u8; 16]) -> Result<CacheRecord> {
        let new = || CacheRecord {
            set_id: hexadecimal(set_id),
            caches: Vec::new(),
            halves: None,
            superblock_update: 0,
            written_bytes: 0,
            cache_settings: Vec::new(),
            wear: (0, 0),
            succeeded_by: None,
            replaced_by: None,
            renewal: None,
            scrubbed: None,
            volumes: Vec::new(),
            settings: BTreeMap::new(),
        };
        Ok(self.load(set_id)?.unwrap_or_else(new))
    }

    /// The warm list that is kept here of a cache.
    #[must_use]
    pub fn list_of(&self, record: &CacheRecord) -> PathBuf {
        let own = format!("{}.warm", record.set_id);
        self.path.join(record.renewal.as_ref().map_or(own, |renewal| renewal.list.clone()))
    }

    /// The file with the record of a cache.
    #[must_use]
    pub fn file_of(&self, set_id: &[u8; 16]) -> PathBuf {
        self.file_named(&hexadecimal(set_id))
    }

    /// The name of the cache that is the one today in the line of the cache with this set id.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn name_of_line(&self, set_id: &[u8; 16]) -> Result<Option<String>> {
        let mut set_id = hexadecimal(set_id);
        for _ in 0..LINE_MAX {
            let Some(record) = self.read(&self.file_named(&set_id))? else { return Ok(None) };
            match record.succeeded_by {
                Some(next) => set_id = next,
                None => return Ok(record.caches.last().cloned()),
            }
        }
        Ok(None)
    }

    /// The record of the cache that was last served under this device name: as it is written, or else where it leads. Where
    /// two have it, a crash came between the notes on a cache and the one whose place it takes: the former counts.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn find_by_device(&self, device: &DeviceSpec) -> Result<Option<CacheRecord>> {
        let all = self.all()?;
        let is_forming =
            |record: &&CacheRecord| record.renewal.as_ref().is_some_and(|renewal| renewal.is_forming);
        let found = names_of(device).into_iter().find_map(|name| {
            all.iter().filter(|record| record.caches.contains(&name)).max_by_key(is_forming)
        });
        Ok(found.cloned())
    }

    /// Gives the device's name to the new cache `record`, and notes of the ephemeral one with the set id `gone`, and of those
    /// that had the name, that it took their place; durable on return. From then on what they hold is void, should they come
    /// back.
    ///
    /// # Errors
    /// If records cannot be read or written.
    pub fn replace_by(
        &self,
        record: &mut CacheRecord,
        device: &DeviceSpec,
        gone: Option<&str>,
    ) -> Result<()> {
        let names = names_of(device);
        record.caches.clone_from(&names);
        // At each moment one of them is found by the name.
        self.store(record)?;
        for mut other in self.all()?.into_iter().filter(|other| other.set_id != record.set_id) {
            let before = other.clone();
            let has_place = names.first().is_some_and(|name| other.caches.contains(name));
            if other.renewal.is_some() && (has_place || gone == Some(other.set_id.as_str())) {
                other.replaced_by = Some(record.set_id.clone());
            }
            other.caches.retain(|name| !names.contains(name));
            if other != before {
                self.store(&other)?;
            }
        }
        Ok(())
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
            Err(error) => {
                let path = path.display();
                let advice = match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        "; run it as the user who made the cache, or see --state-dir"
                    }
                    _ => "",
                };
                return Err(error).with_context(|| format!("cannot read the notes in {path}{advice}"));
            }
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
        let path = self.file_named(&record.set_id);
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
        replace_file(path, toml::to_string(record)?.as_bytes())?;
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

    /// The same, by its set id in hexadecimal.
    #[must_use]
    pub fn file_named(&self, set_id: &str) -> PathBuf {
        self.path.join(format!("{set_id}.toml"))
    }
}

/// Writes a file as a whole, durably: a crash leaves the old one or the new one.
///
/// # Errors
/// If it cannot be written.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // With the whole name: of a cache there are a record and a list, which may be written at the same time.
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
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

    /// Makes this record the only one found under these names of devices, as [`StateDirectory::claim_name`], the first of them
    /// being the newest, notes the halves of a mirrored cache, and writes it; durable on return.
    ///
    /// # Errors
    /// If records cannot be read or written.
    pub fn claim_names(&self, devices: &[DeviceSpec], halves: Option<&[String; 2]>) -> Result<()> {
        let mut record = self.record.lock().expect("no thread panics while it holds the record");
        for device in devices.iter().rev() {
            self.directory.claim_name(&mut record, device)?;
        }
        record.halves = halves.cloned();
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
        next.renewal.clone_from(&record.renewal);
        next.cache_settings.clone_from(&record.cache_settings);
        self.directory.claim_name(&mut next, device)?;
        self.directory.store(&next)?;
        let mut left = self
            .directory
            .read(&self.directory.file_named(&record.set_id))?
            .unwrap_or_else(|| record.clone());
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

    /// The last scrub that came to its end, and the days from one to the next, if they were set.
    #[must_use]
    pub fn scrubs(&self) -> (Option<ScrubNote>, Option<Option<u16>>) {
        let record = self.record.lock().expect("no thread panics while it holds the record");
        let days = record.cache_settings.iter().find_map(|kept| match kept {
            Kept::ScrubDays(days) => Some(*days),
            _ => None,
        });
        (record.scrubbed, days)
    }

    /// Settings of a volume that were set.
    #[must_use]
    pub fn settings_of(&self, volume: &str) -> Vec<Kept> {
        let record = self.record.lock().expect("no thread panics while it holds the record");
        record.settings_of(volume).to_vec()
    }

    /// The error number of a loss since this boot of which no FLUSH has told clients of the volume.
    #[must_use]
    pub fn untold(&self, id: u32, boot: &str) -> Option<i32> {
        let record = self.record.lock().expect("no thread panics while it holds the record");
        let noted = record.volumes.iter().find(|note| note.id == id)?.untold.as_ref();
        noted.filter(|untold| untold.boot == boot).map(|untold| untold.errno)
    }

    /// The warm list that is kept of the cache, or was.
    #[must_use]
    pub fn list(&self) -> PathBuf {
        let record = self.record.lock().expect("no thread panics while it holds the record");
        self.directory.list_of(&record)
    }

    /// Whether the cache was made anew, and is not filled from its warm list yet.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        let record = self.record.lock().expect("no thread panics while it holds the record");
        record.renewal.as_ref().is_some_and(|renewal| renewal.is_cold)
    }

    /// Notes that it is filled; durable on return.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn note_warm(&self) -> Result<()> {
        self.change(|record| record.renewal.iter_mut().for_each(|renewal| renewal.is_cold = false))
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

    /// Changes the notes to what is so already; durable on return.
    ///
    /// # Errors
    /// If the record cannot be written; the next change writes it, too.
    pub fn follow(&self, change: impl FnOnce(&mut CacheRecord)) -> Result<()> {
        let mut record = self.record.lock().expect("no thread panics while it holds the record");
        change(&mut record);
        self.directory.store(&record)
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
    use std::thread;

    /// The record and the warm list of a cache have the same stem.
    #[test]
    fn files_of_a_cache_are_replaced_at_the_same_time() {
        let directory = directory("written");
        fs::create_dir(&directory.path).unwrap();
        let [record, list] = ["00.toml", "00.warm"].map(|name| directory.path.join(name));
        thread::scope(|scope| {
            for (path, bytes) in [(&record, b"record".repeat(100)), (&list, b"list".repeat(100_000))] {
                scope.spawn(move || {
                    for _ in 0..100 {
                        replace_file(path, &bytes).unwrap();
                        assert!(
                            fs::read(path).unwrap() == bytes,
                            "{} has another one's content",
                            path.display()
                        );
                    }
                });
            }
        });
        fs::remove_dir_all(&directory.path).unwrap();
    }

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
            untold: Some(UntoldNote { errno: 5, boot: "b".to_owned() }),
            record: Some(RecordNote {
                mode: "writethrough".to_owned(),
                sector_bytes: 512,
                places: vec![PlaceNote { offset_bytes: 4096, checksum: 7 }],
            }),
        };
        let set_id = hexadecimal(&[set_id; 16]);
        CacheRecord {
            set_id,
            caches: Vec::new(),
            halves: Some(["/dev/a".to_owned(), "/dev/b".to_owned()]),
            superblock_update: 9,
            written_bytes: 7,
            cache_settings: vec![Kept::WearBudget(Some(1 << 40))],
            wear: (5, 6),
            succeeded_by: None,
            replaced_by: None,
            renewal: Some(Renewal {
                profile: "forebay".to_owned(),
                composition: "a = b\nc = \"d\"\n".to_owned(),
                is_sparse: false,
                is_forming: false,
                is_cold: false,
                list: "x.warm".to_owned(),
            }),
            scrubbed: Some(ScrubNote { ended_seconds: 1, read_blocks: 2, damaged_blocks: 0 }),
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
    fn a_cache_that_took_the_place_of_others_is_found_and_they_are_void() {
        let directory = directory("replaced");
        let device = live::devices::parse("/nowhere/cache.img").unwrap();
        let (mut old, mut new) = (record(1), record(2));
        new.renewal.as_mut().unwrap().is_forming = true;
        directory.claim_name(&mut old, &device).unwrap();
        directory.store(&old).unwrap();
        // A crash came between the two notes.
        new.caches.clone_from(&old.caches);
        directory.store(&new).unwrap();
        assert_eq!(directory.find_by_device(&device).unwrap().unwrap().set_id, new.set_id);
        assert_eq!(directory.load(&[1; 16]).unwrap().unwrap().replaced_by, None);
        let mut third = record(3);
        directory.replace_by(&mut third, &device, Some(&new.set_id)).unwrap();
        assert_eq!(directory.find_by_device(&device).unwrap().unwrap().set_id, third.set_id);
        for void in [1, 2] {
            let void = directory.load(&[void; 16]).unwrap().unwrap();
            assert_eq!((void.replaced_by, void.caches), (Some(third.set_id.clone()), Vec::new()));
        }
        fs::remove_dir_all(&directory.path).unwrap();
    }

    #[test]
    fn damaged_notes_are_an_error_and_not_an_empty_record() {
        let directory = directory("damaged");
        directory.store(&record(3)).unwrap();
        fs::write(directory.file_named(&hexadecimal(&[3; 16])), "volumes = 7").unwrap();
        assert!(directory.load(&[3; 16]).is_err());
        fs::remove_dir_all(&directory.path).unwrap();
    }
}
