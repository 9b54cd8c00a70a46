//! `forebay add`: one more volume on a cache that is not running.

use super::create::{check_pair, open_origin};
use crate::arguments::Add;
use crate::opening::open_cache;
use crate::origin::{self, NewVolume};
use crate::output::{Output, Size};
use crate::ownership::{check_origin, is_same, remember};
use crate::state::StateDirectory;
use crate::superblock;
use anyhow::{Context, Result, bail};
use engine::format::Superblock;
use engine::units::{VOLUMES_MAX, VolumeId};
use live::devices::BlockingDevice;
use live::devices::{self, Access, DeviceSpec};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Added {
    cache: String,
    origin: String,
    name: String,
    mode: &'static str,
    origin_bytes: u64,
}

pub(super) fn run(arguments: Add) -> Result<()> {
    let Add { cache: cache_spec, origin: origin_spec, name, mode, take_over, places, report } = arguments;
    check_pair(&origin_spec, &cache_spec)?;
    let state = StateDirectory::find(places.state_dir.as_deref())?;
    let cache = open_cache(&cache_spec, Access::Exclusive)?;
    let mut image = BlockingDevice::new(&cache);
    let mut superblock = superblock::load(&mut image, &cache_spec.to_string())?;
    let composition = superblock::composition(&superblock, &cache_spec.to_string())?;
    let mode = mode.unwrap_or(composition.write_mode);
    superblock::check_mode(&superblock.profile, &composition, mode)?;
    check_is_new(&superblock, &name, &origin_spec)?;
    let slot = superblock
        .volumes
        .iter()
        .position(Option::is_none)
        .with_context(|| format!("{cache_spec} has {VOLUMES_MAX} volumes, which is all it can hold"))?;
    let origin = open_origin(&origin_spec)?;
    origin::check_mode(&origin, mode)?;
    check_origin(&state, &origin, &cache_spec, take_over.as_ref())?;
    let id = VolumeId(superblock.next_volume_id);
    let volume = origin::describe(&origin, NewVolume { id, name, mode })?;
    let added = Added {
        cache: cache_spec.absolute().to_string(),
        origin: volume.origin.clone(),
        name: volume.name.clone(),
        mode: mode.name(),
        origin_bytes: origin.size_bytes(),
    };
    superblock.next_volume_id += 1;
    superblock.volumes[slot] = Some(volume);
    state.make()?;
    superblock::store(&mut image, &mut superblock)?;
    remember(&state, &superblock, &cache_spec)?;

    let mut output = Output::stdout();
    if report.json {
        output.json(&added)?;
    } else {
        writeln!(
            output,
            "volume {} ({}, {}) of {} is on {}",
            added.name,
            Size(added.origin_bytes),
            added.mode,
            added.origin,
            added.cache
        )?;
    }
    Ok(output.finish()?)
}

fn check_is_new(superblock: &Superblock, name: &str, origin: &DeviceSpec) -> Result<()> {
    for volume in superblock.volumes.iter().flatten() {
        if volume.name == name {
            bail!("there is a volume {name} on this cache already; choose another --name");
        }
        if devices::parse(&volume.origin).is_ok_and(|known| is_same(&known, origin)) {
            bail!("{origin} is the origin of volume {} on this cache already", volume.name);
        }
    }
    Ok(())
}
