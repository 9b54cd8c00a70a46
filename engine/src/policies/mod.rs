//! Policies: the parts of a profile that decide and carry nothing out.
//!
//! | folder | decides |
//! | --- | --- |
//! | `admission/` | the misses that enter the cache |
//! | `replacement/` | the victim, and the next dirty frame to destage |
//! | `controllers/` | the time and amount of destage |
//! | `fetch/` | the range that a miss reads |
//!
//! A policy is told what happened and is asked for a choice. It does no I/O and knows no store.

pub mod admission;
pub mod controllers;
pub mod fetch;
pub mod replacement;
