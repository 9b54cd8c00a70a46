//! From a cache device to an engine that may serve: locks, identities, notes, recovery, in that order. What is found
//! so is a [`Prepared`] cache. Its session begins ([`NewSession::begin`]) when all else that a start needs is there.
//!
//! Until the session begins nothing is written to cache and notes, with one exception: a volume that was abandoned (its
//! origin was written without its cache) gets a new durable number first, so that nothing the log holds
//! for the old number can ever be taken for its content again, clean or dirty.

use crate::arguments::RunOptions;
use crate::events::Event;
use crate::formatting;
use crate::halves::{self, CacheImage, Halves};
use crate::interrupt::Interrupts;
use crate::lasting::{self, LastingFile, Unbegun};
use crate::log::{event, event_of};
use crate::opening::open_origin as open_origin_of;
use crate::origin;
use crate::output::Size;
use crate::ownership::{User, check_not_replaced, check_start, give_up_elsewhere, note_renewal};
use crate::profile;
use crate::report::{CacheIdentity, RecoveryReport};
use crate::state::{CacheRecord, LiveRecord, RecordNote, StateDirectory, VolumeNote, hexadecimal};
use crate::superblock::{self, system};
use anyhow::{Context, Result, anyhow, bail};
use engine::composition::Composition;
use engine::composition::stored::INDEX_BYTES_LEAST;
use engine::effect::WriteMode;
use engine::engine::Engine;
use engine::format::{Change, Layout, Succession, Superblock, VolumeRecord};
use engine::limits::Config;
use engine::mutation::Mutations;
use engine::recovery::{self, Growth, Opened, Options, Sample};
use engine::units::{BLOCK_BYTES, SECTOR_BYTES, VOLUMES_MAX, VolumeId, VolumeIndex, payload_checksum};
use live::buffers::LastingMemory;
use live::devices::BlockingDevice;
use live::devices::{self, Access, Device, DeviceError, DeviceSpec};
use live::server::POOL_BYTES_DEFAULT;
use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Memory for all else, roughly: threads, rings, clients.
const OTHER_BYTES: u64 = 64 << 20;
/// The same where address space is limited.
const LIMITED_OTHER_BYTES: u64 = 192 << 20;

/// A volume that is about to be served.
pub struct Served {
    /// Its slot.
    pub index: VolumeIndex,
    /// Its durable number.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// The origin, as a device name.
    pub origin_name: String,
    /// The opened origin; `None` if it is missing.
    pub origin: Option<Device>,
    /// Its size at the start.
    pub size_bytes: u64,
    /// The smallest request its clients should send.
    pub min_block_bytes: u32,
    /// Its mode at the start.
    pub mode: WriteMode,
}

/// A cache that may be served, and whose session has not begun.
pub struct Prepared {
    /// The cache as the operator named it.
    pub cache: DeviceSpec,
    /// Its devices.
    pub halves: Halves,
    /// The volumes.
    pub volumes: Vec<Served>,
    /// The notes on it, not stored yet.
    pub record: Arc<LiveRecord>,
    /// The directory with the notes.
    pub state: StateDirectory,
    /// Its identity in reports.
    pub identity: CacheIdentity,
    /// Memory, by purpose.
    pub memory: MemoryShares,
    /// How it is run.
    pub options: RunOptions,
    /// The session that it is to have.
    pub session: NewSession,
    /// Memory that outlives the daemon, and its file; `None` if the cache has none.
    pub lasting: Option<(LastingFile, LastingMemory)>,
}

impl Prepared {
    /// Refuses a cache without a volume.
    ///
    /// # Errors
    /// If it has none.
    pub fn expect_volumes(&self) -> Result<()> {
        let cache = &self.cache;
        if self.volumes.is_empty() {
            bail!(
                "there is no volume on {cache}; forebay add {cache} --origin DEV --name NAME puts one on it"
            );
        }
        Ok(())
    }
}

/// A session that has not begun.
pub struct NewSession {
    /// In front of the image, which has the lock.
    unbegun: Unbegun,
    cache: DeviceSpec,
    halves: Halves,
    image: CacheImage,
    found: Opened,
    config: Config,
    record: Arc<LiveRecord>,
    state: StateDirectory,
    /// The origins, and the modes of their volumes.
    origins: Vec<(Device, WriteMode)>,
    prepared_in: Duration,
    lasting: Option<LastingFile>,
}

/// A session that has begun.
pub struct Begun {
    /// The engine.
    pub engine: Engine,
    /// Findings of recovery.
    pub recovery: RecoveryReport,
}

impl NewSession {
    /// Stores the notes and begins the session.
    ///
    /// # Errors
    /// If the notes or the cache cannot be written.
    pub fn begin(self) -> Result<Begun> {
        let NewSession { cache, halves, mut image, mut found, config, record, .. } = self;
        // Declared last, so that it is dropped first.
        let NewSession { state, origins, prepared_in, lasting, unbegun, .. } = self;
        let began_at = Instant::now();
        // From here on the cache may come to hold data that the origin lacks: that is noted first.
        record.claim_names(&halves.all_names(&cache), halves.names.as_ref())?;
        let set_id = hexadecimal(&found.superblock.set_id);
        for (origin, mode) in origins {
            give_up_elsewhere(&state, &origin, User { cache: &cache, set_id: &set_id, mode })?;
        }
        lasting::restore(&mut image, &found.superblock, &cache)?;
        found.superblock.lasting_boot = lasting.map_or([0; 16], |lasting| lasting.boot());
        unbegun.begin();
        let opened = recovery::begin_session(&mut image, found, Mutations::NONE)
            .map_err(|error| superblock::not_recovered(&error, &cache))?;
        record.change(|record| record.superblock_update = opened.superblock.update)?;
        let recovery = RecoveryReport::new(prepared_in + began_at.elapsed(), &opened.report);
        let mut engine = Engine::new(opened, config);
        if let Some(words) = image.words() {
            engine.set_pair(words);
        }
        Ok(Begun { engine, recovery })
    }
}

/// Prepares a cache to be served: does all that may refuse it.
///
/// # Errors
/// Reason why it must not be served, or cannot be.
pub fn prepare(
    spec: &DeviceSpec,
    options: &RunOptions,
    state: StateDirectory,
    interrupts: &Interrupts,
) -> Result<Prepared> {
    let found = halves::find(spec, options.mirror.as_ref(), Access::Exclusive, Some(&state))?;
    let (halves, mut image, remarks) = (found.halves, found.image, found.remarks);
    halves.devices.iter().flatten().for_each(|device| interrupts.watch(device));
    finish_remake(&mut image, spec, &state)?;
    let mut superblock = superblock::load(&mut image, &spec.to_string())?;
    let composition = superblock::composition(&superblock, &spec.to_string())?;
    profile::check_support(&superblock.profile, &composition)
        .with_context(|| format!("{spec} was created with profile {}", superblock.profile))?;
    let mut record = state.load_or_new(&superblock.set_id)?;
    check_newest(spec, &superblock, &record, &state)?;
    lasting::check_found(&superblock, spec)?;
    renumber_abandoned(&mut image, &mut superblock, &mut record, spec)?;

    let volumes = open_origins(&superblock, spec, options, interrupts)?;
    let with_mode = |volume: &Served| Some((volume.origin.clone()?, volume.mode));
    let origins: Vec<(Device, WriteMode)> = volumes.iter().filter_map(with_mode).collect();
    for (origin, mode) in &origins {
        let user = User { cache: spec, set_id: &record.set_id, mode: *mode };
        check_start(&state, origin, user)?;
    }
    let mut config = engine_config(&superblock, &composition, discards(&volumes));
    config.is_lone_writeback = options.lone_writeback;
    let memory = share_memory((&superblock, image.is_mirrored()), &config, options)?;
    // Stacks of threads count against a limit of address space, used or not.
    let other_bytes =
        if getrlimit(Resource::As).current.is_some() { LIMITED_OTHER_BYTES } else { OTHER_BYTES };
    check_memory(memory.pool_bytes + index_bytes_least(&superblock) + other_bytes)?;
    let started_at = Instant::now();
    let found = recovery::inspect(
        &mut image,
        Options { index_budget_bytes: memory.index_bytes, repair: false, mutations: Mutations::NONE },
    )
    .map_err(|error| superblock::not_recovered(&error, spec))?;
    // RULE 11: a start that is refused changes nothing on the cache and in the notes. Otherwise the next one would find
    // no clean stop any more, and with it nothing to compare the origin with.
    spot_check(&found, &mut image, &volumes, spec)?;
    record.volumes = volumes.iter().map(|volume| note(volume, &record, &found)).collect();
    note_renewal(&mut record, &superblock, false);
    warn_of_risks(&superblock.profile, &composition);
    remarks.iter().for_each(|remark| event(Event::HalfLost, format_args!("{remark}")));
    let identity = CacheIdentity::new(spec, &superblock, &composition);
    let record = Arc::new(LiveRecord::new(state.clone(), record));
    let prepared_in = started_at.elapsed();
    let (lasting, lasting_memory) = LastingFile::open(&found.superblock, halves.names.is_some()).unzip();
    let session = NewSession {
        unbegun: Unbegun::new(lasting.as_ref(), &superblock),
        cache: spec.clone(),
        halves: halves.clone(),
        image,
        found,
        config,
        record: Arc::clone(&record),
        state: state.clone(),
        origins,
        prepared_in,
        lasting: lasting.clone(),
    };
    let options = options.clone();
    let lasting = lasting.zip(lasting_memory);
    Ok(Prepared {
        cache: spec.clone(),
        halves,
        volumes,
        record,
        state,
        identity,
        memory,
        options,
        session,
        lasting,
    })
}

/// Refuses a cache whose content is void or old by the notes: another one took its place, or it was served since.
///
/// # Errors
/// If it is.
pub fn check_newest(
    spec: &DeviceSpec,
    superblock: &Superblock,
    record: &CacheRecord,
    state: &StateDirectory,
) -> Result<()> {
    check_not_replaced(record, spec)?;
    if recovery::is_rolled_back(superblock, record.superblock_update, Mutations::NONE) {
        bail!(
            "{spec} is an older copy of a cache that was served since; connect the newer one, or give up what was \
             written to that: move {} away",
            state.file_of(&superblock.set_id).display()
        );
    }
    Ok(())
}

/// Warns in one line of promises that a cache does not make, if it promises less than a disk.
fn warn_of_risks(profile: &str, composition: &Composition) {
    if !composition.safe {
        event(
            Event::PromisesLess,
            format_args!(
                "WARNING: profile {profile} without safety, as published: {}",
                profile::gives_up(composition).join("; ")
            ),
        );
    }
}

/// The bounds of an engine over a cache; `discards` are the volumes whose origins can drop ranges.
pub fn engine_config(
    superblock: &Superblock,
    composition: &Composition,
    discards: impl Iterator<Item = VolumeIndex>,
) -> Config {
    let mut config = composition.config(&superblock.layout);
    discards.for_each(|index| config.origin_can_discard[index.at()] = true);
    config
}

/// The volumes whose origins can drop ranges.
pub fn discards<'a>(volumes: impl IntoIterator<Item = &'a Served>) -> impl Iterator<Item = VolumeIndex> {
    let can = |volume: &&Served| volume.origin.as_ref().is_some_and(Device::supports_discard);
    volumes.into_iter().filter(can).map(|volume| volume.index)
}

/// Begins a session on a cache that has just taken the place of another one, and notes that in its history: it holds
/// nothing, and its origins are those that were served before.
///
/// # Errors
/// If the cache or the notes cannot be read or written.
pub fn begin_on(
    cache: &Device,
    record: &LiveRecord,
    (config, index_bytes): (Config, u64),
    lasting: Option<&LastingFile>,
    change: Option<Change>,
) -> Result<Begun> {
    let began_at = Instant::now();
    let mut image = BlockingDevice::new(cache);
    let lasting_boot = lasting.map_or([0; 16], LastingFile::boot);
    let options = Options { index_budget_bytes: index_bytes, repair: false, mutations: Mutations::NONE };
    let opened = recovery::inspect(&mut image, options)
        .and_then(|mut found| {
            found.superblock.lasting_boot = lasting_boot;
            change.into_iter().for_each(|change| found.superblock.history.note(change));
            recovery::begin_session(&mut image, found, Mutations::NONE)
        })
        .map_err(|error| superblock::not_recovered(&error, cache.spec()))?;
    record.change(|record| record.superblock_update = opened.superblock.update)?;
    let recovery = RecoveryReport::new(began_at.elapsed(), &opened.report);
    Ok(Begun { engine: Engine::new(opened, config), recovery })
}

/// Finishes what a crash cut off when a cache was made anew in another size: it is told by the superblock alone, and nothing
/// but the origins had data then (rule 16).
fn finish_remake(image: &mut CacheImage, spec: &DeviceSpec, state: &StateDirectory) -> Result<()> {
    let Ok((superblock, _)) = recovery::load_superblock(image) else { return Ok(()) };
    let Succession::Remade { by, cache_bytes } = superblock.line.succession else { return Ok(()) };
    let composition = superblock::composition(&superblock, &spec.to_string())?;
    let layout = formatting::divide(&superblock.profile, &composition, spec, cache_bytes)?;
    recovery::remake(image, (by, cache_bytes), |_, _| layout, Mutations::NONE)
        .with_context(|| format!("the cache {spec} cannot be made anew"))?;
    if let Some(mut left) = state.load(&superblock.set_id)? {
        left.volumes.clear();
        left.succeeded_by = Some(hexadecimal(&by));
        state.store(&left)?;
    }
    Ok(())
}

/// Memory, by purpose.
#[derive(Clone, Copy, Debug)]
pub struct MemoryShares {
    /// For buffers.
    pub pool_bytes: u64,
    /// Of that, for dirty data that is kept in memory.
    pub kept_bytes: u64,
    /// For the index of cached blocks.
    pub index_bytes: u64,
}

/// Most memory that the index of cached blocks can need.
#[must_use]
pub fn index_bytes(superblock: &Superblock, is_mirrored: bool) -> u64 {
    // A text that cannot be read is refused elsewhere.
    Composition::of(superblock)
        .map_or(0, |composition| composition.index_bytes(&superblock.layout, is_mirrored))
}

/// Least memory that the index of cached blocks needs.
fn index_bytes_least(superblock: &Superblock) -> u64 {
    match &superblock.layout {
        Layout::Log(_) | Layout::Keys(_) | Layout::Frames(_) => INDEX_BYTES_LEAST,
        // There is an entry for each slot, whatever it holds.
        Layout::Slots(_) => index_bytes(superblock, false),
    }
}

/// Makes sure that there is memory to look at a cache.
///
/// # Errors
/// If there is not.
pub fn check_memory_for_index(superblock: &Superblock) -> Result<()> {
    check_memory(index_bytes_least(superblock))
}

/// Makes sure that so much memory can be had: the process would be aborted when it is found missing later.
///
/// # Errors
/// If it cannot.
pub fn check_memory(bytes: u64) -> Result<()> {
    let fits = usize::try_from(bytes).is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok());
    if !fits {
        bail!(
            "there is too little memory: {} are needed at least; raise the limits (ulimit -v), or stop other programs",
            Size(bytes)
        );
    }
    Ok(())
}

/// Refuses to be given more memory than this machine has.
///
/// # Errors
/// How much it has.
pub fn check_machine(option: &str, bytes: u64) -> Result<()> {
    let found = rustix::system::sysinfo();
    let machine_bytes = u64::from(found.mem_unit).saturating_mul(found.totalram);
    if bytes > machine_bytes {
        bail!(
            "{option} says {}, and this machine has {} of memory; give less",
            Size(bytes),
            Size(machine_bytes)
        );
    }
    Ok(())
}

/// Shares out the memory of a daemon.
///
/// # Errors
/// If the operator gives it less than it needs.
pub fn share_memory(
    (superblock, is_mirrored): (&Superblock, bool),
    config: &Config,
    options: &RunOptions,
) -> Result<MemoryShares> {
    let kept_bytes = config.memory_bytes();
    let pool_bytes = POOL_BYTES_DEFAULT.max(config.pool_bytes() - kept_bytes) + kept_bytes;
    let Some(memory_bytes) = options.memory else {
        let index_bytes = index_bytes(superblock, is_mirrored);
        return Ok(MemoryShares { pool_bytes, kept_bytes, index_bytes });
    };
    check_machine("--memory", memory_bytes)?;
    let least_bytes = index_bytes_least(superblock);
    match memory_bytes.checked_sub(pool_bytes) {
        Some(index_bytes) if index_bytes >= least_bytes => {
            Ok(MemoryShares { pool_bytes, kept_bytes, index_bytes })
        }
        _ => bail!(
            "--memory must be at least {}: {} for buffers and {} for the index of cached blocks",
            Size(pool_bytes + least_bytes),
            Size(pool_bytes),
            Size(least_bytes)
        ),
    }
}

/// Gives abandoned volumes a new durable number, which is durable on return.
fn renumber_abandoned(
    image: &mut CacheImage,
    superblock: &mut Superblock,
    record: &mut CacheRecord,
    spec: &DeviceSpec,
) -> Result<()> {
    let mut is_changed = false;
    for at in 0..VOLUMES_MAX {
        let Some(volume) = &superblock.volumes[at] else { continue };
        let Some(note) = record.volumes.iter_mut().find(|note| note.id == volume.id.0) else { continue };
        if note.abandoned {
            event_of(
                Event::ContentDropped,
                &volume.name,
                format_args!(
                    "the origin of volume {} was used without this cache: what it held of that is dropped",
                    volume.name
                ),
            );
            let name = volume.name.clone();
            superblock::note_change(superblock, &name, "content", "cached", "dropped");
            let id = renumber(superblock, VolumeIndex(at as u8));
            // The places of the fingerprint may have been written meanwhile.
            superblock.volumes[at].as_mut().expect("just seen").fingerprint = Default::default();
            note.id = id.0;
            note.abandoned = false;
            is_changed = true;
        }
    }
    if is_changed { halves::store(image, superblock, spec) } else { Ok(()) }
}

/// Gives a volume a new durable number: all that the cache holds of it is void.
///
/// # Panics
/// If there is no volume in the slot.
pub fn renumber(superblock: &mut Superblock, index: VolumeIndex) -> VolumeId {
    let id = VolumeId(superblock.next_volume_id);
    superblock.next_volume_id += 1;
    superblock.volumes[index.at()].as_mut().expect("the caller saw the volume").id = id;
    id
}

fn open_origins(
    superblock: &Superblock,
    cache: &DeviceSpec,
    options: &RunOptions,
    interrupts: &Interrupts,
) -> Result<Vec<Served>> {
    let mut given: Vec<(VolumeIndex, &DeviceSpec)> = Vec::new();
    let is_to_be_added = |name: &String| {
        options.configured.contains(name)
            && superblock::records(superblock).all(|(_, record)| record.name != *name)
    };
    for one in options.origin.iter().filter(|one| !one.volume.as_ref().is_some_and(is_to_be_added)) {
        given.push((superblock::choose(superblock, one.volume.as_deref())?, &one.device));
    }
    let mut volumes = Vec::new();
    let mut missing = None;
    for (index, record) in superblock::records(superblock) {
        let spec = match given.iter().find(|(at, _)| *at == index) {
            Some((_, spec)) => (*spec).clone(),
            None => devices::parse(&record.origin)
                .with_context(|| format!("the origin noted for volume {} has no meaning", record.name))?,
        };
        let origin = open_origin(&spec, record, cache)?;
        match &origin {
            Ok(origin) => interrupts.watch(origin),
            Err(error) => missing = Some(format!("{error:#}")),
        }
        volumes.push(Served {
            index,
            id: record.id,
            name: record.name.clone(),
            origin_name: spec.absolute().to_string(),
            origin: origin.ok(),
            size_bytes: record.size_sectors * SECTOR_BYTES,
            min_block_bytes: record.sector_bytes,
            mode: record.mode,
        });
    }
    let Some(why) = missing else { return Ok(volumes) };
    if volumes.iter().all(|volume| volume.origin.is_none()) {
        bail!("{why}");
    }
    event(Event::OriginMissing, format_args!("{why}; the other volumes are served"));
    Ok(volumes)
}

/// The origin; the inner error if it is merely missing, which other volumes need not suffer from.
fn open_origin(spec: &DeviceSpec, record: &VolumeRecord, cache: &DeviceSpec) -> Result<Result<Device>> {
    if let Err(DeviceError::Missing { .. } | DeviceError::Unreachable { .. }) =
        devices::open(spec, Access::ReadOnly)
    {
        return Ok(Err(open_origin_of(spec, Access::Exclusive, &record.name)
            .err()
            .unwrap_or_else(|| anyhow!("the origin of volume {} comes and goes", record.name))));
    }
    let device = open_origin_of(spec, Access::Exclusive, &record.name)?;
    if origin::verify(record, &device, cache)? == Growth::Grown {
        event(
            Event::OriginGrown,
            format_args!(
                "the origin of volume {} has grown; it is served at its old size until \
             forebay set {cache} {} size=origin",
                record.name, record.name
            ),
        );
    }
    origin::check_mode(&device, record.mode)?;
    warn_of_origin(&device);
    Ok(Ok(device))
}

/// Warns of what an origin lacks.
pub fn warn_of_origin(device: &Device) {
    let spec = device.spec();
    if !device.can_make_durable() {
        event(
            Event::NotDurable,
            format_args!(
                "WARNING: the server of {spec} has neither FLUSH nor FUA: what it acknowledged may be lost when it fails, \
             and what is written home counts as safe at once"
            ),
        );
    }
    if !device.is_direct() {
        event(
            Event::PageCache,
            format_args!("{spec} is used through the page cache: its file system refuses direct I/O"),
        );
    }
}

/// The note on a volume from the moment it is served.
fn note(volume: &Served, old: &CacheRecord, found: &Opened) -> VolumeNote {
    let old = old.volumes.iter().find(|note| note.id == volume.id.0);
    let record =
        found.superblock.volumes[volume.index.at()].as_ref().filter(|_| found.superblock.is_ephemeral);
    VolumeNote {
        id: volume.id.0,
        name: volume.name.clone(),
        origin: volume.origin_name.clone(),
        identity: match &volume.origin {
            Some(origin) => origin.identity().to_owned(),
            None => old.map_or_else(String::new, |note| note.identity.clone()),
        },
        size_bytes: volume.size_bytes,
        read_only: volume.mode == WriteMode::Readonly,
        // Without a note it may have been dirtied by a daemon that kept its notes elsewhere.
        may_be_dirty: recovery::needs_its_cache(
            volume.mode,
            found.dirty_bytes(volume.index),
            old.map(|note| note.may_be_dirty),
            Mutations::NONE,
        ),
        abandoned: false,
        untold: old.and_then(|note| note.untold.clone()),
        // The places change from now on.
        record: record.map(|record| RecordNote { places: Vec::new(), ..RecordNote::new(record) }),
    }
}

/// Compares some clean cached blocks, chosen at random, with the origin: a disk that was changed
/// everywhere but in its well-known places is found out too (rule 11).
fn spot_check(opened: &Opened, image: &mut CacheImage, volumes: &[Served], cache: &DeviceSpec) -> Result<()> {
    let samples = opened
        .samples(image, Mutations::NONE)
        .map_err(system)
        .with_context(|| format!("cannot read the cache {cache}"))?;
    for Sample { volume: index, offset_bytes, checksum } in samples {
        let Some(volume) = volumes.iter().find(|volume| volume.index == index) else { continue };
        let Some(device) = &volume.origin else { continue };
        let mut block = [0; BLOCK_BYTES as usize];
        BlockingDevice::new(device)
            .read_at(offset_bytes, &mut block)
            .map_err(system)
            .with_context(|| format!("cannot read the origin of volume {}", volume.name))?;
        if payload_checksum(&block) != checksum {
            let record = opened.superblock.volumes[index.at()].as_ref().expect("it is served");
            bail!(
                "the origin {} of volume {} was changed behind the cache at byte {offset_bytes}; connect the right \
                 disk, or accept this one and {}",
                volume.origin_name,
                volume.name,
                origin::accepting(record, device.spec(), cache)
            );
        }
    }
    Ok(())
}

/// Bytes from the system's random source.
///
/// # Errors
/// If there is none.
pub fn random_bytes<const LEN: usize>() -> std::io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes)
}
