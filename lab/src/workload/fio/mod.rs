//! fio's jobs: the same blocks in the same order as fio itself asks for them.
//!
//! A published measurement that used fio can be repeated only with fio's own sequence: with `randrepeat`, its
//! default, every run of a job asks for the same blocks, and so finds them in the cache the second time.
//!
//! | file | subject |
//! | --- | --- |
//! | `jobfile.rs` | job files |
//! | `job.rs` | what a job is; which options are known |
//! | `sequence.rs` | which block comes next |
//! | `tausworthe.rs`, `zipf.rs`, `free_map.rs` | its generator, its zipf distribution, its map of free blocks |
//! | `load.rs` | jobs as the workload of a long run |
//!
//! Known: sequential, random and mixed reads and writes of one block size, one file a job, uniform and zipf
//! distribution. An option that would change the sequence and is not known is an error, never passed over.
//!
//! Source: fio 3.33, read for its behaviour; a test compares with the sequences of the fio that is installed.

mod free_map;
mod job;
mod jobfile;
mod load;
mod sequence;
mod tausworthe;
mod zipf;

pub use job::{Distribution, Job, JobError};
pub use jobfile::{JobFileError, parse};
pub use load::FioLoad;
pub use sequence::{Ask, Sequence};
