//! The live side.
