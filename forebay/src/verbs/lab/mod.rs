//! `forebay lab`: the simulator.

mod advise;
mod bench;
mod fit;
mod trace;
mod verify;

use crate::arguments::LabVerb;
use anyhow::Result;

pub(super) fn run(verb: &LabVerb) -> Result<()> {
    match verb {
        LabVerb::Advise(arguments) => advise::run(arguments),
        LabVerb::Bench(arguments) => bench::run(arguments),
        LabVerb::Fit(arguments) => fit::run(arguments),
        LabVerb::Trace(arguments) => trace::run(arguments),
        LabVerb::Verify(arguments) => verify::run(arguments),
    }
}
