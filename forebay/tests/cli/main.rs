//! Goal: each command does what the manual says, and says one clear line where it cannot. Method: the real binary, with
//! files as devices, in a place of its own for each test.

mod access;
mod add;
mod advise;
mod attach;
mod config;
mod create;
mod detach;
mod duel;
mod ephemeral;
mod interrupt;
mod journal;
mod limits;
mod metrics;
mod mirror;
mod ownership;
mod pages;
mod profiles;
mod record;
mod refused;
mod rot;
mod salvage;
mod scarce;
mod scene;
mod scrub;
mod serve;
mod service;
mod slots;
mod sockets;
mod studies;
mod succession;
mod top;
mod traces;
mod versions;
mod warm;
mod web;
