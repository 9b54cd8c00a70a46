//! Files of warm lists: written as a whole, read with suspicion, made of traces and ranges.

use crate::arguments::warm::{ByteRange, Warm};
use crate::output::Size;
use crate::state::replace_file;
use anyhow::{Context, Result, anyhow, bail};
use engine::format::{
    FormatError, ListedExtent, ListedVolume, WARM_LIST_BYTES_MAX, WarmList, WarmListWriter,
};
use engine::units::{BLOCK_BYTES, SECTORS_PER_BLOCK, VOLUME_BLOCKS_MAX};
use engine::warmth::{WORTH_MAX, Warmth};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes of a list that a daemon keeps, at the most.
pub const KEPT_BYTES_MAX: usize = 16 << 20;
/// Runs of blocks that are told apart while a list is made: 32 MiB of memory.
pub const RUNS_MAX: u32 = 4 << 20;
/// Different blocks of a trace that are counted.
const TRACE_BLOCKS_MAX: usize = 16 << 20;

/// Reads a list.
///
/// # Errors
/// If it is none, or cannot be read.
pub fn read(path: &Path) -> Result<WarmList> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot read the warm list {name}"))?;
    let mut bytes = Vec::new();
    file.take(WARM_LIST_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read the warm list {name}"))?;
    WarmList::decode(&bytes).map_err(|error| match error {
        FormatError::Magic => anyhow!("{name} is no warm list; a trace is given with --trace"),
        FormatError::Truncated => anyhow!("the warm list {name} was cut short; use another one, or a trace"),
        error => anyhow!("the warm list {name} cannot be used: {error}"),
    })
}

/// Makes sure that a list may be kept in a file: one that is there is a list.
///
/// # Errors
/// If it holds something else, which a list would replace, or is no ordinary file.
pub fn expect_place(path: &Path) -> Result<()> {
    let name = path.display();
    let there = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        there => there.with_context(|| format!("cannot use {name} for the warm list"))?,
    };
    let mut head = Vec::new();
    if there.is_file() {
        File::open(path)
            .and_then(|file| file.take(64).read_to_end(&mut head))
            .with_context(|| format!("cannot use {name} for the warm list"))?;
    }
    if !there.is_file() || !head.is_empty() && WarmList::decode(&head) == Err(FormatError::Magic) {
        bail!("{name} is there and no warm list, and would be replaced by one; name another file");
    }
    Ok(())
}

/// Writes a list of extents, as many as fit into `bytes_max`; durable on return.
///
/// # Errors
/// If that fails: then the old list is there, or the new one.
pub fn write(
    path: &Path,
    volumes: &[ListedVolume],
    extents: &[ListedExtent],
    bytes_max: usize,
) -> Result<()> {
    let mut writer = WarmListWriter::new(volumes, bytes_max);
    for extent in extents {
        if !writer.push(*extent) {
            break;
        }
    }
    replace_file(path, &writer.finish())
        .with_context(|| format!("cannot write the warm list {}; see --warm-list", path.display()))
}

/// A volume whatever its name is.
fn any_volume(name: Option<&str>) -> ListedVolume {
    let name = name.unwrap_or_default().to_owned();
    ListedVolume { name, identity: String::new(), blocks: VOLUME_BLOCKS_MAX }
}

/// Writes the list of what a trace or ranges name.
///
/// # Errors
/// If the trace cannot be read, or is of a disk that cannot be, or the list cannot be written.
pub fn make(path: &Path, arguments: &Warm) -> Result<()> {
    let extents = match &arguments.trace {
        Some(trace) => of_trace(trace, arguments)?,
        None => of_ranges(&arguments.range)?,
    };
    let volume = any_volume(arguments.volume.as_deref());
    write(path, &[volume], &extents, WARM_LIST_BYTES_MAX)
}

fn of_ranges(ranges: &[ByteRange]) -> Result<Vec<ListedExtent>> {
    let mut warmth = Warmth::new(RUNS_MAX);
    for range in ranges {
        let (first_block, blocks) = range.blocks();
        if first_block + blocks > VOLUME_BLOCKS_MAX {
            bail!(
                "a volume has {} at the most; give a range inside it",
                Size(VOLUME_BLOCKS_MAX * BLOCK_BYTES)
            );
        }
        warmth.add(ListedExtent { worth: 1, volume: 0, first_block, blocks });
    }
    Ok(warmth.chosen())
}

fn of_trace(trace: &Path, arguments: &Warm) -> Result<Vec<ListedExtent>> {
    let mut source = lab::trace::open(trace, arguments.reading())?;
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    while let Some(entry) = source.next_entry()? {
        if entry.op == lab::trace::Op::Discard {
            continue;
        }
        if entry.volume > 0 {
            bail!("{} is of several disks; a trace to warm by is of one", trace.display());
        }
        let first = entry.range.start / SECTORS_PER_BLOCK;
        let end = entry.range.end().div_ceil(SECTORS_PER_BLOCK);
        if end > VOLUME_BLOCKS_MAX {
            bail!("{} is of a larger disk than a volume can be", trace.display());
        }
        for block in first..end {
            let is_known = counts.len() < TRACE_BLOCKS_MAX || counts.contains_key(&block);
            if is_known {
                let count = counts.entry(block).or_default();
                *count = count.saturating_add(1).min(WORTH_MAX);
            }
        }
    }
    if counts.is_empty() {
        bail!("{} names no block", trace.display());
    }
    let mut warmth = Warmth::new(RUNS_MAX);
    for (first_block, worth) in counts {
        warmth.add(ListedExtent { worth, volume: 0, first_block, blocks: 1 });
    }
    Ok(warmth.chosen())
}
