//! `forebay profiles`: what is built in.

use crate::arguments::Report;
use crate::output::Output;
use crate::profile::{self, Profile};
use anyhow::Result;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Listing {
    profiles: Vec<Profile>,
}

pub(super) fn run(report: &Report) -> Result<()> {
    let listing = Listing { profiles: profile::all() };
    let mut output = Output::stdout();
    if report.json {
        output.json(&listing)?;
    } else {
        for profile in &listing.profiles {
            print(&mut output, profile)?;
        }
    }
    Ok(output.finish()?)
}

fn print(to: &mut impl Write, profile: &Profile) -> Result<()> {
    writeln!(to, "{}: {}", profile.name, profile.description)?;
    if let serde_json::Value::Object(axes) = serde_json::to_value(&profile.axes)? {
        for (axis, choice) in axes {
            writeln!(to, "  {axis:12} {}", choice.as_str().unwrap_or_default())?;
        }
    }
    for tunable in &profile.tunables {
        writeln!(
            to,
            "  {} = {} {} ({} to {}): {} [{}]",
            tunable.name,
            tunable.default,
            tunable.unit,
            tunable.least,
            tunable.most,
            tunable.meaning,
            tunable.source
        )?;
    }
    Ok(())
}
