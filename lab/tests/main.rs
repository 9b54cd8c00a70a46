//! The simulator judged and at work, as one program: one link, and no test waits for those of another file.

mod bcache;
mod buckets;
mod bypasses;
mod devices;
mod exhaustive;
mod fio;
mod gflash;
mod held_back;
mod histories;
mod long;
mod mirror;
mod native;
mod neighbours;
mod points;
mod policy;
mod recovery_traffic;
mod room;
mod shares;
mod slots;
mod studies;
mod swarm;
mod traces;
mod transactions;
mod wear;
mod world;
mod written;
