//! Modelled disks.
