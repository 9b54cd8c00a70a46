//! The superblock of a cache: one page of facts, kept twice.
//!
//! ```text
//!   0 .. 4096      the cache's own fields
//!   4096 + 2048·n  the record of volume slot n
//!   36864 .. 61442 the composition, as text
//!   61952 .. 65536 the last changes of settings
//! ```

use super::bytes::{array, counter_at, put, seal, u8_at, u16_at, u32_at, u64_at, unseal};
use super::geometry::Geometry;
use super::history::{HISTORY_BYTES, History};
use super::key_layout::{KEY_LAYOUT_BYTES, KeyLayout};
use super::slot_layout::{SLOT_LAYOUT_BYTES, SlotLayout};
use super::succession::{LINE_BYTES, Line};
use super::{COUNTER_END, FormatError, SUPERBLOCK_BYTES, SetId, VERSION};
use crate::effect::WriteMode;
use crate::number::to_u16;
use crate::units::{SECTORS_PER_BLOCK, VOLUME_BLOCKS_MAX, VOLUMES_MAX, VolumeId};
use alloc::string::String;

const MAGIC: [u8; 8] = *b"FOREBAY\0";
/// Bytes of a volume's name, and of a profile's, at the most.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of an origin's name at the most.
pub const ORIGIN_BYTES_MAX: usize = 1024;
/// Bytes of an origin's identity at the most.
pub const IDENTITY_BYTES_MAX: usize = 256;
/// Places of an origin whose content is remembered, at the most.
pub const FINGERPRINTS_MAX: usize = 16;

const KIND_AT: usize = 15;
const EPHEMERAL_AT: usize = 86;
const MIRRORED_AT: usize = 87;
const PROFILE_AT: usize = 88;
const SLOTS_AT: usize = PROFILE_AT + NAME_BYTES_MAX;
const VOLUMES_AT: usize = 4096;
const FLUSHED_AT: usize = VOLUMES_AT - 8;
const VOLUME_BYTES: usize = 2048;
const VOLUME_NAME_AT: usize = 32;
const VOLUME_IDENTITY_AT: usize = VOLUME_NAME_AT + NAME_BYTES_MAX;
const VOLUME_ORIGIN_AT: usize = VOLUME_IDENTITY_AT + IDENTITY_BYTES_MAX;
const VOLUME_FINGERPRINTS_AT: usize = VOLUME_ORIGIN_AT + ORIGIN_BYTES_MAX;
const FINGERPRINT_BYTES: usize = 16;

/// Where the place in a line of caches is.
const LINE_AT: usize = FLUSHED_AT - LINE_BYTES;
/// Bytes of the name of a machine's boot.
pub const BOOT_BYTES: usize = 16;
const LASTING_BOOT_AT: usize = LINE_AT - BOOT_BYTES;
const ORDERED_AT: usize = LASTING_BOOT_AT - 8;
const _: () = assert!(SLOTS_AT + SLOT_LAYOUT_BYTES <= ORDERED_AT);
const _: () = assert!(KEY_LAYOUT_BYTES <= SLOT_LAYOUT_BYTES);
const _: () = assert!(VOLUME_FINGERPRINTS_AT + FINGERPRINTS_MAX * FINGERPRINT_BYTES <= VOLUME_BYTES);
const COMPOSITION_AT: usize = VOLUMES_AT + VOLUMES_MAX * VOLUME_BYTES;
/// Bytes of a composition's text at the most.
pub const COMPOSITION_BYTES_MAX: usize = 24 * 1024;
const HISTORY_AT: usize = SUPERBLOCK_BYTES - HISTORY_BYTES;
const _: () = assert!(COMPOSITION_AT + 2 + COMPOSITION_BYTES_MAX <= HISTORY_AT);

/// The superblock of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Tells this cache from all others.
    pub set_id: SetId,
    /// Counts the writes of the superblock: of two copies the higher one is right.
    pub update: u64,
    /// The session that runs, or ran last.
    pub session: u64,
    /// The last batch that is valid of all sessions before this one (rule 6). 0 on a new cache.
    pub cut_sequence: u64,
    /// The last batch that is known to be flushed since the cut (rule 5): all of the log after a clean stop. 0 where nothing was
    /// noted. Not the cut itself: what an earlier session left behind the cut stays dead.
    pub flushed_sequence: u64,
    /// The log holds nothing below this sequence and needs nothing from there. 1 on a new cache; higher only after a repair.
    pub base_sequence: u64,
    /// The last batch of the strict order that ended last: all up to it is home. 0 if none did.
    pub ordered_sequence: u64,
    /// Whether the last session ended cleanly and none began since.
    pub clean_stop: bool,
    /// The boot of the machine whose memory the last session had late headers in (rule 21); zeroes if it had none.
    pub lasting_boot: [u8; BOOT_BYTES],
    /// Whether the device may be blank, or an older one, at any start: no volume is in writeback then (rule 17).
    pub is_ephemeral: bool,
    /// Whether the device is one of two: without a page it tells nobody whether it has everything (rule 20).
    pub is_mirrored: bool,
    /// The device's size when it was formatted.
    pub cache_bytes: u64,
    /// How it is divided.
    pub layout: Layout,
    /// The name of the profile; not empty.
    pub profile: String,
    /// The composition of the cache as text, at most [`COMPOSITION_BYTES_MAX`] bytes; empty for that of the profile `forebay`.
    pub composition: String,
    /// The id that the next new volume gets; not 0.
    pub next_volume_id: u32,
    /// The volumes by slot.
    pub volumes: [Option<VolumeRecord>; VOLUMES_MAX],
    /// The last changes of settings.
    pub history: History,
    /// Its place in a line of caches that took each other's places.
    pub line: Line,
}

/// How a cache device is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Into a ring of segments, to which everything is appended.
    Log(Geometry),
    /// Into slots of one size, each of which holds a piece of a volume.
    Slots(SlotLayout),
    /// Into a ring of segments for keys, and buckets for their data.
    Keys(KeyLayout),
    /// Into a ring of segments, and frames of one block for clean data, in groups.
    Frames(KeyLayout),
}

impl Layout {
    /// The number of each kind.
    const LOG: u8 = 0;
    const KEYS: u8 = 1;
    const SLOTS: u8 = 2;
    const FRAMES: u8 = 3;

    fn validate(&self, cache_bytes: u64) -> Result<(), FormatError> {
        match self {
            Layout::Log(geometry) => geometry.validate(cache_bytes),
            Layout::Slots(slots) => slots.validate(cache_bytes),
            Layout::Keys(keys) | Layout::Frames(keys) => keys.validate(cache_bytes),
        }
    }

    fn encode(&self, bytes: &mut [u8]) {
        match self {
            Layout::Log(geometry) => {
                bytes[KIND_AT] = Layout::LOG;
                put(bytes, 72, &geometry.segment_blocks.to_le_bytes());
                put(bytes, 76, &geometry.segments.to_le_bytes());
            }
            Layout::Slots(slots) => {
                bytes[KIND_AT] = Layout::SLOTS;
                slots.encode(&mut bytes[SLOTS_AT..SLOTS_AT + SLOT_LAYOUT_BYTES]);
            }
            Layout::Keys(keys) | Layout::Frames(keys) => {
                Layout::Log(keys.geometry).encode(bytes);
                bytes[KIND_AT] = if matches!(self, Layout::Keys(_)) { Layout::KEYS } else { Layout::FRAMES };
                keys.encode(&mut bytes[SLOTS_AT..SLOTS_AT + KEY_LAYOUT_BYTES]);
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<Layout, FormatError> {
        let geometry = Geometry { segment_blocks: u32_at(bytes, 72)?, segments: u32_at(bytes, 76)? };
        match u8_at(bytes, KIND_AT)? {
            Layout::LOG => Ok(Layout::Log(geometry)),
            Layout::KEYS => Ok(Layout::Keys(KeyLayout::decode(geometry, &bytes[SLOTS_AT..])?)),
            Layout::FRAMES => Ok(Layout::Frames(KeyLayout::decode(geometry, &bytes[SLOTS_AT..])?)),
            Layout::SLOTS => Ok(Layout::Slots(SlotLayout::decode(&bytes[SLOTS_AT..], u64_at(bytes, 64)?)?)),
            _ => Err(FormatError::Field("layout")),
        }
    }
}

/// A volume, as the superblock remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Its number, never given to another one.
    pub id: VolumeId,
    /// Its name, 1 to [`NAME_BYTES_MAX`] bytes; no other volume has it.
    pub name: String,
    /// Its origin as named by the operator, 1 to [`ORIGIN_BYTES_MAX`] bytes.
    pub origin: String,
    /// A mark that tells the origin from other devices, at most [`IDENTITY_BYTES_MAX`] bytes; empty if it has nothing stable.
    pub identity: String,
    /// Its size in sectors; not 0.
    pub size_sectors: u64,
    /// The smallest range that clients may name: 512 to 4096, a power of two.
    pub sector_bytes: u32,
    /// How writes are treated.
    pub mode: WriteMode,
    /// In a log, clean entries of this volume in batches below this one are void. In slots, the number under which the
    /// volume's slots were recorded: if it has another one now, those records are void.
    pub clean_floor_sequence: u64,
    /// Checks of what the origin held at well-known places.
    pub fingerprint: [Option<Fingerprint>; FINGERPRINTS_MAX],
}

/// The content of a block of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Where the block is on the origin.
    pub offset_bytes: u64,
    /// Its CRC-32C.
    pub checksum: u32,
}

impl Superblock {
    /// The superblock of a new cache of the profile `forebay` without volumes, which no session has used.
    #[must_use]
    pub fn of_new_cache(set_id: SetId, cache_bytes: u64, layout: Layout) -> Superblock {
        Superblock {
            set_id,
            update: 0,
            session: 0,
            cut_sequence: 0,
            flushed_sequence: 0,
            base_sequence: 1,
            ordered_sequence: 0,
            clean_stop: true,
            lasting_boot: [0; BOOT_BYTES],
            is_ephemeral: false,
            is_mirrored: false,
            cache_bytes,
            layout,
            profile: String::from("forebay"),
            composition: String::new(),
            next_volume_id: 1,
            volumes: Default::default(),
            history: History::default(),
            line: Line::default(),
        }
    }

    /// Puts volumes into the first slots. The next new one gets the id behind all of theirs.
    ///
    /// # Panics
    /// If they are more than [`VOLUMES_MAX`].
    #[must_use]
    pub fn with_volumes(mut self, volumes: impl IntoIterator<Item = VolumeRecord>) -> Superblock {
        for (at, volume) in volumes.into_iter().enumerate() {
            self.next_volume_id = self.next_volume_id.max(volume.id.0 + 1);
            self.volumes[at] = Some(volume);
        }
        self
    }

    /// The ring of segments; without any where the device is divided otherwise.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        match self.layout {
            Layout::Log(geometry)
            | Layout::Keys(KeyLayout { geometry, .. })
            | Layout::Frames(KeyLayout { geometry, .. }) => geometry,
            Layout::Slots(_) => Geometry { segment_blocks: 0, segments: 0 },
        }
    }

    /// Whether all fields have values that may be written.
    ///
    /// # Errors
    /// [`FormatError::Field`] with the first one that has not.
    pub fn validate(&self) -> Result<(), FormatError> {
        let counters =
            [self.update, self.session, self.cut_sequence, self.flushed_sequence, self.ordered_sequence];
        if counters.into_iter().any(|counter| counter > COUNTER_END) {
            return Err(FormatError::Field("session"));
        }
        if self.base_sequence == 0 || self.base_sequence - 1 > self.cut_sequence {
            return Err(FormatError::Field("base_sequence"));
        }
        self.layout.validate(self.cache_bytes)?;
        check_text(&self.profile, 1, NAME_BYTES_MAX, "profile")?;
        if self.composition.len() > COMPOSITION_BYTES_MAX {
            return Err(FormatError::Field("composition"));
        }
        if self.next_volume_id == 0 {
            return Err(FormatError::Field("next_volume_id"));
        }
        for (at, volume) in self.volumes.iter().enumerate() {
            let Some(volume) = volume else { continue };
            volume.validate()?;
            // RULE 17: what is dirty would be nowhere else.
            if self.is_ephemeral && volume.mode == WriteMode::Writeback {
                return Err(FormatError::Field("volume mode"));
            }
            if volume.id.0 == 0 || volume.id.0 >= self.next_volume_id {
                return Err(FormatError::Field("volume id"));
            }
            let mut others = self.volumes[..at].iter().flatten();
            if others.any(|other| other.id == volume.id || other.name == volume.name) {
                return Err(FormatError::Field("volume name"));
            }
        }
        Ok(())
    }

    /// Writes the superblock to `bytes`, which are [`SUPERBLOCK_BYTES`].
    ///
    /// # Panics
    /// If `bytes` has another length, or [`Superblock::validate`] fails.
    pub fn encode(&self, bytes: &mut [u8]) {
        assert!(bytes.len() == SUPERBLOCK_BYTES);
        assert_eq!(self.validate(), Ok(()), "only allowed superblocks are written");
        bytes.fill(0);
        bytes[14] = u8::from(self.clean_stop);
        put(bytes, 16, &self.set_id);
        put(bytes, 32, &self.update.to_le_bytes());
        put(bytes, 40, &self.session.to_le_bytes());
        put(bytes, 48, &self.cut_sequence.to_le_bytes());
        put(bytes, FLUSHED_AT, &self.flushed_sequence.to_le_bytes());
        put(bytes, 56, &self.base_sequence.to_le_bytes());
        put(bytes, 64, &self.cache_bytes.to_le_bytes());
        self.layout.encode(bytes);
        put(bytes, 80, &self.next_volume_id.to_le_bytes());
        put(bytes, 84, &to_u16(self.profile.len()).to_le_bytes());
        bytes[EPHEMERAL_AT] = u8::from(self.is_ephemeral);
        bytes[MIRRORED_AT] = u8::from(self.is_mirrored);
        put(bytes, PROFILE_AT, self.profile.as_bytes());
        put(bytes, COMPOSITION_AT, &to_u16(self.composition.len()).to_le_bytes());
        put(bytes, COMPOSITION_AT + 2, self.composition.as_bytes());
        for (volume, slot) in self.volumes.iter().zip(bytes[VOLUMES_AT..].chunks_exact_mut(VOLUME_BYTES)) {
            if let Some(volume) = volume {
                volume.encode(slot);
            }
        }
        put(bytes, ORDERED_AT, &self.ordered_sequence.to_le_bytes());
        put(bytes, LASTING_BOOT_AT, &self.lasting_boot);
        self.line.encode(&mut bytes[LINE_AT..FLUSHED_AT]);
        self.history.encode(&mut bytes[HISTORY_AT..]);
        seal(bytes, MAGIC, VERSION);
    }

    /// Reads a superblock from the first [`SUPERBLOCK_BYTES`] of `bytes`.
    ///
    /// # Errors
    /// Any [`FormatError`]; [`FormatError::Magic`] if this is no superblock at all.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, FormatError> {
        if array::<8>(bytes, 0)? != MAGIC {
            return Err(FormatError::Magic);
        }
        let bytes = bytes.get(..SUPERBLOCK_BYTES).ok_or(FormatError::Truncated)?;
        unseal(bytes, MAGIC, VERSION)?;
        let mut volumes: [Option<VolumeRecord>; VOLUMES_MAX] = Default::default();
        for (volume, slot) in volumes.iter_mut().zip(bytes[VOLUMES_AT..].chunks_exact(VOLUME_BYTES)) {
            *volume = VolumeRecord::decode(slot)?;
        }
        let superblock = Superblock {
            set_id: array(bytes, 16)?,
            update: counter_at(bytes, 32, "update")?,
            session: counter_at(bytes, 40, "session")?,
            cut_sequence: counter_at(bytes, 48, "cut_sequence")?,
            flushed_sequence: counter_at(bytes, FLUSHED_AT, "flushed_sequence")?,
            base_sequence: u64_at(bytes, 56)?,
            ordered_sequence: counter_at(bytes, ORDERED_AT, "ordered_sequence")?,
            clean_stop: flag(u8_at(bytes, 14)?, "clean_stop")?,
            is_ephemeral: flag(u8_at(bytes, EPHEMERAL_AT)?, "is_ephemeral")?,
            is_mirrored: flag(u8_at(bytes, MIRRORED_AT)?, "is_mirrored")?,
            cache_bytes: u64_at(bytes, 64)?,
            layout: Layout::decode(bytes)?,
            profile: text(bytes, PROFILE_AT, u16_at(bytes, 84)?, NAME_BYTES_MAX, "profile")?,
            composition: text(
                bytes,
                COMPOSITION_AT + 2,
                u16_at(bytes, COMPOSITION_AT)?,
                COMPOSITION_BYTES_MAX,
                "composition",
            )?,
            next_volume_id: u32_at(bytes, 80)?,
            volumes,
            lasting_boot: array(bytes, LASTING_BOOT_AT)?,
            history: History::decode(&bytes[HISTORY_AT..])?,
            line: Line::decode(&bytes[LINE_AT..FLUSHED_AT])?,
        };
        superblock.validate()?;
        Ok(superblock)
    }
}

impl VolumeRecord {
    /// A volume in writeback with sectors of 512 bytes, over an origin of which nothing else is known.
    #[must_use]
    pub fn new(id: VolumeId, name: &str, origin: &str, size_sectors: u64) -> VolumeRecord {
        VolumeRecord {
            id,
            name: String::from(name),
            origin: String::from(origin),
            identity: String::new(),
            size_sectors,
            sector_bytes: 512,
            mode: WriteMode::Writeback,
            clean_floor_sequence: 0,
            fingerprint: Default::default(),
        }
    }

    fn validate(&self) -> Result<(), FormatError> {
        check_text(&self.name, 1, NAME_BYTES_MAX, "volume name")?;
        check_text(&self.origin, 1, ORIGIN_BYTES_MAX, "volume origin")?;
        check_text(&self.identity, 0, IDENTITY_BYTES_MAX, "volume identity")?;
        if self.size_sectors == 0 || self.size_sectors > VOLUME_BLOCKS_MAX * SECTORS_PER_BLOCK {
            return Err(FormatError::Field("volume size_sectors"));
        }
        if !self.sector_bytes.is_power_of_two() || !(512..=4096).contains(&self.sector_bytes) {
            return Err(FormatError::Field("volume sector_bytes"));
        }
        Ok(())
    }

    fn encode(&self, slot: &mut [u8]) {
        slot[0] = 1;
        slot[1] = mode_code(self.mode);
        put(slot, 2, &to_u16(self.name.len()).to_le_bytes());
        put(slot, 4, &to_u16(self.origin.len()).to_le_bytes());
        put(slot, 6, &to_u16(self.identity.len()).to_le_bytes());
        put(slot, 8, &self.id.0.to_le_bytes());
        put(slot, 12, &self.sector_bytes.to_le_bytes());
        put(slot, 16, &self.size_sectors.to_le_bytes());
        put(slot, 24, &self.clean_floor_sequence.to_le_bytes());
        put(slot, VOLUME_NAME_AT, self.name.as_bytes());
        put(slot, VOLUME_IDENTITY_AT, self.identity.as_bytes());
        put(slot, VOLUME_ORIGIN_AT, self.origin.as_bytes());
        for (place, field) in
            self.fingerprint.iter().zip(slot[VOLUME_FINGERPRINTS_AT..].chunks_exact_mut(FINGERPRINT_BYTES))
        {
            if let Some(place) = place {
                field[0] = 1;
                put(field, 4, &place.checksum.to_le_bytes());
                put(field, 8, &place.offset_bytes.to_le_bytes());
            }
        }
    }

    fn decode(slot: &[u8]) -> Result<Option<VolumeRecord>, FormatError> {
        if !flag(u8_at(slot, 0)?, "volume slot")? {
            return Ok(None);
        }
        let code = u8_at(slot, 1)?;
        let mode = WriteMode::ALL.into_iter().map(|(mode, _)| mode).find(|mode| mode_code(*mode) == code);
        let mut fingerprint = [None; FINGERPRINTS_MAX];
        for (place, field) in
            fingerprint.iter_mut().zip(slot[VOLUME_FINGERPRINTS_AT..].chunks_exact(FINGERPRINT_BYTES))
        {
            if flag(u8_at(field, 0)?, "volume fingerprint")? {
                *place = Some(Fingerprint { offset_bytes: u64_at(field, 8)?, checksum: u32_at(field, 4)? });
            }
        }
        Ok(Some(VolumeRecord {
            id: VolumeId(u32_at(slot, 8)?),
            name: text(slot, VOLUME_NAME_AT, u16_at(slot, 2)?, NAME_BYTES_MAX, "volume name")?,
            origin: text(slot, VOLUME_ORIGIN_AT, u16_at(slot, 4)?, ORIGIN_BYTES_MAX, "volume origin")?,
            identity: text(
                slot,
                VOLUME_IDENTITY_AT,
                u16_at(slot, 6)?,
                IDENTITY_BYTES_MAX,
                "volume identity",
            )?,
            size_sectors: u64_at(slot, 16)?,
            sector_bytes: u32_at(slot, 12)?,
            mode: mode.ok_or(FormatError::Field("volume mode"))?,
            clean_floor_sequence: u64_at(slot, 24)?,
            fingerprint,
        }))
    }
}

fn mode_code(mode: WriteMode) -> u8 {
    match mode {
        WriteMode::Writeback => 1,
        WriteMode::Writethrough => 2,
        WriteMode::Writearound => 3,
        WriteMode::Passthrough => 4,
        WriteMode::Readonly => 5,
    }
}

fn flag(byte: u8, field: &'static str) -> Result<bool, FormatError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FormatError::Field(field)),
    }
}

fn text(bytes: &[u8], at: usize, len: u16, max: usize, field: &'static str) -> Result<String, FormatError> {
    let len = usize::from(len);
    if len > max {
        return Err(FormatError::Field(field));
    }
    let bytes = bytes.get(at..at + len).ok_or(FormatError::Truncated)?;
    core::str::from_utf8(bytes).map(String::from).map_err(|_| FormatError::Field(field))
}

fn check_text(text: &str, min: usize, max: usize, field: &'static str) -> Result<(), FormatError> {
    // A control character would garble every line that prints the name.
    if (min..=max).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(());
    }
    Err(FormatError::Field(field))
}
