//! `forebay check`: verifies a cache that is not running.

use crate::arguments::Check;
use crate::halves::{self, CacheImage, Found};
use crate::lasting::{self, Left};
use crate::log::notice;
use crate::output::{Output, Size};
use crate::startup::check_memory_for_index;
use crate::startup::index_bytes;
use crate::superblock;
use anyhow::{Result, anyhow, bail};
use engine::check::{self, Report};
use engine::format::Superblock;
use engine::image::Image;
use engine::units::BLOCK_BYTES;
use live::devices::{Access, DeviceSpec};
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Checked {
    ok: bool,
    /// Reason why it cannot be started as it is; absent if it can.
    fatal: Option<String>,
    repaired: bool,
    /// Number of errors; only the first of them are listed.
    errors_count: u64,
    errors: Vec<Fault>,
    segments: u64,
    batches: u64,
    entries: u64,
    payload_blocks_verified: u64,
    /// Batches behind the log's end that a crash left; they are no errors.
    batches_cut: u64,
    /// Copies of the superblock that a crash tore; the other one counts. They are no errors.
    superblock_copies_torn: u64,
    /// Slots, and those with a record; 0 in a log.
    slots: u64,
    records: u64,
}

#[derive(Serialize)]
struct Fault {
    segment: Option<u32>,
    slot: Option<u32>,
    offset_bytes: u64,
    what: String,
}

pub(super) fn run(arguments: &Check) -> Result<()> {
    let spec = &arguments.cache;
    let access = if arguments.repair { Access::Exclusive } else { Access::ReadOnlyExclusive };
    let Found { halves, mut image, .. } = halves::open(spec, access)?;
    let mut gone = None;
    if let Ok((superblock, _)) = engine::recovery::load_superblock(&mut image) {
        superblock::check_line(&superblock, &spec.to_string())?;
        check_memory_for_index(&superblock)?;
        gone = look_for_lasting(&mut image, superblock, arguments)?;
    }
    let mut report = check::check(&mut image);
    let other = if image.turn_over() { Some(check::check(&mut image)) } else { None };
    if let (Some(other), Some(names)) = (other, &halves.names)
        && (report.ok || other.ok)
    {
        let (damaged, name) = if report.ok { (&other, &names[1]) } else { (&report, &names[0]) };
        return one_half(damaged, name, arguments);
    }
    if let Some(error) = report.superblock_error {
        if arguments.report.json {
            tell(&checked(&report, false), true)?;
        }
        return Err(superblock::refused(error, &spec.to_string()));
    }
    let mut is_repaired = false;
    if arguments.repair && !report.ok {
        for error in &report.errors {
            notice(format_args!("{} at byte {}", error.what, error.offset_bytes));
        }
        if report.log_error.is_some() || report.slots_error.is_some() {
            repair(&mut image, spec)?;
            is_repaired = true;
            report = check::check(&mut image);
        }
    }
    let mut checked = checked(&report, is_repaired);
    checked.ok &= gone.is_none();
    checked.fatal = checked.fatal.or(gone);
    tell(&checked, arguments.report.json)?;
    match (&report.log_error, &report.slots_error, checked.ok) {
        (_, _, true) => Ok(()),
        (Some(error), _, false) => {
            bail!("{spec} cannot be started: {error}; forebay check {spec} --repair cuts the log there")
        }
        (_, Some(error), false) => bail!(
            "{spec} cannot be started: {error}; forebay check {spec} --repair takes damaged records back, and the \
             origin decides what their slots held"
        ),
        (None, None, false) if report.ok => bail!(
            "{spec} cannot be started: {}; forebay check {spec} --repair gives that up",
            checked.fatal.unwrap_or_default()
        ),
        (None, None, false) => bail!(
            "{} errors in {spec}; it can be started: what is clean is read from the origin, reads of dirty data that \
             they hit fail",
            checked.errors_count
        ),
    }
}

/// Why the cache is not served, if what the last daemon kept in memory is gone; a repair gives that up.
fn look_for_lasting(
    image: &mut CacheImage,
    mut superblock: Superblock,
    arguments: &Check,
) -> Result<Option<String>> {
    let spec = &arguments.cache;
    let Left::Missing(path) = lasting::left(&superblock)? else { return Ok(None) };
    let path = path.display();
    if !arguments.repair {
        return Ok(Some(format!("{path}, which has what the last daemon wrote last, is gone")));
    }
    superblock.lasting_boot = [0; 16];
    halves::store(image, &mut superblock, spec)?;
    notice(format_args!("what the last daemon wrote last, and nobody flushed, is given up: {path} is gone"));
    Ok(None)
}

/// Prints a report, for people or as JSON.
fn tell(checked: &Checked, is_json: bool) -> Result<()> {
    let mut output = Output::stdout();
    if is_json {
        output.json(checked)?;
    } else {
        print(&mut output, checked)?;
    }
    Ok(output.finish()?)
}

/// Reports on a mirrored cache of which one half is good, and the other one as `report` says.
fn one_half(report: &Report, name: &str, arguments: &Check) -> Result<()> {
    // A start takes the good one.
    let checked = Checked { fatal: None, ..checked(report, false) };
    tell(&checked, arguments.report.json)?;
    if !checked.ok {
        bail!(
            "{} errors in {name}; the other half of the mirrored cache has what is right, and is read there",
            checked.errors_count
        );
    }
    Ok(())
}

/// Makes the cache usable, and reports the loss.
fn repair(image: &mut CacheImage, spec: &DeviceSpec) -> Result<()> {
    let superblock = superblock::load(image, &spec.to_string())?;
    lasting::restore(image, &superblock, spec)?;
    let index_budget_bytes = index_bytes(&superblock, image.is_mirrored());
    let taken_back = check::repair(image, index_budget_bytes)
        .map_err(|error| anyhow!("the cache {spec} cannot be repaired: {error}"))?;
    if taken_back > 0 {
        notice(format_args!(
            "{taken_back} slots may have held data that their origins do not have; it is given up, and the origins \
             decide what is read there"
        ));
    }
    Ok(())
}

fn checked(report: &Report, repaired: bool) -> Checked {
    let errors = report
        .errors
        .iter()
        .map(|error| Fault {
            segment: error.segment,
            slot: error.slot,
            offset_bytes: error.offset_bytes,
            what: error.what.to_string(),
        })
        .collect();
    let superblock_error = report.superblock_error.as_ref().map(ToString::to_string);
    Checked {
        ok: report.ok,
        fatal: superblock_error
            .or_else(|| report.log_error.as_ref().map(ToString::to_string))
            .or_else(|| report.slots_error.as_ref().map(ToString::to_string)),
        repaired,
        errors_count: report.errors_count,
        errors,
        segments: report.segments,
        batches: report.batches,
        entries: report.entries,
        payload_blocks_verified: report.payload_blocks_verified,
        batches_cut: report.batches_cut,
        superblock_copies_torn: report.superblock_copies_torn,
        slots: report.slots,
        records: report.records,
    }
}

fn print(to: &mut impl Write, checked: &Checked) -> io::Result<()> {
    if checked.slots > 0 {
        let verified = Size(checked.payload_blocks_verified * BLOCK_BYTES);
        writeln!(to, "{} slots, {} recorded, {verified} of data verified", checked.slots, checked.records)?;
    } else {
        print_log(to, checked)?;
    }
    if checked.superblock_copies_torn > 0 {
        writeln!(
            to,
            "a crash tore one copy of the superblock; the other one counts, and the next start writes both"
        )?;
    }
    for error in &checked.errors {
        match (error.segment, error.slot) {
            (Some(segment), _) => {
                writeln!(to, "segment {segment}, byte {}: {}", error.offset_bytes, error.what)?;
            }
            (_, Some(slot)) => writeln!(to, "slot {slot}, byte {}: {}", error.offset_bytes, error.what)?,
            (None, None) => writeln!(to, "byte {}: {}", error.offset_bytes, error.what)?,
        }
    }
    writeln!(to, "{}", if checked.ok { "ok" } else { "NOT OK" })
}

fn print_log(to: &mut impl Write, checked: &Checked) -> io::Result<()> {
    writeln!(
        to,
        "{} segments, {} batches, {} entries, {} of data verified",
        checked.segments,
        checked.batches,
        checked.entries,
        Size(checked.payload_blocks_verified * BLOCK_BYTES)
    )
}
