//! `forebay lab bench`: how many requests the simulator carries out in a second of this machine's time.

use crate::arguments::LabBench;
use crate::output::{Output, Size};
use anyhow::Result;
use lab::long::bench::{ROWS, Row};
use lab::long::order_cost;
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
    if arguments.order {
        return measure_order(arguments);
    }
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

/// A row of `--order`.
#[derive(Serialize)]
struct OrderRow {
    order: &'static str,
    flush_every: u64,
    depth: u32,
    writes_per_second: u64,
    write_us_p50: u64,
    write_us_p99: u64,
    written_seconds: f64,
    home_seconds: f64,
    disk_busy_seconds: f64,
    disk_written_bytes: u64,
    disk_flushes: u64,
}

impl From<order_cost::Measured> for OrderRow {
    fn from(measured: order_cost::Measured) -> OrderRow {
        let order_cost::Measured { row, writes_per_second, disk_written_bytes, disk_flushes, .. } = measured;
        OrderRow {
            order: if row.is_strict { "strict" } else { "free" },
            flush_every: row.flush_every,
            depth: row.depth,
            writes_per_second,
            write_us_p50: measured.write_ns_p50 / 1000,
            write_us_p99: measured.write_ns_p99 / 1000,
            written_seconds: measured.written_ns as f64 / 1e9,
            home_seconds: measured.home_ns as f64 / 1e9,
            disk_busy_seconds: measured.disk_busy_ns as f64 / 1e9,
            disk_written_bytes,
            disk_flushes,
        }
    }
}

fn measure_order(arguments: &LabBench) -> Result<()> {
    let rows: Vec<OrderRow> =
        order_cost::rows().map(|row| Ok(row.measure()?.into())).collect::<Result<_>>()?;
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&rows)?;
        return Ok(output.finish()?);
    }
    writeln!(output, "20000 writes of 4 KiB, zipf 0.9 over 1 GiB, disks ssd and hdd, in virtual time")?;
    writeln!(
        output,
        "{:>6} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>10} {:>8}",
        "depth",
        "flush",
        "order",
        "writes/s",
        "p50 us",
        "p99 us",
        "written s",
        "home s",
        "disk s",
        "to disk",
        "flushes"
    )?;
    for row in &rows {
        writeln!(
            output,
            "{:>6} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9.1} {:>8.1} {:>8.1} {:>10} {:>8}",
            row.depth,
            row.flush_every,
            row.order,
            row.writes_per_second,
            row.write_us_p50,
            row.write_us_p99,
            row.written_seconds,
            row.home_seconds,
            row.disk_busy_seconds,
            Size(row.disk_written_bytes).to_string(),
            row.disk_flushes
        )?;
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
