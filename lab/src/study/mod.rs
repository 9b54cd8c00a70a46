//! Published studies: what was measured, run again in virtual time, side by side with what was published.
//!
//! A study is two files in `lab/studies/NAME`: `results.csv` has every published figure, `study.toml` says on which
//! devices, by which procedure, with which profile for each system, and what the source leaves open. A [`Run`] is
//! the life of one cache (or one bare disk) through a procedure; runs know nothing of each other, so whoever has
//! threads may carry them out side by side. [`rows`](fn@rows) then puts each published figure beside its simulated one.
//!
//! | file | subject |
//! | --- | --- |
//! | `data.rs` | a study: devices, runs, tables, pictures |
//! | `form.rs` | the form of `study.toml`, and how it is read |
//! | `place.rs` | places in a study's files, and the errors that name them |
//! | `figures.rs` | `results.csv` |
//! | `builtin.rs` | the studies that are part of the program |
//! | `procedure.rs` | steps: which workload follows which |
//! | `layout.rs` | files that are laid out and copied |
//! | `run.rs` | a run, on a cache or on a bare disk |
//! | `overhead.rs` | what a system itself takes for each request, and the cell that tells it |
//! | `watch.rs` | what each job did, and when |
//! | `measured.rs` | measurements of a test |
//! | `metric.rs` | metrics of tables, computed from measurements |
//! | `rows.rs` | published beside simulated |
//! | `fidelity.rs` | how far apart they are |

mod builtin;
mod data;
mod fidelity;
mod figures;
mod form;
mod layout;
mod measured;
mod metric;
mod overhead;
mod place;
mod procedure;
mod rows;
mod run;
mod watch;

pub use builtin::{all, load, named, names};
pub use data::{Base, Deviation, Device, LeagueRow, Plot, PlotKind, Run, Study, Subject};
pub(crate) use fidelity::merit;
pub use fidelity::{Fidelity, Ranking, fidelity, rankings};
pub use figures::Figure;
pub use measured::Measured;
pub use metric::{Better, better};
pub use overhead::{Fitted, Overheads};
pub use place::StudyError;
pub use rows::{Ideal, OUR_SYSTEM, Outcome, Row, is_ours, note_ideals, rows};
pub use run::{CACHE_SEED, ORIGIN_SEED, RunError, Runner};
