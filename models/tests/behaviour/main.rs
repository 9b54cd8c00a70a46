//! What the modelled disks do under load, seen from outside.

mod contract;
mod hdd;
mod load;
mod ssd;
