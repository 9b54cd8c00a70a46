//! `forebay replace` and `forebay resize`: another device for a cache, or another size, through the daemon or without one.

use super::{Job, unexpected};
use crate::arguments::succession::{Replace, Resize};
use crate::control::{Answer, Connection, Question};
use crate::halves;
use crate::output::{Output, Size};
use crate::running::halves::{RejoinWish, Rejoined};
use crate::running::succession::{ReplaceWish, Succeeded};
use crate::state::{StateDirectory, hexadecimal};
use crate::superblock::system;
use anyhow::{Context, Result};
use engine::format::Succession;
use engine::mutation::Mutations;
use engine::recovery::{self, SuccessionError, load_superblock};
use live::devices::{Access, BlockingDevice, DeviceSpec};
use std::io::{self, Write};

/// Another device takes the cache's place.
pub(super) fn replace(arguments: &Replace) -> Result<()> {
    let Replace { cache, device, mirror, wipe, sparse, progress, running: options, places, report } =
        arguments;
    let state = StateDirectory::find(places.state_dir.as_deref())?;
    let absolute = |spec: &DeviceSpec| spec.absolute().to_string();
    let wipe = wipe.as_ref().map(absolute);
    if let Some(mirror) = mirror {
        let wish = RejoinWish { device: absolute(mirror), wipe, sparse: *sparse };
        let job = Job { cache, options, state, is_progress_wanted: *progress };
        return rejoin(job, wish, report.json);
    }
    let device = device.as_ref().context("name the device that takes the place of the cache")?;
    let succeeded = match finish(cache, device, &state)? {
        Some(finished) => finished,
        None => {
            let device = absolute(device);
            let wish = ReplaceWish { device, wipe, sparse: *sparse };
            let job = Job { cache, options, state, is_progress_wanted: *progress };
            let question = Question::Replace { wish: wish.clone() };
            job.run(&question, of_answer, move |running, on_progress| running.replace(&wish, on_progress))?
        }
    };
    print(&succeeded, report.json)
}

/// A device takes the place of the half that is out.
fn rejoin(job: Job<'_>, wish: RejoinWish, json: bool) -> Result<()> {
    let question = Question::Rejoin { wish: wish.clone() };
    let of_answer = |answer| match answer {
        Answer::Rejoined(rejoined) => Ok(rejoined),
        other => unexpected(&other),
    };
    let rejoined =
        job.run(&question, of_answer, move |running, on_progress| running.rejoin(&wish, on_progress))?;
    let mut output = Output::stdout();
    if json {
        output.json(&rejoined)?;
    } else {
        let Rejoined { cache, device, old, seconds } = &rejoined;
        let instead = if device == old { String::new() } else { format!(" in the place of {old}") };
        writeln!(output, "{device} has all of the cache {cache}{instead}, after {seconds:.0} s")?;
    }
    Ok(output.finish()?)
}

/// The cache gets another size.
pub(super) fn resize(arguments: &Resize) -> Result<()> {
    let Resize { cache, size, progress, running: options, places, report } = arguments;
    let state = StateDirectory::find(places.state_dir.as_deref())?;
    let job = Job { cache, options, state, is_progress_wanted: *progress };
    let wanted_bytes = *size;
    let question = Question::Resize { wanted_bytes };
    let succeeded =
        job.run(&question, of_answer, move |running, on_progress| running.resize(wanted_bytes, on_progress))?;
    print(&succeeded, report.json)
}

fn of_answer(answer: Answer) -> Result<Succeeded> {
    match answer {
        Answer::Succeeded(succeeded) => Ok(succeeded),
        other => unexpected(&other),
    }
}

/// Finishes what a crash cut off: the old cache is not believed any more, and the new one has no volumes yet.
fn finish(spec: &DeviceSpec, new_spec: &DeviceSpec, state: &StateDirectory) -> Result<Option<Succeeded>> {
    if Connection::open(spec)?.is_some() {
        return Ok(None);
    }
    let found = halves::open(spec, Access::Exclusive)?;
    if found.image.is_mirrored() {
        return Ok(None);
    }
    let mut old = BlockingDevice::new(&found.plain(spec)?);
    let Ok((retired, _)) = load_superblock(&mut old) else { return Ok(None) };
    if !matches!(retired.line.succession, Succession::Replaced { .. }) {
        return Ok(None);
    }
    let new_device = halves::open(new_spec, Access::Exclusive)?.plain(new_spec)?;
    let mut new = BlockingDevice::new(&new_device);
    let superblock = recovery::hand_over(&mut old, &mut new, Mutations::NONE).map_err(|error| match error {
        SuccessionError::Device(errno) => anyhow::Error::from(system(errno)),
        error => error.into(),
    });
    let superblock = superblock
        .with_context(|| format!("{spec} was replaced by another device, and not by {new_spec}"))?;
    if let Some(mut left) = state.load(&retired.set_id)? {
        let mut next = state.load_or_new(&superblock.set_id)?;
        next.settings.clone_from(&left.settings);
        state.store(&next)?;
        left.volumes.clear();
        left.succeeded_by = Some(hexadecimal(&superblock.set_id));
        state.store(&left)?;
    }
    Ok(Some(Succeeded {
        old: spec.absolute().to_string(),
        cache: new_spec.absolute().to_string(),
        old_bytes: retired.cache_bytes,
        cache_bytes: superblock.cache_bytes,
        set_id: hexadecimal(&superblock.set_id),
        held_seconds: 0.0,
    }))
}

fn print(succeeded: &Succeeded, json: bool) -> Result<()> {
    let mut output = Output::stdout();
    if json {
        output.json(succeeded)?;
    } else {
        tell(&mut output, succeeded)?;
    }
    Ok(output.finish()?)
}

fn tell(to: &mut impl Write, succeeded: &Succeeded) -> io::Result<()> {
    let Succeeded { old, cache, old_bytes, cache_bytes, held_seconds, .. } = succeeded;
    let (old_size, size) = (Size(*old_bytes), Size(*cache_bytes));
    if old == cache {
        writeln!(
            to,
            "the cache {cache} has {size}, and had {old_size}; requests waited for {held_seconds:.2} s"
        )
    } else {
        writeln!(
            to,
            "the cache is {cache} ({size}), and was {old} ({old_size}); requests waited for {held_seconds:.2} s"
        )?;
        writeln!(to, "from now on: forebay serve {cache}")
    }
}
