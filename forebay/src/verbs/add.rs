//! `forebay add`: one more volume on a cache, whether a daemon serves it or not.

use super::unexpected;
use crate::addition::{self, Added};
use crate::arguments::Add;
use crate::control::{Answer, Connection, Question};
use crate::halves;
use crate::output::{Output, Size};
use crate::ownership::{User, check_not_replaced, give_up_elsewhere, remember};
use crate::state::{StateDirectory, hexadecimal};
use crate::superblock;
use anyhow::Result;
use live::devices::Access;
use std::io::Write;

pub(super) fn run(arguments: &Add) -> Result<()> {
    let added = match Connection::open(&arguments.cache)? {
        Some(daemon) => ask(daemon, arguments)?,
        None => add(arguments)?,
    };
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&added)?;
    } else {
        writeln!(
            output,
            "volume {} ({}, {}) of {} is on {}",
            added.name,
            Size(added.origin_bytes),
            added.mode,
            added.origin,
            added.cache
        )?;
    }
    Ok(output.finish()?)
}

fn ask(mut daemon: Connection, arguments: &Add) -> Result<Added> {
    let Add { origin, name, mode, take_over, .. } = arguments;
    let wish = addition::wish(name, origin, *mode, take_over.as_ref());
    match daemon.ask(&Question::Add { wish }, |_| {})? {
        Answer::Added(added) => Ok(added),
        other => unexpected(&other),
    }
}

fn add(arguments: &Add) -> Result<Added> {
    let Add { cache: cache_spec, origin, name, mode, take_over, places, .. } = arguments;
    addition::check_pair(origin, cache_spec)?;
    let state = StateDirectory::find(places.state_dir.as_deref())?;
    let mut found = halves::open(cache_spec, Access::Exclusive)?;
    let mut superblock = superblock::load(&mut found.image, &cache_spec.to_string())?;
    check_not_replaced(&state.load_or_new(&superblock.set_id)?, cache_spec)?;
    let wish = addition::wish(name, origin, *mode, take_over.as_ref());
    let checked = addition::check(&wish, cache_spec, &superblock, &state, Access::ReadOnlyExclusive)?;
    superblock.next_volume_id += 1;
    superblock.volumes[checked.places[0].at()] = Some(checked.record.clone());
    let (name, origin) = (&checked.record.name, &checked.record.origin);
    superblock::note_change(&mut superblock, name, "origin", "", origin);
    state.make()?;
    halves::store(&mut found.image, &mut superblock, cache_spec)?;
    let user =
        User { cache: cache_spec, set_id: &hexadecimal(&superblock.set_id), mode: checked.record.mode };
    give_up_elsewhere(&state, &checked.origin, user)?;
    remember(&state, &superblock, cache_spec, false, false)?;
    Ok(checked.report(cache_spec))
}
