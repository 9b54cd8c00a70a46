//! `forebay lab fit`: modelled disks beside the native figures that they were fitted to.

use crate::arguments::LabFit;
use crate::output::Output;
use crate::verbs::models::{FitRow, write_fits};
use anyhow::{Result, bail};
use lab::native::{BASES, Base, Fit, Scale, free_parameters, search};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Report {
    fits: Vec<FitRow>,
}

pub(super) fn run(arguments: &LabFit) -> Result<()> {
    if let Some(unknown) = arguments.models.iter().find(|name| !BASES.iter().any(|base| base.model == **name))
    {
        let known: Vec<&str> = BASES.iter().map(|base| base.model).collect();
        bail!("no study measured {unknown:?}; fitted are {}", known.join(", "));
    }
    if arguments.search {
        return arguments.models.iter().try_for_each(|model| find_better(model));
    }
    let is_asked =
        |base: &&Base| arguments.models.is_empty() || arguments.models.iter().any(|name| base.model == name);
    let fits = measure(BASES.iter().filter(is_asked).collect());
    let mut output = Output::stdout();
    if arguments.csv {
        write_csv(&mut output, &fits)?;
        return Ok(output.finish()?);
    }
    let rows: Vec<FitRow> = fits.into_iter().map(FitRow::from).collect();
    if arguments.report.json {
        output.json(&Report { fits: rows })?;
    } else {
        write_fits(&mut output, &rows)?;
    }
    Ok(output.finish()?)
}

/// Each base on a thread of its own.
fn measure(bases: Vec<&'static Base>) -> Vec<Fit> {
    std::thread::scope(|scope| {
        let spawned: Vec<_> = bases
            .into_iter()
            .map(|base| scope.spawn(|| base.fits(&base.parameters(), Scale::Full)))
            .collect();
        spawned.into_iter().flat_map(|thread| thread.join().expect("a run that does not panic")).collect()
    })
}

fn write_csv(output: &mut Output, fits: &[Fit]) -> Result<()> {
    writeln!(output, "study,test,iteration,numjobs,system,metric,unit,value,model")?;
    for fit in fits {
        writeln!(output, "{},{}", fit.row(), fit.model)?;
    }
    Ok(())
}

fn find_better(model: &str) -> Result<()> {
    let keys = free_parameters(model);
    if keys.is_empty() {
        bail!("{model} has no numbers of its own to search: they are those of the fresh disk");
    }
    let mut told = Ok(());
    let found = search(model, &mut |progress| {
        told = writeln!(std::io::stderr(), "{}: {:.3} %", progress.key, progress.error.sqrt() * 100.0);
        told.is_ok()
    });
    told?;
    let mut output = Output::stdout();
    if let Some(parameters) = found {
        writeln!(output, "{model}")?;
        for described in parameters.describe() {
            let is_free = |key: &&&str| key.split('[').next() == Some(described.key);
            if keys.iter().any(|key| is_free(&key)) {
                writeln!(output, "{} = {}", described.key, described.value)?;
            }
        }
    }
    Ok(output.finish()?)
}
