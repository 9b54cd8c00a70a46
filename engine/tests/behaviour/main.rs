//! What the engine does with plain devices, read off its operations: the known behaviour of published systems.

mod cutoff;
mod dm_cache;
mod enhanceio;
mod flashcache;
mod forged;
mod given_up;
mod lossy_origin;
mod promotion;
mod rig;
mod written;
