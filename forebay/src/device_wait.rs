//! The wait of a start for devices that are not there yet: at boot a disk may be found late.

use crate::arguments::RunOptions;
use crate::log::notice;
use engine::pair::page_of;
use engine::recovery::load_superblock;
use live::devices::{self, Access, BlockingDevice, DeviceSpec};
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Waits until the cache is there, with its other half and the origins that it names, for `patience` at the most. What is
/// missing then, and what cannot be used, the start itself tells of.
pub fn wait_for_devices(cache: &DeviceSpec, options: &RunOptions, patience: Duration) {
    let until = Instant::now() + patience;
    let mut told = None;
    while let Some(missing) = first_missing(cache, options).filter(|_| Instant::now() < until) {
        if told.as_ref() != Some(&missing) {
            notice(format_args!("waiting for {missing}, which is not there yet"));
            told = Some(missing);
        }
        thread::sleep(PAUSE);
    }
}

fn first_missing(cache: &DeviceSpec, options: &RunOptions) -> Option<DeviceSpec> {
    let given = options.origin.iter().map(|one| &one.device);
    let mut named = [cache].into_iter().chain(&options.mirror).chain(given);
    let missing = named.find(|spec| is_missing(spec)).cloned();
    missing.or_else(|| on_record(cache, options).into_iter().find(is_missing))
}

/// Whether a device has a place on this machine, and is not there.
fn is_missing(spec: &DeviceSpec) -> bool {
    spec.path().is_some_and(|path| !path.exists())
}

/// The devices that a cache names itself, as far as nothing else was given for them.
fn on_record(cache: &DeviceSpec, options: &RunOptions) -> Vec<DeviceSpec> {
    let Ok(device) = devices::open(cache, Access::ReadOnly) else { return Vec::new() };
    let mut image = BlockingDevice::new(&device);
    let Ok((superblock, _)) = load_superblock(&mut image) else { return Vec::new() };
    // A half that does not count any more need not be there.
    let page = page_of(&mut image).filter(|page| page.set_id == superblock.set_id && !page.is_other_out);
    let halves = page.filter(|_| options.mirror.is_none()).map_or_else(Vec::new, |page| page.names.to_vec());
    let is_given = |name: &str| {
        options.origin.iter().any(|one| one.volume.as_deref().is_none_or(|volume| volume == name))
    };
    let origins = superblock.volumes.iter().flatten().filter(|volume| !is_given(&volume.name));
    let names = halves.into_iter().chain(origins.map(|volume| volume.origin.clone()));
    names.filter_map(|name| devices::parse(&name).ok()).collect()
}
