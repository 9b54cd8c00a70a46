//! `forebay unattach`: the block device of a volume goes away, unless somebody uses it. Works without a daemon, too: a
//! device may be left of one that was killed.

use super::unexpected;
use crate::arguments::attach::Unattach;
use crate::attachment::{Attached, Found, Identifier, Link};
use crate::control::{Answer, Connection, Question};
use crate::halves;
use crate::output::Output;
use crate::report::line_id;
use crate::superblock::{choose, load};
use anyhow::{Context, Result};
use live::devices::{Access, DeviceSpec};
use std::io::Write;

pub(super) fn run(arguments: &Unattach) -> Result<()> {
    let volume = arguments.volume.as_deref();
    let attached = match Connection::open(&arguments.cache)? {
        Some(mut daemon) => {
            let question = Question::Unattach { volume: arguments.volume.clone() };
            match daemon.ask(&question, |_| ())? {
                Answer::Unattached(attached) => attached,
                other => return unexpected(&other),
            }
        }
        None => alone(&arguments.cache, volume)?,
    };
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&attached)?;
    } else {
        writeln!(output, "unattached {} from {}", attached.volume, attached.device)?;
    }
    Ok(output.finish()?)
}

fn alone(cache: &DeviceSpec, volume: Option<&str>) -> Result<Attached> {
    let mut found = halves::open(cache, Access::ReadOnlyExclusive)?;
    let superblock = load(&mut found.image, &cache.to_string())?;
    let index = choose(&superblock, volume)?;
    let record = superblock.volumes[index.at()].as_ref().context("the volume is gone")?;
    let name = &record.name;
    let set_id = line_id(&superblock);
    let identifier = Identifier { set_id, volume_id: record.id.0, connections: 1, name: name.clone() };
    let found = Found::of(&identifier).with_context(|| format!("volume {name} is not attached"))?;
    found.end_left_alone()?;
    let (link, disk) = (Link::of(name), found.disk());
    link.remove(disk);
    Ok(Attached { volume: name.clone(), device: disk.path(), link: link.path() })
}
