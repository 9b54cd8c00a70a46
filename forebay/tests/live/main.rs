//! Live tests: the real daemon, real clients, real deaths.
//!
//! They need fio, jq, libnbd's tools, nbdkit, FUSE and, for the ext4 test, root: `make test` installs
//! them. `FOREBAY_KILLS` sets how often the kill tests kill, `FOREBAY_SEED` what they draw.

#[path = "../support/daemon.rs"]
mod daemon;
#[path = "../support/server_wire.rs"]
mod server_wire;
#[path = "../support/verifier.rs"]
mod verifier;

mod block_devices;
mod clients;
mod ephemeral;
mod faults;
mod filesystem;
mod fuse;
mod hangs;
mod hours;
mod judge;
mod kills;
mod limits;
mod mirrored;
mod modes;
mod nbd_origin;
mod order;
mod pki;
mod profiles;
mod recipes;
mod rot;
mod settings;
mod succession;
mod tls;
mod volumes;
