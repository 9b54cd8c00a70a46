//! The records of slots.

use super::{SuperblockDump, superblock_dump};
use crate::arguments::Dump;
use crate::halves::CacheImage;
use crate::output::Output;
use crate::superblock;
use anyhow::{Context, Result, anyhow};
use engine::format::{Region, SlotLayout, SlotPersistence, Superblock};
use engine::store::slots::recovery::check::{Found, Recorded, walk};
use engine::units::SECTORS_PER_BLOCK;
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Dumped {
    superblock: SuperblockDump,
    slots: SlotsDump,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<Vec<RecordDump>>,
}

#[derive(Default, Serialize)]
struct SlotsDump {
    persistence: &'static str,
    regions: Vec<RegionDump>,
    /// Slots with a record that counts.
    recorded: u64,
    dirty: u64,
    lost: u64,
    /// Void records.
    void: u64,
    /// Records that cannot be right; `check` lists them.
    errors: u64,
}

#[derive(Serialize)]
struct RegionDump {
    name: &'static str,
    offset_bytes: u64,
    len_bytes: u64,
}

#[derive(Serialize)]
struct RecordDump {
    slot: u32,
    page_offset_bytes: u64,
    data_offset_bytes: u64,
    /// The place of the volume in the superblock.
    volume: u8,
    start_sector: u64,
    sectors: u64,
    /// Whether a start now would take it for dirty.
    dirty: bool,
    lost: bool,
    hint: u16,
    void: bool,
}

/// Prints a cache with slots; its superblock is printed already, unless as JSON.
pub(super) fn run(
    arguments: &Dump,
    image: &mut CacheImage,
    superblock: &Superblock,
    layout: &SlotLayout,
    output: &mut Output,
) -> Result<()> {
    let spec = &arguments.cache;
    let composition = superblock::composition(superblock, &spec.to_string())?;
    let mut slots =
        SlotsDump { persistence: name_of(layout), regions: regions(layout), ..SlotsDump::default() };
    let mut records = Vec::new();
    let mut printed = Ok(());
    let walked = walk(image, superblock, layout, &composition, &mut |found| match found {
        Found::Error { .. } => slots.errors += 1,
        Found::Record(recorded) => {
            slots.count(&recorded);
            let record = describe(layout, &recorded);
            if arguments.entries && arguments.report.json {
                records.push(record);
            } else if arguments.entries && printed.is_ok() {
                printed = print_record(output, &record);
            }
        }
    });
    printed?;
    walked.with_context(|| format!("{spec}; see forebay check {spec}"))?;
    if arguments.report.json {
        let records = arguments.entries.then_some(records);
        output.json(&Dumped { superblock: superblock_dump(superblock), slots, records })?;
        return Ok(());
    }
    print_slots(output, &slots)?;
    if slots.errors > 0 {
        return Err(anyhow!("{} records of {spec} cannot be right; see forebay check {spec}", slots.errors));
    }
    Ok(())
}

impl SlotsDump {
    fn count(&mut self, recorded: &Recorded) {
        if recorded.is_void {
            self.void += 1;
            return;
        }
        self.recorded += 1;
        self.dirty += u64::from(recorded.record.is_dirty);
        self.lost += u64::from(recorded.record.is_lost);
    }
}

fn name_of(layout: &SlotLayout) -> &'static str {
    match layout.persistence() {
        SlotPersistence::SyncSector => "sync-sector",
        SlotPersistence::Commit => "commit",
        SlotPersistence::BitTree { .. } => "bit-tree",
    }
}

fn regions(layout: &SlotLayout) -> Vec<RegionDump> {
    let region = |name, Region { offset_bytes, len_bytes }| RegionDump { name, offset_bytes, len_bytes };
    let mut regions = vec![
        region("records", layout.slot_records()),
        region("trees", layout.trees()),
        region("checksums", layout.checksums()),
        region("data", layout.data()),
    ];
    regions.retain(|region| region.len_bytes > 0);
    regions
}

fn describe(layout: &SlotLayout, recorded: &Recorded) -> RecordDump {
    let Recorded { slot, page_offset_bytes, record, is_void } = *recorded;
    let sectors = u64::from(layout.slot_blocks()) * SECTORS_PER_BLOCK;
    RecordDump {
        slot,
        page_offset_bytes,
        data_offset_bytes: layout.data().offset_bytes + u64::from(slot) * layout.slot_bytes(),
        volume: record.piece.volume().0,
        start_sector: record.piece.piece() * sectors,
        sectors,
        dirty: record.is_dirty,
        lost: record.is_lost,
        hint: record.hint,
        void: is_void,
    }
}

fn print_record(to: &mut impl Write, record: &RecordDump) -> io::Result<()> {
    let RecordDump { slot, data_offset_bytes, volume, start_sector, sectors, .. } = record;
    write!(
        to,
        "slot       {slot} at byte {data_offset_bytes}: volume {volume} sectors {start_sector}+{sectors}"
    )?;
    for (is_so, word) in
        [(record.dirty, "dirty"), (!record.dirty, "clean"), (record.lost, "LOST"), (record.void, "void")]
    {
        if is_so {
            write!(to, " {word}")?;
        }
    }
    writeln!(to)
}

fn print_slots(to: &mut impl Write, slots: &SlotsDump) -> io::Result<()> {
    for RegionDump { name, offset_bytes, len_bytes } in &slots.regions {
        writeln!(to, "region     {name} from byte {offset_bytes}, {len_bytes} bytes")?;
    }
    let SlotsDump { persistence, recorded, dirty, lost, void, errors, .. } = slots;
    writeln!(
        to,
        "records    {persistence}: {recorded} slots, {dirty} dirty, {lost} with lost blocks; {void} void, {errors} wrong"
    )
}
