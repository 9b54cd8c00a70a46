//! `forebay lab bench --recovery`: how long a killed cache takes until it serves again, by profile and size.

use crate::arguments::LabBench;
use crate::output::{Output, Size};
use crate::profile::{self, Profile, Wanted};
use anyhow::{Context as _, Result};
use lab::long::recovery_cost::{self, Measured, State};
use serde::Serialize;
use std::io::Write;
use std::time::Instant;

const GIB: u64 = 1 << 30;
/// Sizes at which all profiles are measured unless the user names some.
const SIZES_BYTES: [u64; 2] = [GIB, 16 * GIB];
/// A size at which our own profile is measured besides.
const LARGE_BYTES: u64 = 128 * GIB;

#[derive(Serialize)]
struct Row {
    profile: String,
    cache_bytes: u64,
    state: &'static str,
    /// Until it serves again, if nothing is read while something is computed.
    served_seconds: f64,
    processor_seconds: f64,
    device_seconds: f64,
    read_bytes: u64,
    entries: u64,
    cached_bytes: u64,
    dirty_bytes: u64,
    index_bytes: u64,
}

impl Row {
    fn new(profile: &Profile, cache_bytes: u64, state: State, measured: Measured) -> Row {
        let Measured { device_ns, processor_ns, read_bytes, entries, .. } = measured;
        Row {
            profile: profile.name.clone(),
            cache_bytes,
            state: state.name(),
            served_seconds: (device_ns + processor_ns) as f64 / 1e9,
            processor_seconds: processor_ns as f64 / 1e9,
            device_seconds: device_ns as f64 / 1e9,
            read_bytes,
            entries,
            cached_bytes: measured.cached_bytes,
            dirty_bytes: measured.dirty_bytes,
            index_bytes: measured.index_bytes,
        }
    }

    fn write(&self, output: &mut Output) -> Result<()> {
        writeln!(
            output,
            "{:11} {:>9} {:8} {:>9.2} {:>9.2} {:>9.2} {:>10} {:>9} {:>10} {:>10} {:>10}",
            self.profile,
            Size(self.cache_bytes).to_string(),
            self.state,
            self.served_seconds,
            self.processor_seconds,
            self.device_seconds,
            Size(self.read_bytes).to_string(),
            self.entries,
            Size(self.cached_bytes).to_string(),
            Size(self.dirty_bytes).to_string(),
            Size(self.index_bytes).to_string(),
        )?;
        Ok(())
    }
}

pub(super) fn run(arguments: &LabBench) -> Result<()> {
    let default = [profile::DEFAULT, "dm-cache", "bcache", "enhanceio", "flashcache", "gflash", "mapperx"];
    let wanted = match arguments.profile.as_slice() {
        [] => default.map(Wanted::BuiltIn).to_vec(),
        some => some.to_vec(),
    };
    let profiles = wanted.iter().map(profile::load).collect::<Result<Vec<Profile>, _>>()?;
    profiles.iter().try_for_each(Profile::runnable)?;
    let mut output = Output::stdout();
    if !arguments.report.json {
        writeln!(
            output,
            "{:11} {:>9} {:8} {:>9} {:>9} {:>9} {:>10} {:>9} {:>10} {:>10} {:>10}",
            "profile",
            "cache",
            "state",
            "served s",
            "CPU s",
            "device s",
            "read",
            "records",
            "cached",
            "dirty",
            "index"
        )?;
    }
    let mut rows = Vec::new();
    for profile in &profiles {
        let sizes = match arguments.cache_size.as_slice() {
            [] if profile.name == profile::DEFAULT => &[SIZES_BYTES[0], SIZES_BYTES[1], LARGE_BYTES],
            [] => &SIZES_BYTES[..],
            some => some,
        };
        for &cache_bytes in sizes {
            for state in State::ALL {
                let row = measure(profile, cache_bytes, state)?;
                if !arguments.report.json {
                    row.write(&mut output)?;
                    output.flush()?;
                }
                rows.push(row);
            }
        }
    }
    if arguments.report.json {
        output.json(&rows)?;
    }
    Ok(output.finish()?)
}

fn measure(profile: &Profile, cache_bytes: u64, state: State) -> Result<Row> {
    let began = Instant::now();
    let clock = || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let measured = recovery_cost::measure(&profile.composition, cache_bytes, state, &clock)
        .with_context(|| format!("with {} on a cache of {}", profile.name, Size(cache_bytes)))?;
    Ok(Row::new(profile, cache_bytes, state, measured))
}
