//! Events: what a daemon may tell its operator unasked, each with an id that docs/events.md explains.

/// How urgent an event is, by the numbers of syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something is broken: look after it.
    Error = 3,
    /// Something may break, or goes worse than it should.
    Warning = 4,
    /// Something changed, as was wanted or expected.
    Notice = 5,
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident $id:literal $level:ident,)*) => {
        /// An event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event {
            $($(#[$doc])* $name,)*
        }

        impl Event {
            /// All events.
            #[cfg(test)]
            pub const ALL: &[Event] = &[$(Event::$name,)*];

            /// Its id, which stays the same for ever.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self {
                    $(Event::$name => $id,)*
                }
            }

            /// Its urgency.
            #[must_use]
            pub fn level(self) -> Level {
                match self {
                    $(Event::$name => Level::$level,)*
                }
            }
        }
    };
}

events! {
    /// The cache device failed and is not written any more.
    CacheFailed "F01" Error,
    /// An origin failed an operation.
    OriginFailed "F02" Error,
    /// A device did not answer in time.
    DeviceGone "F03" Error,
    /// Dirty data rotted in the cache.
    DataLost "F04" Error,
    /// A clean block rotted in the cache.
    CleanRotted "F05" Warning,
    /// A clean block could not be read from the cache.
    CleanUnread "F06" Warning,
    /// A volume goes on without its cache.
    Uncached "F07" Error,
    /// A volume has no dirty data any more.
    Drained "F08" Notice,
    /// A client was sent away.
    TooManyClients "F09" Warning,
    /// The kernel refuses io_uring.
    NoIoUring "F10" Warning,
    /// A note in the state directory could not be written.
    NotNoted "F11" Error,
    /// An origin is missing at the start.
    OriginMissing "F12" Error,
    /// An origin has grown.
    OriginGrown "F13" Notice,
    /// A device is used through the page cache.
    PageCache "F14" Warning,
    /// Content that the cache held of a volume is dropped.
    ContentDropped "F15" Notice,
    /// The cache promises less than a disk.
    PromisesLess "F16" Warning,
    /// The cache is missing, and volumes are served without it.
    CacheMissing "F17" Error,
    /// A volume is not served.
    NotServed "F18" Error,
    /// A volume's mode is not that of the configuration.
    ModeDiffers "F19" Warning,
    /// The configuration says nothing of a volume.
    NotConfigured "F20" Notice,
    /// The configuration has an error and was not taken up.
    NotReloaded "F21" Error,
    /// A reload set a mode.
    ModeSet "F22" Notice,
    /// A reload could not set a mode.
    ModeNotSet "F23" Error,
    /// A part of the configuration waits for the next start.
    NextStart "F24" Warning,
    /// The server of an origin is away.
    OriginAway "F25" Error,
    /// The server of an origin serves something else now.
    OriginOther "F26" Error,
    /// The server of an origin is back.
    OriginBack "F27" Notice,
    /// The server of an origin cannot make anything durable.
    NotDurable "F28" Warning,
    /// The kernel's limits of an attached volume could not be set.
    KernelLimits "F29" Warning,
    /// The daemon may be swapped out.
    NotLocked "F30" Warning,
    /// An attached volume is served again.
    AttachedAgain "F31" Notice,
    /// An attached volume could not be taken over, connected again or let go.
    NotAttached "F32" Error,
    /// An attached volume was taken away by somebody else.
    TakenAway "F33" Error,
    /// An attached volume is in use and waits for the next daemon.
    WaitsForDaemon "F34" Warning,
    /// A reload added a volume.
    VolumeAdded "F35" Notice,
    /// A reload could not add a volume.
    VolumeNotAdded "F36" Error,
    /// A volume was flushed on schedule.
    Flushed "F37" Notice,
    /// A volume could not be flushed on schedule.
    NotFlushed "F38" Error,
    /// An ephemeral cache was gone, and another one took its place.
    CacheRenewed "F39" Warning,
    /// A cache that was made anew is filled from its warm list.
    WarmedUp "F40" Notice,
    /// A cache that was made anew could not be filled.
    NotWarmedUp "F41" Warning,
    /// The cache device is so slow that it is passed by.
    CacheSlow "F42" Warning,
    /// The cache device is used again.
    CacheWell "F43" Notice,
    /// A half of a mirrored cache does not count any more.
    HalfLost "F44" Error,
    /// A half of a mirrored cache counts again.
    HalfBack "F45" Notice,
    /// The daemon has no memory that outlives it.
    NoLastingMemory "F46" Warning,
    /// An origin may have lost changes that were not flushed.
    ChangesLost "F47" Error,
    /// A client was refused for what it is.
    ClientRefused "F60" Warning,
    /// Certificates could not be read again.
    CertificatesNotRead "F61" Error,
    /// Dirty data could not be read by a scrub.
    DirtyUnread "F80" Error,
    /// A scrub by itself came to its end.
    Scrubbed "F81" Notice,
    /// A scrub by itself found damage.
    ScrubFound "F82" Warning,
    /// A scrub by itself could not go on.
    NotScrubbed "F83" Warning,
    /// Something else that the server noticed.
    Other "F99" Warning,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn ids_differ_and_the_page_explains_each() {
        let ids: BTreeSet<&str> = Event::ALL.iter().map(|event| event.id()).collect();
        assert_eq!(ids.len(), Event::ALL.len(), "an id is of one event");
        // A packaged crate stands alone.
        let Some(root) = Path::new(env!("CARGO_MANIFEST_DIR")).parent() else { return };
        let Ok(page) = std::fs::read_to_string(root.join("docs/events.md")) else { return };
        for event in Event::ALL {
            let level = format!("{:?}", event.level()).to_lowercase();
            let row = page.lines().find(|line| line.starts_with(&format!("| {} |", event.id())));
            let row = row.unwrap_or_else(|| panic!("docs/events.md says nothing of {}", event.id()));
            assert!(row.contains(&format!("| {level} |")), "{} is {level}: {row}", event.id());
        }
    }
}
