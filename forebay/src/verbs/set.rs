//! `forebay set`: changes a volume, through the daemon or on the device.

use crate::arguments::RunOptions;
use crate::arguments::{Set, Word};
use crate::control::{Answer, Connection, Question};
use crate::halves::{self, CacheImage};
use crate::interrupt::Interrupts;
use crate::opening::open_origin;
use crate::origin;
use crate::output::{Output, Size};
use crate::ownership::follow;
use crate::running::{self, Doors};
use crate::setting::{Kept, Key, Setting, VolumeSettings, check_together};
use crate::startup::{self, index_bytes, renumber};
use crate::state::StateDirectory;
use crate::superblock;
use anyhow::{Context, Result, anyhow, bail};
use engine::format::{Layout, Superblock, VolumeRecord};
use engine::mutation::Mutations;
use engine::recovery::{self, Options};
use engine::units::{SECTOR_BYTES, VolumeIndex};
use live::devices::{self, Access, Device, DeviceSpec};
use std::io::Write;

pub(super) fn run(arguments: &Set) -> Result<()> {
    let (volume, settings) = sort(&arguments.words)?;
    check_together(&settings, volume)?;
    if arguments.origin.is_some() && !settings.iter().any(|setting| setting.is_about_origin()) {
        bail!(
            "--origin goes with origin=changed only; to serve from another place use forebay serve --origin"
        );
    }
    let Some(mut daemon) = Connection::open(&arguments.cache)? else {
        return set_without_daemon(arguments, volume, settings);
    };
    let volume = volume.map(str::to_owned);
    let question = match settings[..] {
        [setting] => Question::Set { volume, setting },
        _ => Question::SetAll { volume, settings },
    };
    match daemon.ask(&question, |_| ())? {
        Answer::Set => Ok(()),
        other => super::unexpected(&other),
    }
}

fn sort(words: &[Word]) -> Result<(Option<&str>, Vec<Setting>)> {
    let mut volume = None;
    let mut settings = Vec::new();
    for (at, word) in words.iter().enumerate() {
        match word {
            Word::Volume(name) if at == 0 => volume = Some(name.as_str()),
            Word::Volume(name) => {
                bail!("{name} is no setting; write KEY=VALUE, for example mode=writethrough")
            }
            Word::Setting(setting) => settings.push(*setting),
        }
    }
    if let (Some(volume), true) = (volume, settings.is_empty()) {
        bail!("nothing is said to set of volume {volume}; write KEY=VALUE, for example mode=writethrough");
    }
    Ok((volume, settings))
}

fn set_without_daemon(arguments: &Set, volume: Option<&str>, settings: Vec<Setting>) -> Result<()> {
    // An origin that changed keeps the cache from running.
    let (of_origin, others): (Vec<Setting>, Vec<Setting>) =
        settings.into_iter().partition(|setting| setting.is_about_origin());
    let must_run = |setting: &Setting| matches!(setting, Setting::GiveUpLost | Setting::Order(_));
    let must_run = others.iter().any(must_run);
    if !must_run {
        look_ahead(arguments, volume, &others)?;
    }
    of_origin.into_iter().try_for_each(|setting| edit(arguments, volume, setting))?;
    if must_run {
        // One session does all: it has the lock until it ends, and an order may be what a mode needs.
        return set_while_running(arguments, volume, others);
    }
    others.into_iter().try_for_each(|setting| match setting {
        Setting::Kept(kept) => keep(arguments, volume, kept),
        _ => edit(arguments, volume, setting),
    })
}

/// Lost blocks are known to a running cache only, and only that can bring home what is dirty before the order changes.
fn set_while_running(arguments: &Set, volume: Option<&str>, settings: Vec<Setting>) -> Result<()> {
    let interrupts = Interrupts::install(1)?;
    let options = RunOptions::default();
    let state = StateDirectory::find(arguments.places.state_dir.as_deref())?;
    let prepared = startup::prepare(&arguments.cache, &options, state, &interrupts)?;
    let doors = Doors::none(options.device_timeout);
    let volume = volume.map(str::to_owned);
    running::run(prepared, doors, &interrupts, move |running| running.set_all(volume.as_deref(), &settings))
}

/// Refuses settings of which one cannot be, before the first of them is set.
fn look_ahead(arguments: &Set, volume: Option<&str>, settings: &[Setting]) -> Result<()> {
    if settings.is_empty() {
        return Ok(());
    }
    let spec = &arguments.cache;
    let state = StateDirectory::find(arguments.places.state_dir.as_deref())?;
    let mut image = halves::find(spec, None, Access::ReadOnlyExclusive, Some(&state))?.image;
    let mut superblock = superblock::load(&mut image, &spec.to_string())?;
    let composition = superblock::composition(&superblock, &spec.to_string())?;
    let mut kept_together = Vec::new();
    let mut is_about_room = false;
    if settings.iter().any(|setting| setting.of_cache().is_none()) {
        let index = superblock::choose(&superblock, volume)?;
        if settings.contains(&Setting::SizeOfOrigin) {
            set_size(&mut superblock, index, spec)?;
        }
        let notes = state.load_or_new(&superblock.set_id)?;
        kept_together.extend_from_slice(notes.settings_of(&record(&mut superblock, index).name));
    }
    for setting in settings {
        match *setting {
            Setting::Kept(kept) => {
                superblock::check_kept(&superblock.profile, &composition, kept)?;
                is_about_room |= matches!(kept.key(), Key::CacheMin | Key::CacheMax);
                kept_together.push(kept);
            }
            Setting::Mode(mode) => {
                superblock::check_mode(&superblock.profile, &composition, superblock.is_ephemeral, mode)?;
            }
            _ => (),
        }
    }
    if is_about_room {
        VolumeSettings::of(kept_together).check_room(superblock.cache_bytes)?;
    }
    Ok(())
}

/// Notes a setting that the next daemon works by.
fn keep(arguments: &Set, volume: Option<&str>, kept: Kept) -> Result<()> {
    let spec = &arguments.cache;
    // The lock keeps a daemon from writing its notes meanwhile.
    let mut found = halves::open(spec, Access::Exclusive)?;
    let superblock = superblock::load(&mut found.image, &spec.to_string())?;
    let name = if kept.key().is_of_cache() {
        None
    } else {
        let index = superblock::choose(&superblock, volume)?;
        superblock.volumes[index.at()].as_ref().map(|record| record.name.as_str())
    };
    let state = StateDirectory::find(arguments.places.state_dir.as_deref())?;
    let mut record = state.load_or_new(&superblock.set_id)?;
    record.keep(name.unwrap_or_default(), kept);
    state.store(&record)
}

/// Changes the superblock of a cache that is not running.
fn edit(arguments: &Set, volume: Option<&str>, setting: Setting) -> Result<()> {
    let spec = &arguments.cache;
    let mut image = halves::open(spec, Access::Exclusive)?.image;
    let mut superblock = superblock::load(&mut image, &spec.to_string())?;
    let index = superblock::choose(&superblock, volume)?;
    match setting {
        Setting::Mode(mode) => {
            let composition = superblock::composition(&superblock, &spec.to_string())?;
            superblock::check_mode(&superblock.profile, &composition, superblock.is_ephemeral, mode)?;
            let before = std::mem::replace(&mut record(&mut superblock, index).mode, mode);
            note(&mut superblock, index, "mode", (before.name(), mode.name()));
        }
        Setting::SizeOfOrigin => set_size(&mut superblock, index, spec)?,
        Setting::OriginChanged | Setting::OriginChangedDiscardDirty => {
            let may_discard = setting == Setting::OriginChangedDiscardDirty;
            let origin = arguments.origin.as_ref();
            change_origin(&mut image, &mut superblock, Change { index, origin, may_discard, cache: spec })?;
        }
        Setting::GiveUpLost | Setting::Order(_) => unreachable!("a running cache does that"),
        Setting::Kept(_) => unreachable!("it is kept among the notes"),
    }
    let state = StateDirectory::find(arguments.places.state_dir.as_deref())?;
    halves::store(&mut image, &mut superblock, spec)?;
    follow(&state, &superblock)
}

fn record(superblock: &mut Superblock, index: VolumeIndex) -> &mut VolumeRecord {
    superblock.volumes[index.at()].as_mut().expect("the volume was chosen among those there are")
}

fn note(superblock: &mut Superblock, index: VolumeIndex, what: &str, (old, new): (&str, &str)) {
    let name = record(superblock, index).name.clone();
    superblock::note_change(superblock, &name, what, old, new);
}

fn open_noted_origin(record: &VolumeRecord, given: Option<&DeviceSpec>) -> Result<Device> {
    let spec = match given {
        Some(spec) => spec.clone(),
        None => devices::parse(&record.origin).context("the origin noted for the volume has no meaning")?,
    };
    open_origin(&spec, Access::ReadOnlyExclusive, &record.name)
}

fn set_size(superblock: &mut Superblock, index: VolumeIndex, cache: &DeviceSpec) -> Result<()> {
    // What a slot has behind the old end is not the origin's.
    let unit_bytes = match &superblock.layout {
        Layout::Slots(layout) => layout.slot_bytes(),
        Layout::Log(_) | Layout::Keys(_) | Layout::Frames(_) => engine::units::BLOCK_BYTES,
    };
    let record = record(superblock, index);
    let origin = open_noted_origin(record, None)?;
    origin::verify(record, &origin, cache)?;
    origin::check_size(&origin)?;
    let noted_bytes = record.size_sectors * SECTOR_BYTES;
    if noted_bytes == origin.size_bytes() {
        bail!("volume {} has the size of its origin already", record.name);
    }
    if noted_bytes.is_multiple_of(unit_bytes) {
        record.size_sectors = origin.size_bytes() / SECTOR_BYTES;
        // The well-known places of another size are others.
        record.fingerprint = origin::fingerprint(&origin)?;
        let (old, new) = (noted_bytes.to_string(), origin.size_bytes().to_string());
        note(superblock, index, "size_bytes", (&old, &new));
        return Ok(());
    }
    bail!(
        "the size of volume {} is no multiple of {unit_bytes}, so its end needs care; set size=origin while it runs",
        record.name
    )
}

struct Change<'a> {
    index: VolumeIndex,
    origin: Option<&'a DeviceSpec>,
    may_discard: bool,
    cache: &'a DeviceSpec,
}

/// Accepts an origin as it is: giving the volume a new number drops the cached content of the old one.
fn change_origin(image: &mut CacheImage, superblock: &mut Superblock, change: Change<'_>) -> Result<()> {
    let Change { index, origin: given, may_discard, cache } = change;
    let index_budget_bytes = index_bytes(superblock, image.is_mirrored());
    let options = Options { index_budget_bytes, repair: false, mutations: Mutations::NONE };
    let name = record(superblock, index).name.clone();
    let dirty_bytes = match recovery::inspect(image, options) {
        Ok(opened) => opened.dirty_bytes(index),
        Err(error) => return Err(superblock::not_recovered(&error, cache)),
    };
    if dirty_bytes > 0 && !may_discard {
        bail!(
            "volume {name} has {} of dirty data that only the cache has; connect its old origin, or throw that data \
             away: forebay set {cache} {name} origin=changed-discard-dirty",
            Size(dirty_bytes)
        );
    }
    let old = record(superblock, index).clone();
    let origin = open_noted_origin(&old, given)?;
    let id = renumber(superblock, index);
    let new = origin::describe(&origin, origin::NewVolume { id, name: old.name, mode: old.mode })
        .map_err(|error| anyhow!("{error:#}"))?;
    // The number that the records of slots are under: as long as it is another one, they are void, and the next
    // start takes them back.
    let clean_floor_sequence = match superblock.layout {
        Layout::Slots(_) => old.clean_floor_sequence,
        Layout::Log(_) | Layout::Keys(_) | Layout::Frames(_) => new.clean_floor_sequence,
    };
    let accepted = format!("{} as it was then", new.origin);
    superblock.volumes[index.at()] = Some(VolumeRecord { clean_floor_sequence, ..new });
    note(superblock, index, "origin", (&old.origin, &accepted));
    if dirty_bytes > 0 {
        let mut output = Output::stdout();
        writeln!(output, "{} of dirty data of volume {name} were thrown away", Size(dirty_bytes))?;
        output.finish()?;
    }
    Ok(())
}
