//! Opens devices for use, and suggests a remedy where that fails.

use anyhow::{Result, anyhow};
use live::devices::{self, Access, Device, DeviceError, DeviceSpec};
use live::patience::{FOR_PROBES, PATIENCE, try_for};
use std::time::Duration;

/// Opens a device. A lock that another process holds is tried again for a moment, and longer if that only looks at it.
///
/// # Errors
/// As [`devices::open`].
pub fn open(spec: &DeviceSpec, access: Access) -> Result<Device, DeviceError> {
    let patience = |error: &DeviceError| match error {
        DeviceError::Locked { .. } => PATIENCE,
        DeviceError::LookedAt { .. } => FOR_PROBES,
        _ => Duration::ZERO,
    };
    try_for(|| devices::open(spec, access), patience)
}

/// Opens the origin of a volume that exists.
///
/// # Errors
/// The error of the device, with advice.
pub fn open_origin(spec: &DeviceSpec, access: Access, volume: &str) -> Result<Device> {
    open(spec, access).map_err(|error| {
        let advice = match error {
            DeviceError::Missing { .. } => "; connect it, or say with --origin where it is now",
            DeviceError::Unreachable { .. } => "; start its server, or say with --origin where it is now",
            DeviceError::Busy { .. } => "; unmount it: it must be used through Forebay only",
            DeviceError::Locked { .. } => "; stop the daemon that serves it",
            _ => "",
        };
        anyhow!("the origin of volume {volume} cannot be used: {error}{advice}")
    })
}
