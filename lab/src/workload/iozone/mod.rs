//! iozone's tests as its throughput mode (`-t`) runs them: several processes, each on a file of its own, one
//! record at a time.
//!
//! | file | subject |
//! | --- | --- |
//! | `sequence.rs` | the tests, and which record a process asks for next |
//! | `load.rs` | a test as the workload of a long run, and what iozone would print of it |
//!
//! Known: options `-i 0`, `1`, `2` and `8` with `-r`, `-s`, `-t` and `-I`. Source: iozone 3, read for its behaviour.

mod load;
mod sequence;

pub use load::{IozoneLoad, Outcome, Setup};
pub use sequence::{Ask, Sequence, Test};
