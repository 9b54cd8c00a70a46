//! `forebay salvage`: brings home, or into files, what can be read of the dirty data of a damaged cache.
//!
//! The cache itself is only read. What is written home is what a destage would have written; the origin is verified first as a
//! start does, and flushed at the end.

use crate::arguments::salvage::Salvage as Arguments;
use crate::halves::{self, CacheImage};
use crate::lasting::{self, Left};
use crate::log::notice;
use crate::opening::open_origin;
use crate::origin;
use crate::output::{Count, Output, Size};
use crate::ownership::{User, check_start, give_up_elsewhere};
use crate::startup::{check_memory_for_index, check_newest, index_bytes};
use crate::state::StateDirectory;
use crate::superblock::{self, system};
use anyhow::{Context, Result, anyhow, bail};
use engine::effect::WriteMode;
use engine::format::{Superblock, VolumeRecord};
use engine::image::Image;
use engine::pair::Half;
use engine::recovery::load_superblock;
use engine::salvage::{self, Dirty, DirtyContent};
use engine::units::{BLOCK_BYTES, SECTOR_BYTES, payload_checksum};
use live::devices::{self, Access, BlockingDevice, Device, DeviceSpec};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

/// Ranges that a report names at the most.
const NAMED_MAX: usize = 1000;
/// Ranges in doubt that are named in text; there may be one for each block.
const IN_DOUBT_TOLD: usize = 10;
const BLOCK: usize = BLOCK_BYTES as usize;
/// Bytes that are written at once, or a block more.
const RUN_BYTES: usize = 256 << 10;

/// The report.
#[derive(Default, Serialize)]
struct Salvaged {
    /// Why the cache cannot be started; absent if it can.
    damage: Option<String>,
    /// Batches of its log that cannot be found: nobody knows what they held.
    missing_batches: u64,
    /// The file that had what the last daemon wrote last, if it is gone.
    missing_file: Option<String>,
    /// Whether something was written.
    written: bool,
    volumes: Vec<VolumeSalvaged>,
}

/// The part of a report about one volume.
#[derive(Serialize)]
struct VolumeSalvaged {
    volume: String,
    /// Where it goes.
    to: String,
    /// Bytes that can be read, or were written.
    salvaged_bytes: u64,
    /// Bytes of these that a missing batch may have had newer.
    in_doubt_bytes: u64,
    lost_bytes: u64,
    /// The first ranges that are lost.
    lost: Vec<Range>,
    /// The number of all of them.
    lost_ranges: u64,
    /// The first ranges that are in doubt.
    in_doubt: Vec<Range>,
    /// The number of all of them.
    in_doubt_ranges: u64,
}

/// Ranges of a volume, of which the first are named and all are counted.
#[derive(Default)]
struct Ranges {
    named: Vec<Range>,
    count: u64,
    end_bytes: u64,
}

impl Ranges {
    /// Adds a range behind the others, to the last one if it continues that.
    fn add(&mut self, range: Range) {
        let continues = self.count > 0 && self.end_bytes == range.offset_bytes;
        self.end_bytes = range.offset_bytes + range.len_bytes;
        if !continues {
            self.count += 1;
            if self.named.len() < NAMED_MAX {
                self.named.push(range);
            }
        } else if self.named.len() as u64 == self.count
            && let Some(last) = self.named.last_mut()
        {
            last.len_bytes += range.len_bytes;
        }
    }
}

/// A range of a volume.
#[derive(Clone, Copy, Serialize)]
struct Range {
    offset_bytes: u64,
    len_bytes: u64,
}

/// Where the data of a volume goes.
enum Target {
    Nowhere,
    Home(Device),
    File(File),
}

/// Writes to a target, neighbours together.
struct Writer {
    target: Target,
    /// Where the next of `run` goes.
    offset_bytes: u64,
    run: Vec<u8>,
}

impl Writer {
    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        let follows = self.offset_bytes + self.run.len() as u64 == offset_bytes;
        if !follows || self.run.len() >= RUN_BYTES {
            self.flush()?;
            self.offset_bytes = offset_bytes;
        }
        self.run.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.run.is_empty() {
            self.target.write(self.offset_bytes, &self.run)?;
            self.run.clear();
        }
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        self.flush()?;
        self.target.end()
    }
}

impl Target {
    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Target::Nowhere => Ok(()),
            Target::Home(origin) => BlockingDevice::new(origin)
                .write_at(offset_bytes, bytes)
                .map_err(system)
                .with_context(|| format!("cannot write to the origin at byte {offset_bytes}")),
            Target::File(file) => {
                file.write_all_at(bytes, offset_bytes).context("cannot write what was salvaged")
            }
        }
    }

    fn end(self) -> Result<()> {
        match self {
            Target::Nowhere => Ok(()),
            Target::Home(origin) => {
                BlockingDevice::new(&origin).flush().map_err(system).context("cannot flush the origin")
            }
            Target::File(file) => file.sync_all().context("cannot write what was salvaged"),
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let spec = &arguments.cache;
    let mut image = halves::open_damaged(spec)?.image;
    let (superblock, _) =
        load_superblock(&mut image).map_err(|error| superblock::refused(error, &spec.to_string()))?;
    superblock::check_line(&superblock, &spec.to_string())?;
    check_memory_for_index(&superblock)?;
    let missing_file = match lasting::left(&superblock)? {
        Left::Missing(path) => Some(path.display().to_string()),
        Left::Nothing | Left::Bytes(_) => None,
    };
    let state = StateDirectory::find(arguments.places.state_dir.as_deref())?;
    let notes = state.load_or_new(&superblock.set_id)?;
    // An origin is written, whatever the mode of its volume.
    let user = User { cache: spec, set_id: &notes.set_id, mode: WriteMode::Writeback };
    check_newest(spec, &superblock, &notes, &state)?;
    let index_budget_bytes = index_bytes(&superblock, image.is_mirrored());
    let found = salvage::find(&mut image, index_budget_bytes)
        .map_err(|error| anyhow!("nothing can be salvaged from {spec}: {error}; see forebay check {spec}"))?;
    check_targets(arguments, &superblock)?;
    let mut report = Salvaged {
        damage: found.damage.map(|damage| damage.to_string()),
        missing_batches: found.missing_batches,
        missing_file,
        written: arguments.write,
        volumes: Vec::new(),
    };
    // All origins and files are there before anything is written.
    let mut plans = Vec::new();
    for of_volume in found.dirty.chunk_by(|one, next| one.volume == next.volume) {
        let record = superblock.volumes[of_volume[0].volume.at()].as_ref().context("a volume is gone")?;
        // HAZARD 10: the origin was written without the cache, and has what is newer.
        if notes.volumes.iter().any(|note| note.id == record.id.0 && note.abandoned) {
            notice(format_args!(
                "volume {} was written without its cache since; what the cache holds of it is void",
                record.name
            ));
            continue;
        }
        let (to, target) = target(arguments, record, &state, user)?;
        plans.push((record, to, target, of_volume));
    }
    for (_, _, target, _) in &plans {
        if let Target::Home(origin) = target {
            // What other caches hold of it would be older than what is written now.
            give_up_elsewhere(&state, origin, user)?;
        }
    }
    for (record, to, target, dirty) in plans {
        report.volumes.push(salvage_volume(&mut image, record, to, target, dirty)?);
    }
    print(arguments, &report)?;
    verdict(spec, &report)
}

/// The result in one line, if not everything is there for certain.
fn verdict(spec: &DeviceSpec, report: &Salvaged) -> Result<()> {
    if report.volumes.iter().any(|volume| volume.lost_bytes > 0) {
        bail!("a part of the dirty data in {spec} is lost; the ranges are named above");
    }
    if report.missing_batches > 0 {
        let missing = batches(report.missing_batches);
        bail!("what {missing} of the log of {spec} held is unknown, and may be lost; all else is there");
    }
    if let Some(file) = &report.missing_file {
        bail!(
            "what the last daemon of {spec} wrote last is not there, as {file} is gone; all else is: name its run directory \
             with FOREBAY_RUN_DIR, if there is another one"
        );
    }
    Ok(())
}

fn batches(missing: u64) -> Count<'static> {
    Count(missing, "missing batch", "missing batches")
}

/// Refuses files for volumes that do not exist, two files for one volume, and one file for two.
fn check_targets(arguments: &Arguments, superblock: &Superblock) -> Result<()> {
    for (at, target) in arguments.to.iter().enumerate() {
        let before = &arguments.to[..at];
        if before.iter().any(|other| other.volume == target.volume) {
            bail!("--to names two files for volume {}; name one", target.volume);
        }
        if before.iter().any(|other| other.file == target.file) {
            bail!("--to names {} for two volumes; name a file for each", target.file.display());
        }
        let mut volumes = superblock.volumes.iter().flatten();
        if !volumes.any(|record| record.name == target.volume) {
            bail!("there is no volume {} on {}", target.volume, arguments.cache);
        }
    }
    Ok(())
}

/// Where the data of a volume goes, in words and opened.
fn target(
    arguments: &Arguments,
    record: &VolumeRecord,
    state: &StateDirectory,
    user: User<'_>,
) -> Result<(String, Target)> {
    let size_bytes = record.size_sectors * SECTOR_BYTES;
    if let Some(given) = arguments.to.iter().find(|target| target.volume == record.name) {
        let to = given.file.display().to_string();
        // One that is there may be somebody's data.
        if given.file.symlink_metadata().is_ok() {
            bail!(
                "{to} is there already, and a salvage writes over nothing; name a new file for volume {}",
                record.name
            );
        }
        if !arguments.write {
            return Ok((to, Target::Nowhere));
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&given.file);
        let file = file.and_then(|file| file.set_len(size_bytes).map(|()| file));
        let file = file.with_context(|| format!("cannot make the file {to} for volume {}", record.name))?;
        return Ok((to, Target::File(file)));
    }
    let home: DeviceSpec =
        devices::parse(&record.origin).context("the origin noted for the volume has no meaning")?;
    let access = if arguments.write { Access::Exclusive } else { Access::ReadOnlyExclusive };
    let instead = format!("write into a file: --to {}=FILE", record.name);
    let origin =
        open_origin(&home, access, &record.name).map_err(|error| anyhow!("{error:#}; or {instead}"))?;
    origin::verify_or(record, &origin, &instead)?;
    check_start(state, &origin, user).map_err(|error| anyhow!("{error:#}; or {instead}"))?;
    let target = if arguments.write { Target::Home(origin) } else { Target::Nowhere };
    Ok((record.origin.clone(), target))
}

/// Reads what is dirty of a volume, verifies it, and writes it.
fn salvage_volume(
    image: &mut CacheImage,
    record: &VolumeRecord,
    to: String,
    target: Target,
    dirty: &[Dirty],
) -> Result<VolumeSalvaged> {
    let size_bytes = record.size_sectors * SECTOR_BYTES;
    let mut volume = VolumeSalvaged {
        volume: record.name.clone(),
        to,
        salvaged_bytes: 0,
        in_doubt_bytes: 0,
        lost_bytes: 0,
        lost: Vec::new(),
        lost_ranges: 0,
        in_doubt: Vec::new(),
        in_doubt_ranges: 0,
    };
    let (mut lost, mut in_doubt) = (Ranges::default(), Ranges::default());
    let mut writer = Writer { target, offset_bytes: 0, run: Vec::new() };
    let zeroes = [0; BLOCK];
    for found in dirty {
        let offset_bytes = found.first_block * BLOCK_BYTES;
        // The last block of a volume may be short.
        let len_bytes = (found.blocks * BLOCK_BYTES).min(size_bytes.saturating_sub(offset_bytes));
        let range = Range { offset_bytes, len_bytes };
        let is_good = match found.content {
            DirtyContent::Lost => false,
            DirtyContent::Zeroes => {
                let mut at = 0;
                while at < len_bytes {
                    let part = (len_bytes - at).min(BLOCK_BYTES) as usize;
                    writer.write(offset_bytes + at, &zeroes[..part])?;
                    at += part as u64;
                }
                true
            }
            DirtyContent::At { offset_bytes: place, checksum } => {
                let is_right =
                    |read: &[u8]| checksum.is_none_or(|checksum| payload_checksum(read) == checksum);
                let one = image.read(place, BLOCK).ok().filter(|read| is_right(read));
                // What is wrong on one half of a mirrored cache the other one may have.
                let read = one.or_else(|| {
                    let of_half = |half| image.read_half(half, place, BLOCK).ok();
                    Half::BOTH.into_iter().filter_map(of_half).find(|read| is_right(read))
                });
                let is_read = read.is_some();
                if let Some(read) = read {
                    writer.write(offset_bytes, &read[..len_bytes as usize])?;
                }
                is_read
            }
        };
        if is_good {
            volume.salvaged_bytes += len_bytes;
        } else {
            volume.lost_bytes += len_bytes;
            lost.add(range);
        }
        if is_good && found.is_in_doubt {
            volume.in_doubt_bytes += len_bytes;
            in_doubt.add(range);
        }
    }
    writer.end()?;
    (volume.lost, volume.lost_ranges) = (lost.named, lost.count);
    (volume.in_doubt, volume.in_doubt_ranges) = (in_doubt.named, in_doubt.count);
    Ok(volume)
}

fn print(arguments: &Arguments, report: &Salvaged) -> Result<()> {
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(report)?;
        return Ok(output.finish()?);
    }
    if let Some(damage) = &report.damage {
        writeln!(output, "the cache cannot be started: {damage}")?;
    }
    if report.missing_batches > 0 {
        let missing = batches(report.missing_batches);
        writeln!(output, "what {missing} of its log held is unknown, and may be lost")?;
    }
    if let Some(file) = &report.missing_file {
        writeln!(output, "{file} is gone, which has what the last daemon wrote last")?;
    }
    if report.volumes.is_empty() {
        let known = if report.missing_batches > 0 { " of what can be found" } else { "" };
        writeln!(output, "nothing{known} is dirty: the origins have all of it")?;
    }
    let done = if report.written { "written to" } else { "would be written to" };
    for volume in &report.volumes {
        for range in &volume.lost {
            let Range { offset_bytes, len_bytes } = range;
            writeln!(output, "volume {}, byte {offset_bytes}, {len_bytes} bytes: LOST", volume.volume)?;
        }
        for range in volume.in_doubt.iter().take(IN_DOUBT_TOLD) {
            let Range { offset_bytes, len_bytes } = range;
            writeln!(output, "volume {}, byte {offset_bytes}, {len_bytes} bytes: in doubt", volume.volume)?;
        }
        let more = volume.in_doubt_ranges.saturating_sub(IN_DOUBT_TOLD as u64);
        if more > 0 {
            let ranges = Count(more, "range", "ranges");
            writeln!(output, "volume {}: and {ranges} more in doubt; --json names them", volume.volume)?;
        }
        writeln!(
            output,
            "volume {}: {} {done} {}, {} of that in doubt, {} lost",
            volume.volume,
            Size(volume.salvaged_bytes),
            volume.to,
            Size(volume.in_doubt_bytes),
            Size(volume.lost_bytes)
        )?;
    }
    output.finish()?;
    if report.written && !report.volumes.is_empty() {
        notice(format_args!(
            "the cache is as it was; do not serve it again, it would bring home the same once more: create it anew"
        ));
    } else if !report.volumes.is_empty() {
        notice(format_args!("nothing was written; --write does it"));
    }
    Ok(())
}
