//! `forebay create`: formats a cache device. Not one byte is written to the origin.

use crate::addition::{check_pair, open_origin};
use crate::arguments::{self, Create};
use crate::formatting::{self, NewCache};
use crate::log::notice;
use crate::origin::{self, NewVolume};
use crate::output::{Output, Size};
use crate::ownership::{User, check_origin, give_up_elsewhere, is_same, remember, remember_halves};
use crate::profile;
use crate::report::Division;
use crate::startup::{index_bytes, random_bytes};
use crate::state::{StateDirectory, hexadecimal};
use crate::superblock::{self, system};
use crate::trial::{self, Findings, TRIAL_SECONDS};
use anyhow::{Context, Result, anyhow, bail};
use engine::composition::Composition;
use engine::composition::axes::PersistenceChoice;
use engine::effect::Errno;
use engine::format::{Layout, Region, Superblock};
use engine::pair::{Pair, Standing};
use engine::units::{SECTOR_BYTES, VolumeId};
use live::devices::BlockingDevice;
use live::devices::{Access, Device, DeviceSpec};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Bytes that are zeroed at once.
const ZERO_BYTES: u64 = 1 << 20;

#[derive(Serialize)]
struct Created {
    cache: String,
    /// The second half, if it is mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    mirror: Option<String>,
    origin: String,
    set_id: String,
    name: String,
    profile: String,
    mode: &'static str,
    /// Whether it promises what a disk promises.
    safe: bool,
    /// Whether the cache device may be blank at any start.
    ephemeral: bool,
    cache_bytes: u64,
    origin_bytes: u64,
    #[serde(flatten)]
    division: Division,
    /// Memory for the tables of cached blocks, at the most.
    index_bytes: u64,
    /// Findings about the cache device, if it was tried.
    trial: Option<Findings>,
    /// The same of the second half.
    #[serde(skip_serializing_if = "Option::is_none")]
    mirror_trial: Option<Findings>,
    /// The time of half of the origin's reads, if the cache device was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_read_p50_us: Option<u64>,
}

pub(super) fn run(arguments: Create) -> Result<()> {
    check_names(&arguments)?;
    let Create { origin: origin_spec, cache: cache_spec, mirror: mirror_spec, name, profile, .. } = arguments;
    let Create { mode, is_unsafe, .. } = arguments;
    let is_ephemeral = arguments.ephemeral;
    let Create { wipe, take_over, sparse, trial_seconds, places, report, .. } = arguments;
    let state = StateDirectory::find(places.state_dir.as_deref())?;
    let profile = profile::load(&profile)?;
    profile.runnable()?;
    let own = profile.composition_of(is_unsafe)?;
    let composition = superblock::with_order(&profile.name, &own, arguments.order.as_deref())?;
    let mode = superblock::mode_of_new(mode, &composition, is_ephemeral);
    superblock::check_mode(&profile.name, &composition, is_ephemeral, mode)?;
    let origin = open_origin(&origin_spec, Access::ReadOnlyExclusive)?;
    origin::check_mode(&origin, mode)?;
    let cache = formatting::open(&cache_spec)?;
    let mirror = mirror_spec.as_ref().map(formatting::open).transpose()?;
    let set_id = random_bytes().context("cannot make a new set id")?;
    let set_id_text = hexadecimal(&set_id);
    let user = User { cache: &cache_spec, set_id: &set_id_text, mode };
    check_origin(&state, &origin, user, take_over.as_ref())?;
    let (cache_bytes, smaller) = smaller_of(&cache, mirror.as_ref());
    let layout = formatting::divide(&profile.name, &composition, smaller, cache_bytes)?;
    if mirror.is_some() {
        check_mirrored(&profile.name, &composition, &layout)?;
    }
    let name = name.unwrap_or_else(|| default_name(&origin_spec));
    let volume = origin::describe(&origin, NewVolume { id: VolumeId(1), name, mode })?;
    let sector_bytes = volume.sector_bytes;

    let mut superblock = Superblock {
        is_ephemeral,
        is_mirrored: mirror_spec.is_some(),
        composition: composition.text(),
        profile: profile.name.clone(),
        next_volume_id: 2,
        ..Superblock::of_new_cache(set_id, cache_bytes, layout)
    };
    let mut created = Created {
        cache: cache_spec.absolute().to_string(),
        mirror: mirror_spec.as_ref().map(|spec| spec.absolute().to_string()),
        origin: volume.origin.clone(),
        set_id: set_id_text.clone(),
        name: volume.name.clone(),
        profile: profile.name.clone(),
        mode: mode.name(),
        safe: composition.safe,
        ephemeral: is_ephemeral,
        cache_bytes,
        origin_bytes: origin.size_bytes(),
        division: (&layout).into(),
        index_bytes: index_bytes(&superblock, mirror_spec.is_some()),
        trial: None,
        mirror_trial: None,
        origin_read_p50_us: None,
    };
    superblock::note_change(&mut superblock, "", "profile", "", &created.profile);
    superblock::note_change(&mut superblock, &volume.name, "origin", "", &volume.origin);
    superblock.volumes[0] = Some(volume);

    state.make()?;
    for device in [Some(&cache), mirror.as_ref()].into_iter().flatten() {
        let wipe = wipe.iter().find(|wipe| is_same(wipe, device.spec()));
        NewCache { device, wipe, sparse }.prepare(&state)?;
    }
    created.trial = tried(&cache, trial_seconds)?;
    created.mirror_trial = mirror.as_ref().map_or(Ok(None), |mirror| tried(mirror, trial_seconds))?;
    if let Some(findings) = &created.trial {
        created.origin_read_p50_us = trial::origin_read_us(&origin, trial_seconds.unwrap_or(TRIAL_SECONDS));
        let lag = created.origin_read_p50_us.and_then(|origin_us| findings.lag(origin_us));
        lag.iter().for_each(|lag| notice(format_args!("{lag}")));
    }
    match &mirror {
        Some(mirror) => format_both([&cache, mirror], &mut superblock)?,
        None => format(&cache, &mut superblock)?,
    }
    give_up_elsewhere(&state, &origin, user)?;
    remember(&state, &superblock, &cache_spec, true, sparse)?;
    if let Some(mirror) = &mirror_spec {
        remember_halves(&state, &superblock, [&cache_spec, mirror])?;
    }
    print(&created, report.json)?;
    warn_of_alignment(&profile.name, &composition, sector_bytes);
    warn_of_room(&profile.name, &composition, &layout, (&cache_spec, cache_bytes));
    Ok(())
}

/// Refuses names of devices that do not go together, before anything is opened.
fn check_names(arguments: &Create) -> Result<()> {
    let Create { origin, cache, mirror, wipe, .. } = arguments;
    check_pair(origin, cache)?;
    if let Some(mirror) = mirror {
        check_pair(origin, mirror)?;
        if is_same(cache, mirror) {
            bail!("the cache and its mirror are both {mirror}; they must be two devices");
        }
    }
    let is_formatted =
        |named: &DeviceSpec| is_same(named, cache) || mirror.iter().any(|it| is_same(named, it));
    match wipe.iter().find(|named| !is_formatted(named)) {
        Some(named) => bail!("--wipe {named} is not the cache; name {cache} there, or leave it out"),
        None => Ok(()),
    }
}

/// Tries a cache device, if that is wanted.
fn tried(cache: &Device, seconds: Option<u32>) -> Result<Option<Findings>> {
    let seconds = seconds.unwrap_or(if cache.is_block_device() { TRIAL_SECONDS } else { 0 });
    if seconds == 0 {
        return Ok(None);
    }
    let spec = cache.spec();
    notice(format_args!("{spec} is tried for {seconds} s before it is formatted (see --trial-seconds)"));
    let found = live::trial::run(cache, Duration::from_secs(seconds.into()))
        .map_err(system)
        .with_context(|| format!("{spec} failed its trial; use another device"))?;
    let findings = Findings::from(&found);
    if let Some(doubt) = findings.doubt() {
        notice(format_args!("{doubt}"));
    }
    Ok(Some(findings))
}

/// Refuses a cache that cannot be on two devices.
fn check_mirrored(profile: &str, composition: &Composition, layout: &Layout) -> Result<()> {
    let is_inline = matches!(composition.persistence, PersistenceChoice::Inline);
    if !is_inline || !matches!(layout, Layout::Log(_)) {
        bail!(
            "a cache of profile {profile} cannot be mirrored; leave --mirror out, or take profile {}",
            profile::DEFAULT
        );
    }
    Ok(())
}

/// The size of a cache on these devices: that of the smaller one, which is named.
fn smaller_of<'a>(cache: &'a Device, mirror: Option<&'a Device>) -> (u64, &'a DeviceSpec) {
    let mirror = mirror.filter(|mirror| mirror.size_bytes() < cache.size_bytes());
    let smaller = mirror.unwrap_or(cache);
    (smaller.size_bytes(), smaller.spec())
}

/// Writes the records of a new mirrored cache to both halves, its superblock last.
fn format_both(halves: [&Device; 2], superblock: &mut Superblock) -> Result<()> {
    let names = halves.map(|half| half.spec().absolute().to_string());
    let failed = |errno: Errno| {
        anyhow!("{} or {} failed while its records were written (errno {})", names[0], names[1], errno.0)
    };
    let images = halves.map(BlockingDevice::new);
    let names = names.each_ref().map(String::as_str);
    let mut pair = Pair::create(images, superblock.set_id, superblock.cache_bytes, names).map_err(failed)?;
    engine::recovery::format(&mut pair, superblock).map_err(failed)?;
    superblock::store(&mut pair, superblock)?;
    if pair.standings() != [Standing::In; 2] {
        return Err(failed(Errno::IO));
    }
    Ok(())
}

/// Writes the records of a new cache, its superblock last.
///
/// # Errors
/// If the device fails.
pub fn format(cache: &Device, superblock: &mut Superblock) -> Result<()> {
    let spec = cache.spec();
    let mut image = BlockingDevice::new(cache);
    if let Layout::Slots(slots) = superblock.layout {
        zero(&mut image, slots.metadata())?;
    }
    engine::recovery::format(&mut image, superblock)
        .map_err(|errno| anyhow!("{spec} failed while its records were written (errno {})", errno.0))?;
    superblock::store(&mut image, superblock)
}

fn print(created: &Created, json: bool) -> Result<()> {
    let mut output = Output::stdout();
    if json {
        output.json(created)?;
        return Ok(output.finish()?);
    }
    writeln!(
        output,
        "formatted {} ({}, {}) as {}{} cache of {}, profile {}{}",
        created.cache,
        Size(created.cache_bytes),
        created.division,
        if created.ephemeral { "ephemeral " } else { "" },
        created.mode,
        created.origin,
        created.profile,
        if created.safe { "" } else { " without safety" }
    )?;
    writeln!(
        output,
        "volume {} ({}); serve it: forebay serve {}",
        created.name,
        Size(created.origin_bytes),
        created.cache
    )?;
    if let Some(mirror) = &created.mirror {
        writeln!(output, "mirrored on {mirror}: either of the two devices may fail")?;
    }
    for findings in created.trial.iter().chain(&created.mirror_trial) {
        writeln!(output, "{findings}")?;
    }
    Ok(output.finish()?)
}

/// Says which requests never enter, if the origin lets clients make them.
fn warn_of_alignment(profile: &str, composition: &Composition, sector_bytes: u32) {
    let aligned_sectors = composition.cutoff.aligned_sectors;
    let aligned_bytes = u64::from(aligned_sectors) * SECTOR_BYTES;
    if aligned_bytes > u64::from(sector_bytes) {
        notice(format_args!(
            "with profile {profile} requests that do not begin and end at multiples of {aligned_bytes} bytes bypass \
             the cache (aligned_sectors = {aligned_sectors})"
        ));
    }
}

/// Says so if most of the cache cannot hold what clients read and write.
fn warn_of_room(
    profile: &str,
    composition: &Composition,
    layout: &Layout,
    (spec, size_bytes): (&DeviceSpec, u64),
) {
    let room_bytes = composition.room_bytes(layout);
    if room_bytes >= size_bytes / 2 {
        return;
    }
    let way_out = match composition.size_with_room(size_bytes) {
        Some(needed_bytes) => format!("of {} it is half or more", Size(needed_bytes)),
        None => "a larger device does not change that".into(),
    };
    notice(format_args!(
        "only {} of the {} of {spec} can hold blocks with profile {profile}; {way_out}",
        Size(room_bytes),
        Size(size_bytes)
    ));
}

/// Zeroes a region in which remains of an earlier cache could be taken for a record.
fn zero(image: &mut BlockingDevice, region: Region) -> Result<()> {
    let zeroes = vec![0; ZERO_BYTES as usize];
    let mut at = region.offset_bytes;
    let end = at + region.len_bytes;
    while at < end {
        let len_bytes = ZERO_BYTES.min(end - at);
        image
            .write_at(at, &zeroes[..len_bytes as usize])
            .map_err(system)
            .context("cannot write to the cache device")?;
        at += len_bytes;
    }
    image.flush().map_err(system).context("cannot flush the cache device")
}

/// The end of the origin's name, as far as an export's name can have it.
fn default_name(origin: &DeviceSpec) -> String {
    let path = match origin {
        DeviceSpec::Nbd(uri) => Some(Path::new(&uri.export)),
        _ => origin.path(),
    };
    let stem = path.and_then(Path::file_stem).unwrap_or_default();
    let name: String = stem
        .to_string_lossy()
        .chars()
        .map(|c| if arguments::is_volume_character(c) { c } else { '-' })
        .take(64)
        .collect();
    if name.is_empty() { "volume".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_name_is_that_of_the_origin() {
        for (spec, name) in [
            ("/dev/sdb", "sdb"),
            ("/srv/my disk.img", "my-disk"),
            ("model:hdd?store=/x/slow.img&size=8G", "slow"),
            ("nbd://nas/vg/my%20disk", "my-disk"),
            ("nbd://nas", "volume"),
        ] {
            assert_eq!(default_name(&live::devices::parse(spec).unwrap()), name);
        }
    }
}
