//! `forebay lab`: the simulator.

mod advise;
mod bench;
mod defect;
mod duel;
mod fit;
mod league;
mod parallel;
mod recovery_cost;
mod study;
mod studying;
mod trace;
mod verify;

use crate::arguments::LabVerb;
use anyhow::Result;

pub(super) fn run(verb: &LabVerb) -> Result<()> {
    match verb {
        LabVerb::Advise(arguments) => advise::run(arguments),
        LabVerb::Bench(arguments) if arguments.recovery => recovery_cost::run(arguments),
        LabVerb::Bench(arguments) => bench::run(arguments),
        LabVerb::Duel(arguments) => duel::run(arguments),
        LabVerb::Fit(arguments) => fit::run(arguments),
        LabVerb::League(arguments) => league::run(arguments),
        LabVerb::Study(arguments) => study::run(arguments),
        LabVerb::Trace(arguments) => trace::run(arguments),
        LabVerb::Verify(arguments) => verify::run(arguments),
    }
}
