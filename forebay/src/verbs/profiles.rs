//! `forebay profiles`: the built-in profiles, and the values that a user's own profile can have.

use crate::arguments::Report;
use crate::output::Output;
use crate::profile::{self, Confidence, Profile, json_value};
use anyhow::Result;
use engine::composition::axes::Axis;
use engine::composition::keys::{KEYS, Key, Unit};
use engine::composition::rules::COUPLINGS;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

#[derive(Serialize)]
struct Listing {
    profiles: Vec<ProfileEntry>,
    axes: Vec<AxisEntry>,
    /// Tunables that every profile has, whatever it chooses.
    tunables: Vec<TunableEntry>,
    couplings: Vec<CouplingEntry>,
}

#[derive(Serialize)]
struct ProfileEntry {
    name: String,
    description: String,
    system: String,
    versions: String,
    confidence: Confidence,
    deviations: Vec<String>,
    axes: BTreeMap<&'static str, &'static str>,
    tunables: Vec<SettingEntry>,
    contract: ContractEntry,
    /// The promises that it gives up with `safe = false`, as published.
    gives_up: Vec<String>,
    /// Whether this version can run it.
    runs: bool,
}

/// A tunable with its value in a profile.
#[derive(Serialize)]
struct SettingEntry {
    value: serde_json::Value,
    #[serde(flatten)]
    tunable: TunableEntry,
}

/// The data that survives, and the damage that is noticed.
#[derive(Serialize)]
struct ContractEntry {
    process_crash_keeps: String,
    power_cut_leaves: String,
    rot_noticed: String,
}

#[derive(Serialize)]
struct AxisEntry {
    name: &'static str,
    meaning: &'static str,
    choices: Vec<ChoiceEntry>,
}

#[derive(Serialize)]
struct ChoiceEntry {
    name: &'static str,
    meaning: &'static str,
    tunables: Vec<TunableEntry>,
}

#[derive(Serialize)]
struct TunableEntry {
    name: &'static str,
    unit: &'static str,
    default: serde_json::Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    least: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most: Option<u64>,
    allowed: String,
    meaning: &'static str,
    source: String,
}

#[derive(Serialize)]
struct CouplingEntry {
    name: &'static str,
    rule: &'static str,
    why: &'static str,
}

pub(super) fn run(report: &Report) -> Result<()> {
    let listing = Listing {
        profiles: profile::all().iter().map(describe).collect(),
        axes: Axis::ALL.into_iter().map(describe_axis).collect(),
        tunables: KEYS.iter().filter(|key| key.axis.is_none()).map(describe_key).collect(),
        couplings: COUPLINGS
            .iter()
            .map(|coupling| CouplingEntry { name: coupling.name, rule: coupling.rule, why: coupling.why })
            .collect(),
    };
    let mut output = Output::stdout();
    if report.json {
        output.json(&listing)?;
    } else {
        print(&mut output, &listing)?;
    }
    Ok(output.finish()?)
}

fn describe(profile: &Profile) -> ProfileEntry {
    let contract = profile.composition.contract();
    let setting = |(key, value)| SettingEntry {
        value: json_value(value),
        tunable: TunableEntry { source: profile.source(key), ..describe_key(key) },
    };
    ProfileEntry {
        name: profile.name.clone(),
        description: profile.description.clone(),
        system: profile.system.clone(),
        versions: profile.versions.clone(),
        confidence: profile.confidence,
        deviations: profile.deviations.clone(),
        axes: Axis::ALL
            .into_iter()
            .map(|axis| (axis.name(), profile.composition.choice(axis).name))
            .collect(),
        tunables: profile.composition.tunables().map(setting).collect(),
        contract: ContractEntry {
            process_crash_keeps: contract.process.to_string(),
            power_cut_leaves: contract.aftermath.to_string(),
            rot_noticed: contract.rot.to_string(),
        },
        gives_up: profile.gives_up(),
        runs: profile.runnable().is_ok(),
    }
}

fn describe_axis(axis: Axis) -> AxisEntry {
    let choices = axis.choices().map(|choice| ChoiceEntry {
        name: choice.name,
        meaning: choice.meaning,
        tunables: choice.keys().map(describe_key).collect(),
    });
    AxisEntry { name: axis.name(), meaning: axis.meaning(), choices: choices.collect() }
}

fn describe_key(key: &'static Key) -> TunableEntry {
    let (unit, range) = match key.unit {
        Unit::Count(word) => (word, Some((key.least, key.most))),
        Unit::Flag => ("flag", None),
        Unit::Name(_) => ("name", None),
    };
    TunableEntry {
        name: key.name,
        unit,
        default: json_value(key.show(key.default)),
        least: range.map(|(least, _)| least),
        most: range.map(|(_, most)| most),
        allowed: key.allowed().to_string(),
        meaning: key.meaning,
        source: key.source.to_owned(),
    }
}

fn print(to: &mut impl Write, listing: &Listing) -> Result<()> {
    for profile in &listing.profiles {
        print_profile(to, profile)?;
    }
    writeln!(to, "what a profile of your own can say (create --profile FILE.toml):")?;
    for axis in &listing.axes {
        writeln!(to, "\n{}: {}", axis.name, axis.meaning)?;
        for choice in &axis.choices {
            writeln!(to, "  {}: {}", choice.name, choice.meaning)?;
            print_tunables(to, &choice.tunables)?;
        }
    }
    writeln!(to, "\nin every profile")?;
    print_tunables(to, &listing.tunables)?;
    writeln!(to, "\nwhat does not go together")?;
    for CouplingEntry { name, rule, why } in &listing.couplings {
        writeln!(to, "  {name}: {rule}: {why}")?;
    }
    Ok(())
}

fn print_profile(to: &mut impl Write, profile: &ProfileEntry) -> Result<()> {
    writeln!(to, "{}: {}", profile.name, profile.description)?;
    writeln!(
        to,
        "  system: {} {}; known from: {}",
        profile.system,
        profile.versions,
        profile.confidence.name()
    )?;
    for deviation in &profile.deviations {
        writeln!(to, "  differs: {deviation}")?;
    }
    for axis in Axis::ALL {
        writeln!(to, "  {:12} {}", axis.name(), profile.axes[axis.name()])?;
    }
    for SettingEntry { value, tunable } in &profile.tunables {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        writeln!(to, "  {} = {value} [{}]", tunable.name, tunable.source)?;
    }
    let ContractEntry { process_crash_keeps, power_cut_leaves, rot_noticed } = &profile.contract;
    writeln!(to, "  a crash of the process keeps {process_crash_keeps}")?;
    writeln!(to, "  after a power cut the cache knows {power_cut_leaves}")?;
    writeln!(to, "  rot of cached blocks is noticed {rot_noticed}")?;
    for line in &profile.gives_up {
        writeln!(to, "  without safety, as published: {line}")?;
    }
    if !profile.runs {
        writeln!(to, "  this version cannot run it yet")?;
    }
    Ok(writeln!(to)?)
}

fn print_tunables(to: &mut impl Write, tunables: &[TunableEntry]) -> Result<()> {
    for tunable in tunables {
        let default = tunable.default.as_str().map_or_else(|| tunable.default.to_string(), str::to_owned);
        let TunableEntry { name, allowed, meaning, source, .. } = tunable;
        writeln!(to, "    {name} = {default} ({allowed}): {meaning} [{source}]")?;
    }
    Ok(())
}
