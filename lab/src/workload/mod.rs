//! Workloads as published measurements made them.

pub mod fio;
pub mod iozone;
