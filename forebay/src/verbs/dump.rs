//! `forebay dump`: superblock, segments and entries, or records of slots, of a cache that is not running, as they are on
//! it.

mod slots;

use crate::arguments::Dump;
use crate::halves;
use crate::output::{Output, Size};
use crate::report::{ChangeReport, Division, changes};
use crate::state::hexadecimal;
use crate::superblock;
use anyhow::{Result, anyhow, bail};
use engine::format::{Entry, Layout, SEGMENTS_OFFSET, Superblock, VolumeRecord, payload_runs};
use engine::store::log::scan::{BatchRecord, Scan, SegmentSpan, SegmentView};
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Dumped {
    superblock: SuperblockDump,
    log: LogDump,
    segments: Vec<SegmentDump>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<EntryDump>>,
}

#[derive(Serialize)]
struct SuperblockDump {
    set_id: String,
    update: u64,
    session: u64,
    cut_sequence: u64,
    flushed_sequence: u64,
    base_sequence: u64,
    ordered_sequence: u64,
    clean_stop: bool,
    is_ephemeral: bool,
    is_mirrored: bool,
    cache_bytes: u64,
    #[serde(flatten)]
    division: Division,
    profile: String,
    /// Its composition, line by line; empty for a cache of an early build.
    composition: Vec<String>,
    next_volume_id: u32,
    volumes: Vec<VolumeDump>,
    /// The last changes of settings, oldest first.
    history: Vec<ChangeReport>,
}

#[derive(Serialize)]
struct VolumeDump {
    slot: usize,
    id: u32,
    name: String,
    origin: String,
    identity: String,
    size_bytes: u64,
    sector_bytes: u32,
    mode: &'static str,
    clean_floor_sequence: u64,
    fingerprint: Vec<PlaceDump>,
}

#[derive(Serialize)]
struct PlaceDump {
    offset_bytes: u64,
    checksum: u32,
}

#[derive(Serialize)]
struct LogDump {
    next_sequence: u64,
    floor_sequence: u64,
    oldest_dirty_sequence: u64,
    flushed_sequence: u64,
    batches_cut: u64,
}

#[derive(Serialize)]
struct SegmentDump {
    segment: u32,
    offset_bytes: u64,
    generation: u64,
    first_sequence: u64,
    last_sequence: u64,
    sealed: bool,
    used_bytes: u64,
}

#[derive(Serialize)]
struct EntryDump {
    sequence: u64,
    segment: u32,
    kind: &'static str,
    volume_id: u32,
    start_sector: u64,
    sectors: u32,
    /// Place of the payload on the device; absent if there is none.
    payload_offset_bytes: Option<u64>,
    extra: u64,
}

pub(super) fn run(arguments: &Dump) -> Result<()> {
    let spec = &arguments.cache;
    let mut image = halves::open_damaged(spec)?.image;
    let superblock = superblock::load(&mut image, &spec.to_string())?;
    if let Layout::Slots(layout) = superblock.layout {
        if arguments.segment.is_some() {
            bail!(
                "{spec} has slots and no segments; forebay dump {spec} --entries shows what is recorded of them"
            );
        }
        let mut output = Output::stdout();
        if !arguments.report.json {
            print_superblock(&mut output, &superblock)?;
        }
        let result = slots::run(arguments, &mut image, &superblock, &layout, &mut output);
        output.finish()?;
        return result;
    }
    if let Some(segment) = arguments.segment.filter(|segment| *segment >= superblock.geometry().segments) {
        bail!("there is no segment {segment}; the last one is {}", superblock.geometry().segments - 1);
    }
    let is_wanted = |segment: u32| arguments.segment.is_none_or(|only| only == segment);
    let has_entries = arguments.entries || arguments.segment.is_some();
    let mut output = Output::stdout();
    let mut entries = Vec::new();
    let mut printed = Ok(());
    if !arguments.report.json {
        print_superblock(&mut output, &superblock)?;
    }
    let mut visit = |view: SegmentView, batch: &BatchRecord| {
        if !has_entries || !is_wanted(view.segment) || printed.is_err() {
            return;
        }
        for entry in entries_of(&superblock, view, batch) {
            if arguments.report.json {
                entries.push(entry);
            } else if printed.is_ok() {
                printed = print_entry(&mut output, &entry);
            }
        }
    };
    let scan = engine::store::log::scan::scan(&mut image, &superblock, false, &mut visit);
    printed?;
    let scan = match scan {
        Ok(scan) => scan,
        Err(error) => {
            output.finish()?;
            return Err(anyhow!("the log of {spec} cannot be read: {error}; see forebay check {spec}"));
        }
    };
    let segments: Vec<SegmentDump> = scan
        .segments
        .iter()
        .filter(|span| is_wanted(span.segment))
        .map(|span| segment_dump(&superblock, span))
        .collect();
    if arguments.report.json {
        let entries = has_entries.then_some(entries);
        output.json(&Dumped {
            superblock: superblock_dump(&superblock),
            log: log_dump(&scan),
            segments,
            entries,
        })?;
    } else {
        print_log(&mut output, &log_dump(&scan), &segments)?;
    }
    Ok(output.finish()?)
}

fn superblock_dump(superblock: &Superblock) -> SuperblockDump {
    let volume = |(slot, record): (usize, &Option<VolumeRecord>)| {
        record.as_ref().map(|record| VolumeDump {
            slot,
            id: record.id.0,
            name: record.name.clone(),
            origin: record.origin.clone(),
            identity: record.identity.clone(),
            size_bytes: record.size_sectors * engine::units::SECTOR_BYTES,
            sector_bytes: record.sector_bytes,
            mode: record.mode.name(),
            clean_floor_sequence: record.clean_floor_sequence,
            fingerprint: record
                .fingerprint
                .iter()
                .flatten()
                .map(|place| PlaceDump { offset_bytes: place.offset_bytes, checksum: place.checksum })
                .collect(),
        })
    };
    SuperblockDump {
        set_id: hexadecimal(&superblock.set_id),
        update: superblock.update,
        session: superblock.session,
        cut_sequence: superblock.cut_sequence,
        flushed_sequence: superblock.flushed_sequence,
        base_sequence: superblock.base_sequence,
        ordered_sequence: superblock.ordered_sequence,
        clean_stop: superblock.clean_stop,
        is_ephemeral: superblock.is_ephemeral,
        is_mirrored: superblock.is_mirrored,
        cache_bytes: superblock.cache_bytes,
        division: (&superblock.layout).into(),
        profile: superblock.profile.clone(),
        composition: superblock.composition.lines().map(str::to_owned).collect(),
        next_volume_id: superblock.next_volume_id,
        volumes: superblock.volumes.iter().enumerate().filter_map(volume).collect(),
        history: changes(&superblock.history),
    }
}

fn log_dump(scan: &Scan) -> LogDump {
    LogDump {
        next_sequence: scan.end.next_sequence,
        floor_sequence: scan.floor_sequence,
        oldest_dirty_sequence: scan.oldest_dirty_sequence,
        flushed_sequence: scan.flushed_sequence,
        batches_cut: scan.batches_cut,
    }
}

fn segment_dump(superblock: &Superblock, span: &SegmentSpan) -> SegmentDump {
    SegmentDump {
        segment: span.segment,
        offset_bytes: superblock.geometry().offset_bytes(span.segment, 0),
        generation: span.generation,
        first_sequence: span.first_sequence,
        last_sequence: span.last_sequence,
        sealed: span.sealed,
        used_bytes: u64::from(span.used_blocks) * engine::units::BLOCK_BYTES,
    }
}

fn entries_of(
    superblock: &Superblock,
    view: SegmentView,
    batch: &BatchRecord,
) -> impl Iterator<Item = EntryDump> {
    let sequence = batch.sequence;
    // Of payload that one half of a mirrored cache has alone, an entry may have parts on both: the first one is told.
    let mut starts = vec![None; batch.entries.len()];
    for (at, run) in payload_runs(&batch.entries) {
        starts[at].get_or_insert(batch.payload_block + run.at);
    }
    batch.entries.iter().zip(starts).map(move |(entry, start): (&Entry, Option<u32>)| {
        let payload_offset_bytes = (entry.payload_blocks > 0).then(|| {
            if entry.kind.is_key() {
                return SEGMENTS_OFFSET + entry.extra * engine::units::BLOCK_BYTES;
            }
            superblock.geometry().offset_bytes(view.segment, start.unwrap_or(batch.payload_block))
        });
        EntryDump {
            sequence,
            segment: view.segment,
            kind: entry.kind.name(),
            volume_id: entry.volume.0,
            start_sector: entry.start_sector,
            sectors: entry.sectors,
            payload_offset_bytes,
            extra: entry.extra,
        }
    })
}

fn print_superblock(to: &mut impl Write, superblock: &Superblock) -> io::Result<()> {
    let dump = superblock_dump(superblock);
    writeln!(to, "set        {}", dump.set_id)?;
    let SuperblockDump { update, session, cut_sequence, flushed_sequence, .. } = &dump;
    writeln!(
        to,
        "superblock update {update}, session {session}, cut {cut_sequence}, flushed {flushed_sequence}"
    )?;
    writeln!(to, "stopped    {}", if dump.clean_stop { "cleanly" } else { "by a crash, or it runs" })?;
    writeln!(to, "device     {}, {}", Size(dump.cache_bytes), dump.division)?;
    writeln!(to, "profile    {}", dump.profile)?;
    for line in &dump.composition {
        writeln!(to, "made of    {}", line.escape_debug())?;
    }
    for volume in &dump.volumes {
        writeln!(
            to,
            "volume     {} (id {}): {}, {}, sectors of {} B, origin {} [{}], {} places of the fingerprint known",
            volume.name,
            volume.id,
            Size(volume.size_bytes),
            volume.mode,
            volume.sector_bytes,
            volume.origin,
            volume.identity,
            volume.fingerprint.len()
        )?;
    }
    for change in &dump.history {
        writeln!(to, "changed    {change}")?;
    }
    Ok(())
}

fn print_entry(to: &mut impl Write, entry: &EntryDump) -> io::Result<()> {
    write!(
        to,
        "entry      sequence {} segment {} {:9} volume {} sectors {}+{}",
        entry.sequence, entry.segment, entry.kind, entry.volume_id, entry.start_sector, entry.sectors
    )?;
    match entry.payload_offset_bytes {
        Some(offset_bytes) => writeln!(to, " at byte {offset_bytes}"),
        None if entry.extra > 0 => writeln!(to, " of place {}", entry.extra),
        None => writeln!(to),
    }
}

fn print_log(to: &mut impl Write, log: &LogDump, segments: &[SegmentDump]) -> io::Result<()> {
    writeln!(
        to,
        "log        next sequence {}, floor {}, dirty from {}, flushed up to {}, {} batches cut",
        log.next_sequence,
        log.floor_sequence,
        log.oldest_dirty_sequence,
        log.flushed_sequence,
        log.batches_cut
    )?;
    for segment in segments {
        writeln!(
            to,
            "segment    {} at byte {}: generation {}, sequences {} to {}, {} used, {}",
            segment.segment,
            segment.offset_bytes,
            segment.generation,
            segment.first_sequence,
            segment.last_sequence,
            Size(segment.used_bytes),
            if segment.sealed { "sealed" } else { "open" }
        )?;
    }
    Ok(())
}
