//! Policies: everything a profile can name that decides and carries nothing out.
//!
//! | folder | decides |
//! | --- | --- |
//! | `admission/` | what enters the cache |
//! | `replacement/` | which frame gives its place up, and which dirty one goes home next |
//! | `controllers/` | when dirty data goes home, and how much of it |
//! | `fetch.rs` | how much a miss reads |
//!
//! A policy is told what happened and is asked for a choice. It does no I/O and knows no store.

pub mod admission;
pub mod controllers;
pub mod fetch;
pub mod replacement;
