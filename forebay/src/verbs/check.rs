//! `forebay check`: verifies a cache that is not running.

use crate::arguments::Check;
use crate::halves::{self, CacheImage, Found};
use crate::lasting::{self, Left};
use crate::log::notice;
use crate::output::{Count, Output, Size};
use crate::startup::{check_memory_for_index, check_newest, index_bytes};
use crate::state::StateDirectory;
use crate::superblock;
use anyhow::{Result, anyhow, bail};
use engine::check::{self, Report};
use engine::format::Superblock;
use engine::image::Image;
use engine::salvage;
use engine::units::BLOCK_BYTES;
use live::devices::{Access, DeviceSpec};
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};

/// Loss of which a repair knows how much it is, once it is done.
const DAMAGED_SLOTS: &str = "what slots with damaged records held";

#[derive(Serialize)]
struct Checked {
    /// Whether nothing is wrong, and nothing was given up.
    ok: bool,
    /// Reason why it cannot be started as it is; absent if it can.
    fatal: Option<String>,
    repaired: bool,
    /// The loss by a repair, to come or done; absent where there is nothing to repair.
    given_up: Option<GivenUp>,
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

/// Data that only the cache had, and that a repair takes from it.
#[derive(Clone, Default, Serialize)]
struct GivenUp {
    /// Dirty data by volume.
    volumes: Vec<VolumeGivenUp>,
    /// Batches of the log that cannot be found: nobody knows what they held.
    missing_batches: u64,
    /// Slots whose records are taken back.
    slots: u64,
    /// Loss of which nobody knows how much it is.
    unknown: Vec<String>,
}

#[derive(Clone, Serialize)]
struct VolumeGivenUp {
    volume: String,
    dirty_bytes: u64,
}

/// A repair that was done, and gave something up.
#[derive(Debug, thiserror::Error)]
#[error("{cache} was repaired, and not without a loss; given up: {given_up}")]
pub struct RepairedWithLoss {
    cache: String,
    given_up: String,
}

impl GivenUp {
    /// The loss by a cut of the damaged log.
    fn by_cut(image: &mut CacheImage, superblock: &Superblock) -> GivenUp {
        let found = match salvage::given_up(image, index_bytes(superblock, image.is_mirrored())) {
            Ok(found) => found,
            Err(error) => {
                return GivenUp {
                    unknown: vec![format!("an amount that cannot be known: {error}")],
                    ..GivenUp::default()
                };
            }
        };
        let volumes = superblock::records(superblock).map(|(index, record)| VolumeGivenUp {
            volume: record.name.clone(),
            dirty_bytes: found.blocks[index.at()] * BLOCK_BYTES,
        });
        GivenUp {
            volumes: volumes.filter(|volume| volume.dirty_bytes > 0).collect(),
            missing_batches: found.missing_batches,
            ..GivenUp::default()
        }
    }

    /// The same after the repair, which took so many slots back.
    fn once_done(mut self, slots: u64) -> GivenUp {
        self.unknown.retain(|what| what != DAMAGED_SLOTS);
        GivenUp { slots, ..self }
    }

    fn is_nothing(&self) -> bool {
        self.volumes.is_empty() && self.missing_batches == 0 && self.slots == 0 && self.unknown.is_empty()
    }
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_volume = |volume: &VolumeGivenUp| {
            format!("{} of dirty data of volume {}", Size(volume.dirty_bytes), volume.volume)
        };
        let mut parts: Vec<String> = self.volumes.iter().map(of_volume).collect();
        if self.missing_batches > 0 {
            let missing = Count(self.missing_batches, "missing batch", "missing batches");
            parts.push(format!("what {missing} of the log held, which is not known"));
        }
        if self.slots > 0 {
            parts.push(format!("what {} held", Count(self.slots, "slot", "slots")));
        }
        parts.extend(self.unknown.iter().cloned());
        f.write_str(if parts.is_empty() { "nothing" } else { "" })?;
        f.write_str(&parts.join("; "))
    }
}

/// Reasons besides damage why a cache is not served.
#[derive(Default)]
struct Hindrance {
    /// It is an older copy, or another one took its place: no repair makes it the right one.
    stale: Option<String>,
    /// The file is gone that had what the last daemon wrote last.
    gone: Option<String>,
}

pub(super) fn run(arguments: &Check) -> Result<()> {
    let spec = &arguments.cache;
    let access = if arguments.repair { Access::Exclusive } else { Access::ReadOnlyExclusive };
    let state = StateDirectory::find(arguments.places.state_dir.as_deref()).ok();
    let Found { halves, mut image, .. } = halves::open_by_notes(spec, access, state.as_ref())?;
    let mut hindrance = Hindrance::default();
    if let Ok((superblock, _)) = engine::recovery::load_superblock(&mut image) {
        superblock::check_line(&superblock, &spec.to_string())?;
        check_memory_for_index(&superblock)?;
        hindrance = hindrance_of(&superblock, arguments, state.as_ref())?;
    }
    let mut report = check::check(&mut image);
    let other = if image.turn_over() { Some(check::check(&mut image)) } else { None };
    if let (Some(other), Some(names)) = (other, &halves.names)
        && (report.ok || other.ok)
    {
        let (damaged, name) = if report.ok { (&other, &names[1]) } else { (&report, &names[0]) };
        return one_half(damaged, name, hindrance.stale, arguments);
    }
    if let Some(error) = report.superblock_error {
        if arguments.report.json {
            tell(&checked(&report, None), true)?;
        }
        return Err(superblock::refused(error, &spec.to_string()));
    }
    let mut given_up = loss(&mut image, &report, &hindrance);
    if arguments.repair {
        let told = report.errors.iter();
        told.for_each(|error| notice(format_args!("{} at byte {}", error.what, error.offset_bytes)));
    }
    let is_repaired = arguments.repair && given_up.is_some();
    if is_repaired {
        let slots = repair(&mut image, spec, &report, hindrance.gone.take())?;
        given_up = given_up.map(|loss| loss.once_done(slots));
        report = check::check(&mut image);
    }
    let is_stale = hindrance.stale.is_some();
    let checked = checked(&report, given_up);
    let is_lossy = checked.given_up.as_ref().is_some_and(|loss| !loss.is_nothing());
    let fatal = hindrance.stale.or(checked.fatal).or(hindrance.gone);
    let ok = checked.ok && fatal.is_none() && !(is_repaired && is_lossy);
    let checked = Checked { ok, fatal, repaired: is_repaired, ..checked };
    tell(&checked, arguments.report.json)?;
    verdict(spec, &report, &checked, is_stale)
}

/// The result in one line, if it is not a good one.
fn verdict(spec: &DeviceSpec, report: &Report, checked: &Checked, is_stale: bool) -> Result<()> {
    let repair = format!("forebay check {spec} --repair");
    let first = format!("take first what can be read: forebay salvage {spec}; then {repair}");
    match (&checked.fatal, &checked.given_up) {
        _ if checked.ok => Ok(()),
        // No repair makes it the right one.
        (Some(fatal), _) if is_stale => bail!("{spec} cannot be started: {fatal}"),
        (Some(fatal), _) if report.log_error.is_some() => {
            bail!("{spec} cannot be started: {fatal}; {first} cuts the log there")
        }
        (Some(fatal), _) if report.slots_error.is_some() => bail!(
            "{spec} cannot be started: {fatal}; {repair} takes damaged records back, and the origin decides what their slots held"
        ),
        (Some(fatal), _) => bail!("{spec} cannot be started: {fatal}; {first} gives that up"),
        (None, Some(given_up)) if report.ok => {
            Err(RepairedWithLoss { cache: spec.to_string(), given_up: given_up.to_string() }.into())
        }
        (None, _) => bail!(
            "{} errors in {spec}; it can be started: what is clean is read from the origin, reads of dirty data that \
             they hit fail",
            checked.errors_count
        ),
    }
}

/// Looks for what else hinders a start.
///
/// # Errors
/// If a repair is wanted of a cache that is not the right one: it would look like that one from then on.
fn hindrance_of(
    superblock: &Superblock,
    arguments: &Check,
    state: Option<&StateDirectory>,
) -> Result<Hindrance> {
    let newest = state.map_or(Ok(()), |state| {
        let notes = state.load_or_new(&superblock.set_id)?;
        check_newest(&arguments.cache, superblock, &notes, state)
    });
    let stale = match newest {
        Err(error) if arguments.repair => return Err(error),
        newest => newest.err().map(|error| format!("{error:#}")),
    };
    let gone = match lasting::left(superblock)? {
        Left::Missing(path) => {
            Some(format!("{}, which has what the last daemon wrote last, is gone", path.display()))
        }
        Left::Nothing | Left::Bytes(_) => None,
    };
    Ok(Hindrance { stale, gone })
}

/// The loss by a repair; nothing if there is none to do.
fn loss(image: &mut CacheImage, report: &Report, hindrance: &Hindrance) -> Option<GivenUp> {
    let mut loss = match &report.superblock {
        Some(superblock) if report.log_error.is_some() => Some(GivenUp::by_cut(image, superblock)),
        _ if report.slots_error.is_some() => {
            let unknown = vec![DAMAGED_SLOTS.to_owned()];
            Some(GivenUp { unknown, ..GivenUp::default() })
        }
        _ => None,
    };
    if hindrance.gone.is_some() {
        let unknown = &mut loss.get_or_insert_default().unknown;
        unknown.push("what the last daemon wrote last, and nobody flushed".to_owned());
    }
    loss
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
fn one_half(report: &Report, name: &str, stale: Option<String>, arguments: &Check) -> Result<()> {
    // A start takes the good one.
    let mut checked = Checked { fatal: stale, ..checked(report, None) };
    checked.ok &= checked.fatal.is_none();
    tell(&checked, arguments.report.json)?;
    if let Some(stale) = checked.fatal {
        bail!("{} cannot be started: {stale}", arguments.cache);
    }
    if !checked.ok {
        bail!(
            "{} errors in {name}; the other half of the mirrored cache has what is right, and is read there",
            checked.errors_count
        );
    }
    Ok(())
}

/// Makes the cache usable, and answers how many slots were taken back.
fn repair(image: &mut CacheImage, spec: &DeviceSpec, report: &Report, gone: Option<String>) -> Result<u64> {
    let mut superblock = superblock::load(image, &spec.to_string())?;
    let mut slots = 0;
    if report.log_error.is_some() || report.slots_error.is_some() {
        lasting::restore(image, &superblock, spec)?;
        let index_budget_bytes = index_bytes(&superblock, image.is_mirrored());
        slots = check::repair(image, index_budget_bytes)
            .map_err(|error| anyhow!("the cache {spec} cannot be repaired: {error}"))?;
    } else if gone.is_some() {
        superblock.lasting_boot = [0; 16];
        halves::store(image, &mut superblock, spec)?;
    }
    if slots > 0 {
        let slots = Count(slots, "slot", "slots");
        notice(format_args!(
            "{slots} may have held data that their origins do not have; it is given up, and the origins decide what is read \
             there"
        ));
    }
    if let Some(gone) = gone {
        notice(format_args!("what the last daemon wrote last, and nobody flushed, is given up: {gone}"));
    }
    Ok(slots)
}

fn checked(report: &Report, given_up: Option<GivenUp>) -> Checked {
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
        repaired: false,
        given_up,
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
    match &checked.given_up {
        Some(given_up) if checked.repaired => writeln!(to, "repaired; given up: {given_up}")?,
        Some(given_up) => writeln!(to, "a repair gives up: {given_up}")?,
        None => (),
    }
    let is_served = checked.repaired && checked.fatal.is_none() && checked.errors_count == 0;
    let result = match (checked.ok, is_served) {
        (true, _) => "ok",
        (false, true) => "it can be served, without what was given up",
        (false, false) => "NOT OK",
    };
    writeln!(to, "{result}")
}

fn print_log(to: &mut impl Write, checked: &Checked) -> io::Result<()> {
    writeln!(
        to,
        "{} segments, {} batches, {} entries, {} of data verified",
        checked.segments,
        checked.batches,
        checked.entries,
        Size(checked.payload_blocks_verified * BLOCK_BYTES)
    )?;
    // Behind a damage they are what a repair gives up.
    if checked.batches_cut > 0 && checked.fatal.is_none() {
        let cut = Count(checked.batches_cut, "batch", "batches");
        writeln!(to, "{cut} behind the log's end, as a crash leaves them, do not count")?;
    }
    Ok(())
}
