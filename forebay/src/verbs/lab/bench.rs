//! `forebay lab bench`: how many requests the simulator carries out in a second of this machine's time.

use crate::arguments::LabBench;
use crate::output::Output;
use anyhow::Result;
use lab::long::bench::{ROWS, Row};
use serde::Serialize;
use std::io::Write;
use std::time::{Duration, Instant};

/// Requests between two looks at the clock.
const SLICE_REQUESTS: u64 = 10_000;

#[derive(Serialize)]
struct Report {
    /// Whether the program was built with optimization: without it the figures mean nothing.
    optimized: bool,
    rows: Vec<Measured>,
}

#[derive(Serialize)]
struct Measured {
    name: &'static str,
    description: &'static str,
    /// Simulated requests in a second of real time, on one core.
    requests_per_second: u64,
    target_per_second: Option<u64>,
    requests: u64,
    seconds: f64,
    /// Time to build the world and to warm the cache.
    warming_seconds: f64,
    virtual_seconds: f64,
    /// Simulated requests in a second of virtual time: the speed of the simulated devices.
    virtual_iops: u64,
    read_latency_ns_p50: u64,
    read_latency_ns_p99: u64,
    hit_permille: u64,
    cache_read_bytes: u64,
    cache_written_bytes: u64,
    origin_read_bytes: u64,
    origin_written_bytes: u64,
    wraps: u64,
    verified_blocks: u64,
}

pub(super) fn run(arguments: &LabBench) -> Result<()> {
    let optimized = !cfg!(debug_assertions);
    let rows: Vec<Measured> =
        ROWS.iter().map(|row| measure(row, arguments.seconds)).collect::<Result<_>>()?;
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&Report { optimized, rows })?;
        return Ok(output.finish()?);
    }
    for row in &rows {
        let target = match row.target_per_second {
            Some(target) if row.requests_per_second >= target => format!(" (target {target}: reached)"),
            Some(target) => format!(" (target {target}: missed)"),
            None => String::new(),
        };
        writeln!(output, "{:22} {:>9} requests/s{target}", row.name, row.requests_per_second)?;
        writeln!(output, "    {}", row.description)?;
        writeln!(
            output,
            "    virtual: {:.1} s, {} requests/s, read p50 {} us, p99 {} us, {}.{} % hits",
            row.virtual_seconds,
            row.virtual_iops,
            row.read_latency_ns_p50 / 1000,
            row.read_latency_ns_p99 / 1000,
            row.hit_permille / 10,
            row.hit_permille % 10
        )?;
    }
    if !optimized {
        writeln!(output, "this build is not optimized: the figures mean nothing")?;
    }
    Ok(output.finish()?)
}

fn measure(row: &Row, at_least: Duration) -> Result<Measured> {
    let began = Instant::now();
    let mut prepared = row.prepare()?;
    let warming_seconds = began.elapsed().as_secs_f64();
    let hits = |status: &engine::status::Status| {
        let counters = status.volumes[0].counters;
        (counters.hits, counters.misses)
    };
    let (hits_before, misses_before) = hits(&prepared.status());
    let began = Instant::now();
    while began.elapsed() < at_least {
        prepared.go_on(SLICE_REQUESTS)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let (statistics, status) = (prepared.statistics(), prepared.status());
    let (hits, misses) = hits(&status);
    let (hits, misses) = (hits - hits_before, misses - misses_before);
    let requests = statistics.answers();
    Ok(Measured {
        name: row.name,
        description: row.description,
        requests_per_second: (requests as f64 / seconds) as u64,
        target_per_second: row.target_per_second,
        requests,
        seconds,
        warming_seconds,
        virtual_seconds: statistics.elapsed_ns() as f64 / 1e9,
        virtual_iops: statistics.per_second(requests),
        read_latency_ns_p50: statistics.reads.latency_ns.value_at_quantile(0.5),
        read_latency_ns_p99: statistics.reads.latency_ns.value_at_quantile(0.99),
        hit_permille: (hits * 1000).checked_div(hits + misses).unwrap_or(0),
        cache_read_bytes: statistics.cache.read_bytes,
        cache_written_bytes: statistics.cache.written_bytes,
        origin_read_bytes: statistics.origins.iter().map(|origin| origin.read_bytes).sum(),
        origin_written_bytes: statistics.origins.iter().map(|origin| origin.written_bytes).sum(),
        wraps: status.cache.wraps,
        verified_blocks: statistics.verified_blocks,
    })
}
