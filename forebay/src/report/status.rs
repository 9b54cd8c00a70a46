//! Report of `status`.

use super::{ChangeReport, ClientsReport, Division, HalfReport, PaceReport, ScrubReport, halves};
use crate::output::Size;
use crate::setting::VolumeSettings;
use crate::state::hexadecimal;
use engine::composition::Composition;
use engine::composition::axes::Axis;
use engine::composition::contract::Aftermath;
use engine::effect::WriteMode;
use engine::format::Superblock;
use engine::recovery;
use engine::status::{CacheStatus, OrderStatus, VolumeStatus, WearStatus, WrittenBytes};
use engine::units::BLOCK_BYTES;
use live::devices::DeviceSpec;
use live::limits::Limits;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::time::Duration;

/// `status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusReport {
    /// Whether a daemon serves it now.
    pub running: bool,
    /// Reasons why a start would refuse it or one of its volumes, as far as that is seen from outside; none if it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// The volumes.
    pub volumes: Vec<VolumeReport>,
    /// The cache device; absent if it is missing and the origins are served alone.
    pub cache: Option<CacheReport>,
    /// The number of this session, or of the last one.
    pub session: u64,
    /// Findings of the last start; absent if there was none.
    pub recovery: Option<RecoveryReport>,
    /// Addresses for NBD clients.
    pub nbd: Vec<String>,
    /// Its clients; absent if it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientsReport>,
    /// The address of its metrics, if it serves them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// The address of its web page, if it serves one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web: Option<String>,
    /// The age of the oldest dirty data, 0 if there is none; absent if it does not run, or without the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_dirty_seconds: Option<f64>,
    /// Bytes that are left to read of a warm-up; absent if none is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warming_left_bytes: Option<u64>,
    /// Its scrubs; absent if it does not run, or without the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<ScrubReport>,
    /// The configuration file that it was started with, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The last changes of its settings, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ChangeReport>,
}

/// One volume in `status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Its name, which is the name of its NBD export.
    pub name: String,
    /// Its origin, as a device name.
    pub origin: String,
    /// The block device that it is on this machine; absent if it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The mode whose risks it has now.
    pub mode: String,
    /// The mode that writes follow.
    pub mode_target: String,
    /// Whether it writes through until both halves of the mirrored cache count, although its mode is writeback.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lone_half: bool,
    /// The mode that the configuration file says, if it says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_configured: Option<String>,
    /// The limits of its clients.
    #[serde(default)]
    pub limits: LimitsReport,
    /// Whether destage that nobody waits for is held back now.
    #[serde(default)]
    pub destage_held_back: bool,
    /// Whether long writes go around the cache now, because it has no room until more is home.
    #[serde(default)]
    pub flooded: bool,
    /// How far the origin lags behind in strict order; absent where blocks go home in any order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderReport>,
    /// Settings that the configuration file says and that were set otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub configured: Vec<String>,
    /// How it is doing: active, draining, origin-failing, origin-absent, uncached, failed, detaching,
    /// origin-missing, abandoned.
    pub state: String,
    /// Its size.
    pub size_bytes: u64,
    /// Dirty data: bytes that the origin does not have yet.
    pub dirty_bytes: u64,
    /// Limit of its dirty data now; absent if only the cache's room limits it. Writes that need more wait for the
    /// origin, or fail while that is absent.
    pub dirty_limit_bytes: Option<u64>,
    /// Dirty data that rotted in the cache.
    pub lost_bytes: u64,
    /// Bytes that the cache holds of it.
    pub cached_bytes: u64,
    /// Errors of the origin since the start.
    pub origin_errors: u64,
    /// Time for which the origin's server is away; absent while it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_away_seconds: Option<f64>,
    /// Why it cannot be had now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_away_because: Option<String>,
    /// Whether it is served without its cache.
    pub uncached: bool,
    /// Bytes that went home each second, over the last ten seconds.
    #[serde(default)]
    pub destage_bytes_per_second: u64,
}

/// How far an origin lags behind its volume in strict order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderReport {
    /// Bytes that a loss of the cache would take now.
    pub lag_bytes: u64,
    /// The most before writes wait.
    pub lag_limit_bytes: u64,
    /// The age of the oldest of it.
    pub lag_seconds: f64,
    /// The highest age before writes wait.
    pub lag_limit_seconds: f64,
    /// Flushed states that the origin has yet to go through.
    pub intervals: u64,
}

impl From<OrderStatus> for OrderReport {
    fn from(order: OrderStatus) -> OrderReport {
        let seconds = |ns: u64| ns as f64 / 1e9;
        OrderReport {
            lag_bytes: order.lag_bytes,
            lag_limit_bytes: order.lag_limit_bytes,
            lag_seconds: seconds(order.lag_ns),
            lag_limit_seconds: seconds(order.lag_limit_ns),
            intervals: order.intervals,
        }
    }
}

impl OrderReport {
    fn print(&self, to: &mut impl Write) -> io::Result<()> {
        let OrderReport { lag_bytes, lag_limit_bytes, lag_seconds, lag_limit_seconds, .. } = *self;
        writeln!(
            to,
            "order      strict: without the cache the origin is a disk of {lag_seconds:.1} s ago, {} behind; at most \
             {lag_limit_seconds:.0} s, {}",
            Size(lag_bytes),
            Size(lag_limit_bytes)
        )
    }
}

/// The limits of a volume's clients in `status`; absent figures have no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsReport {
    /// Requests a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Requests that may go at once after a rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops_burst: Option<u64>,
    /// Bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes: Option<u64>,
    /// Bytes that may go at once after a rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_burst_bytes: Option<u64>,
    /// All settings of the volume, as they would be set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
}

impl LimitsReport {
    /// The report on the settings of a volume.
    #[must_use]
    pub fn new(settings: VolumeSettings) -> LimitsReport {
        let Limits { iops, bandwidth } = settings.limits;
        LimitsReport {
            iops: iops.map(|rate| rate.per_second),
            iops_burst: iops.map(|rate| rate.burst),
            bandwidth_bytes: bandwidth.map(|rate| rate.per_second),
            bandwidth_burst_bytes: bandwidth.map(|rate| rate.burst),
            settings: settings.chosen().iter().map(ToString::to_string).collect(),
        }
    }
}

/// The cache in `status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CacheReport {
    /// Its device.
    pub device: String,
    /// Its set id.
    pub set_id: String,
    /// The profile it was created with.
    pub profile: String,
    /// A checksum of its composition: caches with the same one are of one kind.
    pub composition: String,
    /// Whether it promises what a disk promises.
    pub safe: bool,
    /// Whether its device may be blank at any start, and is then formatted anew.
    #[serde(default)]
    pub ephemeral: bool,
    /// The destage controller.
    pub destage: String,
    /// The cache's knowledge after a power cut.
    pub power_cut_leaves: String,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes in segments or slots that are not free.
    pub used_bytes: u64,
    /// Its division into segments, slots or buckets.
    #[serde(flatten)]
    pub division: Division,
    /// Segments that are free; 0 of slots.
    pub segments_free: u32,
    /// Slots that are free; 0 of a log.
    pub slots_free: u32,
    /// Slots with content that their origin lacks; 0 of a log.
    pub slots_dirty: u32,
    /// Dirty data that lies in memory, too; absent where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<u64>,
    /// Room for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_limit_bytes: Option<u64>,
    /// Whether it failed and is not written any more.
    pub latched: bool,
    /// Why, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latched_because: Option<String>,
    /// How fast the device answers reads.
    #[serde(default)]
    pub pace: PaceReport,
    /// Memory of the index of cached blocks.
    pub index_bytes: u64,
    /// Blocks in the index.
    pub index_blocks: u64,
    /// Limit of clean data that may count as dirty after a crash; absent if only the cached data limits it.
    pub false_dirty_limit_bytes: Option<u64>,
    /// Number of times that the log went past the device's end since the start.
    pub wraps: u64,
    /// Bytes written to it since the start, by reason.
    #[serde(default)]
    pub written: WrittenReport,
    /// Bytes written to it in all sessions, as far as they were noted.
    #[serde(default)]
    pub lifetime_written_bytes: u64,
    /// Its wear budget, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wear: Option<WearReport>,
    /// Bytes that it may be written in its life, as set with `serve --endurance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endurance_bytes: Option<u64>,
    /// Both halves, if it is mirrored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirror: Vec<HalfReport>,
}

/// The wear budget of the cache device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WearReport {
    /// Bytes that may be written in a day.
    pub day_bytes: u64,
    /// Bytes that were written and count against it now.
    pub spent_bytes: u64,
    /// Bytes that may be written at once now; the budget brings more by and by.
    pub left_bytes: u64,
}

impl From<WearStatus> for WearReport {
    fn from(wear: WearStatus) -> WearReport {
        let WearStatus { day_bytes, spent_bytes, left_bytes } = wear;
        WearReport { day_bytes, spent_bytes, left_bytes }
    }
}

/// Bytes written to the cache device since the start, by reason; their names are those of [`WrittenBytes`], which
/// explains them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenReport {
    pub user_bytes: u64,
    pub fill_bytes: u64,
    pub relocation_bytes: u64,
    pub header_bytes: u64,
}

impl From<WrittenBytes> for WrittenReport {
    fn from(written: WrittenBytes) -> WrittenReport {
        let WrittenBytes { user_bytes, fill_bytes, relocation_bytes, header_bytes } = written;
        WrittenReport { user_bytes, fill_bytes, relocation_bytes, header_bytes }
    }
}

/// Findings of a start.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// Duration in seconds.
    pub seconds: f64,
    /// Batches at the log's end that were not complete.
    pub batches_cut: u64,
    /// Bytes that count as dirty.
    pub redestage_bytes: u64,
    /// Entries read.
    pub entries: u64,
    /// Bytes of which a checkpoint told, so that no entry of before it was read.
    #[serde(default)]
    pub loaded_bytes: u64,
}

impl RecoveryReport {
    /// The report on a recovery that took so long.
    #[must_use]
    pub fn new(took: Duration, report: &recovery::Report) -> RecoveryReport {
        RecoveryReport {
            seconds: took.as_secs_f64(),
            batches_cut: report.batches_cut,
            redestage_bytes: report.redestage_bytes,
            entries: report.entries,
            loaded_bytes: report.loaded_blocks * BLOCK_BYTES,
        }
    }
}

impl VolumeReport {
    /// The report on a volume of a running engine.
    #[must_use]
    pub fn new(status: &VolumeStatus, origin: String) -> VolumeReport {
        VolumeReport {
            name: status.name.clone(),
            origin,
            device: None,
            mode: status.mode.name().to_owned(),
            mode_target: status.mode_target.name().to_owned(),
            lone_half: false,
            mode_configured: None,
            limits: LimitsReport::default(),
            destage_held_back: status.is_held_back,
            flooded: status.is_flooded,
            order: status.order.map(OrderReport::from),
            configured: Vec::new(),
            state: status.state.name().to_owned(),
            size_bytes: status.size_bytes,
            dirty_bytes: status.dirty_bytes,
            dirty_limit_bytes: status.dirty_limit_bytes,
            lost_bytes: status.lost_bytes,
            cached_bytes: status.cached_bytes,
            origin_errors: status.origin_errors,
            origin_away_seconds: None,
            origin_away_because: None,
            uncached: status.uncached,
            destage_bytes_per_second: 0,
        }
    }

    /// Tells of a volume whose own mode is writeback, and which writes through because one half alone counts.
    pub fn note_own_mode(&mut self, own: WriteMode) {
        if own == WriteMode::Writeback && self.mode_target == WriteMode::Writethrough.name() {
            self.lone_half = true;
            own.name().clone_into(&mut self.mode_target);
        }
    }

    /// Marks the cached content as void: the origin was written without the cache, and the next start drops that
    /// content (hazard 10).
    pub fn forget_content(&mut self) {
        self.state = "abandoned".to_owned();
        self.mode.clone_from(&self.mode_target);
        (self.dirty_bytes, self.lost_bytes, self.cached_bytes) = (0, 0, 0);
        self.dirty_limit_bytes = None;
    }

    /// The report on a volume that its origin serves alone, because the cache is missing.
    #[must_use]
    pub fn without_cache(name: String, origin: String, size_bytes: u64) -> VolumeReport {
        VolumeReport {
            name,
            origin,
            device: None,
            mode: WriteMode::Passthrough.name().to_owned(),
            mode_target: WriteMode::Passthrough.name().to_owned(),
            lone_half: false,
            mode_configured: None,
            limits: LimitsReport::default(),
            destage_held_back: false,
            flooded: false,
            order: None,
            configured: Vec::new(),
            state: "uncached".to_owned(),
            size_bytes,
            dirty_bytes: 0,
            dirty_limit_bytes: None,
            lost_bytes: 0,
            cached_bytes: 0,
            origin_errors: 0,
            origin_away_seconds: None,
            origin_away_because: None,
            uncached: true,
            destage_bytes_per_second: 0,
        }
    }
}

/// Identity of a cache in its report.
#[derive(Clone)]
pub struct CacheIdentity {
    /// Its device.
    pub device: String,
    /// Its set id in hexadecimal.
    pub set_id: String,
    /// The set id of the first cache of its line, by which devices of volumes are known, in hexadecimal.
    pub line_id: String,
    /// Its profile.
    pub profile: String,
    /// Its division into segments, slots or buckets.
    pub division: Division,
    /// Its composition.
    pub composition: Composition,
    /// Whether its device may be blank at any start.
    pub ephemeral: bool,
}

/// The set id of the first cache of a line, in hexadecimal.
#[must_use]
pub fn line_id(superblock: &Superblock) -> String {
    hexadecimal(&superblock.line.ancestor.unwrap_or(superblock.set_id))
}

impl CacheIdentity {
    /// Identity of the cache with that superblock on `device`.
    #[must_use]
    pub fn new(device: &DeviceSpec, superblock: &Superblock, composition: &Composition) -> CacheIdentity {
        CacheIdentity {
            device: device.absolute().to_string(),
            set_id: hexadecimal(&superblock.set_id),
            line_id: line_id(superblock),
            profile: superblock.profile.clone(),
            division: (&superblock.layout).into(),
            composition: *composition,
            ephemeral: superblock.is_ephemeral,
        }
    }
}

impl CacheReport {
    /// The report on a running cache.
    #[must_use]
    pub fn new(status: &CacheStatus, identity: &CacheIdentity) -> CacheReport {
        let contract = identity.composition.contract();
        CacheReport {
            device: identity.device.clone(),
            set_id: identity.set_id.clone(),
            profile: identity.profile.clone(),
            composition: format!("{:08x}", identity.composition.fingerprint()),
            safe: identity.composition.safe,
            ephemeral: identity.ephemeral,
            destage: identity.composition.choice(Axis::Destage).name.to_owned(),
            power_cut_leaves: contract.aftermath.to_string(),
            size_bytes: status.size_bytes,
            used_bytes: status.used_bytes,
            division: identity.division,
            segments_free: status.segments_free,
            slots_free: status.slots_free,
            slots_dirty: status.slots_dirty,
            kept_bytes: (status.kept_limit_bytes > 0).then_some(status.kept_bytes),
            kept_limit_bytes: (status.kept_limit_bytes > 0).then_some(status.kept_limit_bytes),
            latched: status.latched,
            latched_because: None,
            pace: status.pace.into(),
            index_bytes: status.index_bytes,
            index_blocks: status.index_blocks,
            false_dirty_limit_bytes: match contract.aftermath {
                Aftermath::Prefix => Some(status.false_dirty_limit_bytes),
                Aftermath::DirtyKept => Some(0),
                Aftermath::AllDirty | Aftermath::DirtySuperset { .. } => None,
            },
            wraps: status.wraps,
            written: status.written.into(),
            lifetime_written_bytes: 0,
            wear: status.wear.map(WearReport::from),
            endurance_bytes: None,
            mirror: Vec::new(),
        }
    }
}

impl CacheReport {
    fn print_use(&self, to: &mut impl Write) -> io::Result<()> {
        let Division::Slots { .. } = self.division else {
            return writeln!(
                to,
                "size       {}, {} in use, {}, {} free",
                Size(self.size_bytes),
                Size(self.used_bytes),
                self.division,
                self.segments_free
            );
        };
        writeln!(
            to,
            "size       {}, {} in use, {}, {} free, {} dirty",
            Size(self.size_bytes),
            Size(self.used_bytes),
            self.division,
            self.slots_free,
            self.slots_dirty
        )
    }
}

impl StatusReport {
    /// Keeps only the volume of that name. False if there is none.
    #[must_use]
    pub fn keep_only(&mut self, volume: &str) -> bool {
        self.volumes.retain(|report| report.name == volume);
        !self.volumes.is_empty()
    }

    /// Prints it for people.
    ///
    /// # Errors
    /// The error of writing.
    pub fn print(&self, to: &mut impl Write) -> io::Result<()> {
        let running = if self.running { "running" } else { "not running" };
        match &self.cache {
            Some(cache) => {
                writeln!(to, "cache      {} ({running}, session {})", cache.device, self.session)?;
                let safety = if cache.safe { "" } else { ", WITHOUT SAFETY" };
                writeln!(to, "profile    {} ({}){safety}", cache.profile, cache.composition)?;
                if cache.ephemeral {
                    writeln!(to, "ephemeral  a blank device is formatted anew at the start")?;
                }
                if !cache.mirror.is_empty() {
                    halves::print(&cache.mirror, &cache.device, to)?;
                }
                cache.print_use(to)?;
                writeln!(
                    to,
                    "index      {} blocks in {} of memory",
                    cache.index_blocks,
                    Size(cache.index_bytes)
                )?;
                if let (Some(kept), Some(limit)) = (cache.kept_bytes, cache.kept_limit_bytes) {
                    writeln!(to, "memory     {} of {} for dirty data", Size(kept), Size(limit))?;
                }
                if let Some(wear) = cache.wear {
                    let (day, left) = (Size(wear.day_bytes), Size(wear.left_bytes));
                    writeln!(to, "wear       {day} a day, of that {left} left for now")?;
                }
                if let Some(endurance_bytes) = cache.endurance_bytes {
                    let part = cache.lifetime_written_bytes as f64 / endurance_bytes as f64;
                    let (written, rated) = (Size(cache.lifetime_written_bytes), Size(endurance_bytes));
                    writeln!(
                        to,
                        "endurance  {written} written of {rated} that it is rated for ({:.1} %)",
                        part * 100.0
                    )?;
                }
                writeln!(to, "destage    {}", cache.destage)?;
                write!(to, "crash      a power cut leaves {}", cache.power_cut_leaves)?;
                match cache.false_dirty_limit_bytes {
                    Some(bytes @ 1..) => {
                        writeln!(to, "; up to {} may be written home once more than needed", Size(bytes))?;
                    }
                    _ => writeln!(to)?,
                }
                if cache.latched {
                    let unknown = "the cache device failed and is not written any more";
                    let because = cache.latched_because.as_deref().unwrap_or(unknown);
                    writeln!(to, "FAILED     {because}")?;
                }
                if let Some(line) = cache.pace.trouble() {
                    writeln!(to, "SLOW       {line}")?;
                }
            }
            None => writeln!(to, "cache      missing; the origins are served alone")?,
        }
        for why in &self.refused {
            writeln!(to, "REFUSED    cannot be served: {why}")?;
        }
        if let Some(recovery) = &self.recovery {
            writeln!(
                to,
                "recovery   {:.3} s, {} incomplete batches cut, {} dirty",
                recovery.seconds,
                recovery.batches_cut,
                Size(recovery.redestage_bytes)
            )?;
        }
        if let Some(bytes) = self.warming_left_bytes {
            writeln!(to, "warming    {} of the warm list left", Size(bytes))?;
        }
        if let Some(scrub) = &self.scrub {
            scrub.print(to)?;
        }
        for address in &self.nbd {
            writeln!(to, "nbd        {address}")?;
        }
        if let Some(clients) = &self.clients {
            clients.print(to)?;
        }
        if let Some(address) = &self.metrics {
            writeln!(to, "metrics    {address}")?;
        }
        if let Some(address) = &self.web {
            writeln!(to, "web        http://{address}")?;
        }
        if let Some(file) = &self.config {
            writeln!(to, "config     {file}")?;
        }
        if self.volumes.is_empty() {
            writeln!(to, "no volumes; forebay add puts one on it")?;
        }
        for volume in &self.volumes {
            volume.print(to)?;
        }
        Ok(())
    }
}

impl StatusReport {
    /// Prints the last changes of settings for people.
    ///
    /// # Errors
    /// The error of writing.
    pub fn print_history(&self, to: &mut impl Write) -> io::Result<()> {
        writeln!(to)?;
        if self.history.is_empty() {
            writeln!(to, "changed    nothing that is known")?;
        }
        self.history.iter().try_for_each(|change| writeln!(to, "changed    {change}"))
    }
}

impl VolumeReport {
    fn print(&self, to: &mut impl Write) -> io::Result<()> {
        writeln!(to)?;
        writeln!(to, "volume     {} ({}, {})", self.name, Size(self.size_bytes), self.state)?;
        writeln!(to, "origin     {}", self.origin)?;
        if let Some(device) = &self.device {
            writeln!(to, "device     {device}")?;
        }
        if self.lone_half {
            writeln!(to, "mode       {}, written through until both halves count", self.mode_target)?;
        } else if self.mode == self.mode_target {
            writeln!(to, "mode       {}", self.mode)?;
        } else {
            writeln!(to, "mode       {} until drained, then {}", self.mode, self.mode_target)?;
        }
        if let Some(configured) = self.mode_configured.as_ref().filter(|mode| **mode != self.mode_target) {
            writeln!(to, "           the configuration file says {configured}")?;
        }
        if !self.limits.settings.is_empty() {
            writeln!(to, "limits     {}", self.limits.settings.join(" "))?;
        }
        for configured in &self.configured {
            writeln!(to, "           the configuration file says {configured}")?;
        }
        writeln!(to, "cached     {}, of that {} dirty", Size(self.cached_bytes), Size(self.dirty_bytes))?;
        if self.destage_bytes_per_second > 0 {
            writeln!(to, "           going home at {} a second", Size(self.destage_bytes_per_second))?;
        }
        if self.destage_held_back {
            writeln!(to, "           which is held back for its hours")?;
        }
        if self.flooded {
            writeln!(to, "           long writes go to the origin until there is room")?;
        }
        if let Some(order) = &self.order {
            order.print(to)?;
        }
        if let Some(limit_bytes) = self.dirty_limit_bytes.filter(|_| self.state.starts_with("origin-")) {
            writeln!(to, "share      {} dirty at the most until the origin works again", Size(limit_bytes))?;
        }
        if self.lost_bytes > 0 {
            writeln!(to, "LOST       {} rotted in the cache before it went home", Size(self.lost_bytes))?;
        }
        if let Some(seconds) = self.origin_away_seconds {
            let because = self.origin_away_because.as_deref().unwrap_or("its server is gone");
            writeln!(to, "AWAY       the origin, for {seconds:.0} s: {because}; it is looked for")?;
        }
        if self.origin_errors > 0 {
            writeln!(to, "ERRORS     the origin failed {} times; it is retried", self.origin_errors)?;
        }
        Ok(())
    }
}
