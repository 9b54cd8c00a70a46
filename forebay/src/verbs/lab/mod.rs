//! `forebay lab`: the simulator.

mod bench;
mod verify;

use crate::arguments::LabVerb;
use anyhow::Result;

pub(super) fn run(verb: &LabVerb) -> Result<()> {
    match verb {
        LabVerb::Bench(arguments) => bench::run(arguments),
        LabVerb::Verify(arguments) => verify::run(arguments),
    }
}
