//! Opens devices for use, and suggests a remedy where that fails.

use crate::log::notice;
use anyhow::{Result, anyhow};
use live::devices::{self, Access, Device, DeviceError, DeviceSpec};
use live::patience::{FOR_PROBES, PATIENCE, try_for};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A device that takes longer is told of: else nobody knows what a start waits for. A server that says nothing at all has failed by
/// then, which is told anyway.
const SLOW: Duration = Duration::from_secs(6);

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
    try_for(|| telling_if_slow(spec, || devices::open(spec, access)), patience)
}

/// Opens a device, and tells the operator when that takes long.
fn telling_if_slow<T>(spec: &DeviceSpec, open: impl FnOnce() -> T) -> T {
    let (opened, is_opened) = channel::<()>();
    thread::scope(|scope| {
        let tell = move || {
            if is_opened.recv_timeout(SLOW) == Err(RecvTimeoutError::Timeout) {
                notice(format_args!("waiting for {spec}, which takes long to answer"));
            }
        };
        // Without a thread nobody is told.
        let _told = thread::Builder::new().spawn_scoped(scope, tell);
        let result = open();
        drop(opened);
        result
    })
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
