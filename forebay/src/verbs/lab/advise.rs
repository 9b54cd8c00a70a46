//! `forebay lab advise`: how much cache, and which replacement policy, a trace is worth.

use super::trace::{Surveyed, Time};
use crate::arguments::traces::LabAdvise;
use crate::output::{Output, Size};
use crate::progress::Bar;
use anyhow::{Context, Result};
use lab::curve::{self, Advice, Options, Point, Recommendation, Service};
use lab::trace::{self, Survey};
use serde::Serialize;
use std::io::Write;

/// The smallest cache that can be formatted.
const CACHE_BYTES_MIN: u64 = 32 << 20;

#[derive(Serialize)]
struct Report {
    file: String,
    trace: Surveyed,
    origin: String,
    cache: String,
    service: Times,
    /// The share of the blocks that was looked at for all policies but lru.
    sample_rate: f64,
    sample_blocks: u32,
    /// Mean difference of lru's hit ratio in the sample from the exact one.
    sample_error_mean: f64,
    sample_error_max: f64,
    /// The hit ratio of a cache without end.
    hit_ratio_max: f64,
    sizes: Vec<Row>,
    recommendation: Advised,
}

/// Nanoseconds of single random accesses to 4 KiB.
#[derive(Serialize)]
struct Times {
    cache_read_ns: u64,
    cache_write_ns: u64,
    origin_read_ns: u64,
    origin_write_ns: u64,
}

#[derive(Serialize)]
struct Row {
    cache_bytes: u64,
    best: &'static str,
    policies: Vec<Cell>,
}

#[derive(Serialize)]
struct Cell {
    policy: &'static str,
    hit_ratio: f64,
    read_hit_ratio: Option<f64>,
    latency_ns: u64,
    cache_written_bytes: u64,
    cache_written_bytes_per_day: Option<u64>,
}

#[derive(Serialize)]
struct Advised {
    /// None if a cache is not worth it.
    cache_bytes: Option<u64>,
    policy: Option<&'static str>,
    sentence: String,
}

pub(super) fn run(arguments: &LabAdvise) -> Result<()> {
    let file = arguments.trace.file.display().to_string();
    let mut bar = Bar::new(arguments.progress);
    let mut source = trace::open(&arguments.trace.file, arguments.trace.reading())?;
    let survey = Survey::of(source.as_mut(), &mut |done| bar.show("reading requests", done, None))?;
    let mut source = trace::open(&arguments.trace.file, arguments.trace.reading())?;
    let options = Options {
        sample_blocks: (!arguments.exact).then_some(arguments.sample),
        sizes_blocks: &arguments.sizes,
        cache: &arguments.disks.cache,
        origin: &arguments.disks.origin,
    };
    let advice = curve::advise(&options, &survey, source.as_mut(), &mut |done, all| {
        bar.show("simulating", done, Some(all));
    })?;
    drop(bar);
    if let Some(path) = &arguments.plot {
        let svg = curve::plot(&advice, &file)?;
        std::fs::write(path, svg).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let report = Report::new(file, &survey, &advice, arguments);
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&report)?;
    } else {
        report.print(&mut output)?;
    }
    Ok(output.finish()?)
}

impl Report {
    fn new(file: String, survey: &Survey, advice: &Advice, arguments: &LabAdvise) -> Report {
        let Service { cache_read_ns, cache_write_ns, origin_read_ns, origin_write_ns } = advice.service;
        let row = |(at, &cache_bytes): (usize, &u64)| Row {
            cache_bytes,
            best: advice.best(at).0,
            policies: advice
                .curves
                .iter()
                .filter_map(|curve| Some(Cell::new(curve.policy, &curve.points[at]?, advice)))
                .collect(),
        };
        Report {
            file,
            trace: Surveyed::of(survey),
            origin: arguments.disks.origin.name.clone(),
            cache: arguments.disks.cache.name.clone(),
            service: Times { cache_read_ns, cache_write_ns, origin_read_ns, origin_write_ns },
            sample_rate: advice.sample_rate,
            sample_blocks: advice.sample_blocks,
            sample_error_mean: advice.sample_error.mean,
            sample_error_max: advice.sample_error.max,
            hit_ratio_max: advice.hit_ratio_max,
            sizes: advice.sizes_bytes.iter().enumerate().map(row).collect(),
            recommendation: Advised::new(advice),
        }
    }

    fn print(&self, output: &mut Output) -> Result<()> {
        self.trace.print(output, &self.file)?;
        let Times { cache_read_ns, cache_write_ns, origin_read_ns, .. } = self.service;
        writeln!(
            output,
            "cache {}: a read of 4 KiB {}, a write {}; origin {}: a read {} (modelled, one at a time)",
            self.cache,
            Time(cache_read_ns),
            Time(cache_write_ns),
            self.origin,
            Time(origin_read_ns)
        )?;
        if self.sample_rate < 1.0 {
            writeln!(
                output,
                "lru is exact; the others are from a sample of {} blocks ({:.2} % of all), which for lru is wrong by \
                 {:.2} points in the mean and {:.2} at the most; of the others that is not known (--exact looks at all)",
                self.sample_blocks,
                self.sample_rate * 100.0,
                self.sample_error_mean * 100.0,
                self.sample_error_max * 100.0
            )?;
        } else {
            writeln!(output, "all blocks were looked at; nothing is estimated")?;
        }
        writeln!(output, "\nhit ratio in % by size and policy; latency and wear with the best one")?;
        write!(output, "{:>10}", "cache")?;
        for (policy, _) in curve::POLICIES {
            write!(output, " {policy:>12}")?;
        }
        let is_timed = self.trace.is_timed();
        let wear = if is_timed { "written/day" } else { "written" };
        writeln!(output, "  {:>12} {:>9} {wear:>11}", "best", "latency")?;
        for row in &self.sizes {
            write!(output, "{:>10}", Size(row.cache_bytes))?;
            for (policy, _) in curve::POLICIES {
                match row.policies.iter().find(|cell| cell.policy == policy) {
                    Some(cell) => write!(output, " {:>12.1}", cell.hit_ratio * 100.0)?,
                    None => write!(output, " {:>12}", "-")?,
                }
            }
            let best = row.policies.iter().find(|cell| cell.policy == row.best).expect("it is one of them");
            let written = best.cache_written_bytes_per_day.unwrap_or(best.cache_written_bytes);
            let latency = Time(best.latency_ns).to_string();
            writeln!(output, "  {:>12} {latency:>9} {:>11}", row.best, Size(written))?;
        }
        writeln!(output, "\n{}", self.recommendation.sentence)?;
        Ok(())
    }
}

impl Cell {
    fn new(policy: &'static str, point: &Point, advice: &Advice) -> Cell {
        Cell {
            policy,
            hit_ratio: point.hit_ratio,
            read_hit_ratio: point.read_hit_ratio,
            latency_ns: point.latency_ns,
            cache_written_bytes: point.written_bytes,
            cache_written_bytes_per_day: advice.per_day_bytes(point.written_bytes),
        }
    }
}

impl Advised {
    fn new(advice: &Advice) -> Advised {
        let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
        match advice.recommendation() {
            Recommendation::NoCache { hit_ratio_max } => Advised {
                cache_bytes: None,
                policy: None,
                sentence: format!(
                    "Do not expect much of a cache: even one without end would have only {} of the accesses as hits, so \
                     it would help writes alone.",
                    percent(hit_ratio_max)
                ),
            },
            Recommendation::LargerCache { size_bytes, policy, point, hit_ratio_max } => Advised {
                cache_bytes: None,
                policy: None,
                sentence: format!(
                    "A larger cache than these would pay: {} have {} of the accesses as hits with {policy}, and a cache without \
                     end {}. Look at larger ones with --sizes.",
                    Size(size_bytes),
                    percent(point.hit_ratio),
                    percent(hit_ratio_max)
                ),
            },
            Recommendation::Cache { size_bytes, policy, point, hit_ratio_max, doubled_gain } => {
                let doubled = match doubled_gain {
                    Some(gain) => format!("; twice the size would gain {:.1} points", gain * 100.0),
                    None => String::new(),
                };
                let written = match advice.per_day_bytes(point.written_bytes) {
                    Some(bytes) => format!("{} a day", Size(bytes)),
                    None => format!("{} in this trace", Size(point.written_bytes)),
                };
                let least = if size_bytes < CACHE_BYTES_MIN {
                    format!(" (the smallest that can be formatted has {})", Size(CACHE_BYTES_MIN))
                } else {
                    String::new()
                };
                let sentence = format!(
                    "Take a cache of {}{least} with {policy}: {} of the accesses are hits, of {} with a cache without \
                     end{doubled}. A 4 KiB access then takes {} in the mean, and {written} are written to the SSD.",
                    Size(size_bytes),
                    percent(point.hit_ratio),
                    percent(hit_ratio_max),
                    Time(point.latency_ns)
                );
                Advised { cache_bytes: Some(size_bytes), policy: Some(policy), sentence }
            }
        }
    }
}
