//! Modelled disks without a cache: what a workload gets from the bare disk, the native figures of the studies beside
//! it, and the search that fitted the one to the other.
//!
//! | file | subject |
//! | --- | --- |
//! | `tally.rs` | what a workload got from a bare disk |
//! | `procedure.rs` | how each study measured its bare disks |
//! | `fit.rs` | published and modelled values side by side |
//! | `exceptions.rs` | the rows that a model does not meet, and why |
//! | `search.rs` | the numbers of a model that come nearest to a study's rows |
//!
//! A model is fitted to the native rows of one study and to nothing else. What the host spent on each request (the
//! kernel, fio) is part of a native row, and so of the latencies of its model.

mod exceptions;
mod fit;
mod procedure;
mod search;
mod tally;

pub use exceptions::Exception;
pub use fit::{BASES, Base, Figure, Fit, published_fits};
pub use procedure::{Measured, Scale, measure};
pub use search::{Progress, free_parameters, search};
