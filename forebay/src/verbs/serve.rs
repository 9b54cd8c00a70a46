//! `forebay serve`: recovers a cache, opens its doors, and stays until it is told to stop.

use crate::access::{Access as ClientAccess, Group};
use crate::addition;
use crate::arguments::attach::Connection;
use crate::arguments::warm::{ListPlace, RATE_DEFAULT, WarmRate, Warming};
use crate::arguments::{RunOptions, Serve, Watching};
use crate::attachment;
use crate::configuration::{self, Configuration};
use crate::device_wait;
use crate::events::Event;
use crate::halves;
use crate::interrupt::{Interrupts, spawn};
use crate::log::{event, event_of};
use crate::opening;
use crate::output::{Output, Size};
use crate::panics;
use crate::profile::{self, Wanted};
use crate::renewal;
use crate::run_dir::RunDirectory;
use crate::running::warming::ListKeeping;
use crate::running::{self, Doors, Era, Running, Watched};
use crate::service::{self, Watchdog};
use crate::setting::Setting;
use crate::startup::{self, Prepared};
use crate::state::StateDirectory;
use crate::superblock;
use crate::uncached;
use crate::warm_list;
use crate::watchers::Watchers;
use anyhow::{Context, Result, anyhow, bail};
use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::recovery::SuperblockError;
use live::devices::BlockingDevice;
use live::devices::{Access, DeviceError, DeviceSpec};
use live::server::{ListenAddress, reactors_default};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Interval at which drains and devices are looked after, and figures are taken.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval at which it is noted how much was written to the cache.
const NOTE_EVERY: Duration = Duration::from_secs(600);

pub(super) fn run(arguments: Serve) -> Result<()> {
    panics::end_all();
    let (arguments, configuration) = configuration::complete(arguments)?;
    let Serve {
        cache,
        mirror,
        config: _,
        nbd,
        nbd_mode,
        profile,
        uncached,
        wait_for_devices,
        attach,
        connection,
        threads,
        access,
        watching,
        warming,
        running,
        places,
    } = arguments;
    let cache = cache.context("name the cache")?;
    let configured = configuration.as_ref().map_or_else(Vec::new, Configuration::names);
    let options = RunOptions { mirror, configured, ..running };
    let watchers = Watchers::open(&watching, access.socket_group)?;
    let watching = watched(&watching, &watchers, configuration);
    let threads = threads.unwrap_or_else(reactors_default);
    // Before there are threads, which then are the same.
    attachment::flush_for_others();
    let interrupts = Interrupts::install(0)?;
    allow_many_descriptors();
    let access = ClientAccess::new(&access, &nbd)?;
    let state = StateDirectory::find(places.state_dir.as_deref())?;
    let doors = |given, first: &str| {
        Ok(Doors {
            listen: listen(given, first, access.group)?,
            socket_permissions: nbd_mode,
            access: access.clone(),
            device_timeout: options.device_timeout,
            threads,
            watching: watching.clone(),
            attach: attach.then(|| connection.options(None)),
            list_keeping: ListKeeping::default(),
        })
    };
    check_attachment(attach, connection)?;
    let why_missing = missing(&cache, &options, &state, wait_for_devices.filter(|_| !uncached))?;
    match (why_missing, uncached) {
        (Some(Missing { why, .. }), true) => {
            let doors = |first: &str| doors(nbd, first);
            let ready = |names: &[String], nbd: &[ListenAddress]| {
                event(Event::CacheMissing, format_args!("{why}; its volumes are served without it"));
                ready(names, nbd, &watching, "uncached=true");
            };
            return uncached::serve(&cache, doors, &options, state, &interrupts, ready, watchers);
        }
        (Some(_), false) if renewal::is_expected(&cache, &state)? => {
            let allowed = |name: &str, composition: &Composition| match &profile {
                Some(wanted) => expect_composition(&cache, wanted, name, composition),
                None => Ok(()),
            };
            renewal::renew(&cache, &options, &state, allowed)?;
        }
        (Some(missing), false) => return refuse_missing(&missing, &cache, &state),
        (None, true) => bail!("the cache {cache} is there; serve it without --uncached"),
        (None, false) => (),
    }
    if let Some(wanted) = &profile {
        expect_profile(&cache, wanted, &options, &state)?;
    }
    let prepared = startup::prepare(&cache, &options, state, &interrupts)?;
    let new_volumes = match &watching.configuration {
        Some(configuration) => expect_volumes(configuration, &cache, &prepared)?,
        None => prepared.expect_volumes().map(|()| Vec::new())?,
    };
    if watching.configuration.is_some() || access.tls.is_some() {
        // Whoever reads that it is ready may ask for a reload at once.
        interrupts.reload_on_hangup();
    }
    let names = [served_names(&prepared), new_volumes].concat();
    let first = names.first().context("no volume has its origin")?;
    let doors = Doors { list_keeping: list_keeping(&warming, &prepared)?, ..doors(nbd, first)? };
    let watched = doors.watching.clone();
    let (waiter, devices) = (interrupts.clone(), connection.options(None));
    running::run(prepared, doors, &interrupts, move |running| {
        // The file of its socket is there as long as this is.
        let watchers = watchers.serve(running)?;
        running.apply_settings()?;
        running.take_over_devices(&devices);
        let attached = if attach { running.attach_all(&devices) } else { Ok(()) };
        let ended = attached.and_then(|()| serve_on(running, &watched, &waiter));
        running.let_go_of_devices();
        drop(watchers);
        ended
    })
}

/// Refuses what would keep the volumes from being attached before anything begins (RULE 11), and a door without a device.
fn check_attachment(attach: bool, connection: Connection) -> Result<()> {
    if attach {
        return connection.options(None).check().context("cannot attach the volumes");
    }
    if connection.door.is_some() {
        bail!("--door says which driver makes devices of the volumes; add --attach, or leave --door out");
    }
    Ok(())
}

/// The ways in which the daemon is watched, as asked for.
fn watched(asked: &Watching, watchers: &Watchers, configuration: Option<Configuration>) -> Watched {
    let (metrics, web) = watchers.addresses();
    Watched {
        metrics,
        web,
        endurance_bytes: asked.endurance,
        wear_budget_bytes: asked.wear_budget,
        scrub_days: asked.scrub_days,
        configuration: configuration.map(Arc::new),
    }
}

/// Refuses a cache that cannot be used, with the ways on.
fn refuse_missing(missing: &Missing, cache: &DeviceSpec, state: &StateDirectory) -> Result<()> {
    let Missing { why, remedy } = missing;
    if uncached::is_possible(cache, state)? {
        bail!(
            "{why}; {remedy}, or go on without the cache (none of its volumes has dirty data): forebay serve {cache} --uncached"
        );
    }
    if state.find_by_device(cache)?.is_some_and(|record| !record.volumes.is_empty()) {
        bail!("{why}; {remedy}; the cache may hold data of its volumes that their origins do not have");
    }
    bail!("{why}; name the cache as it was given to create")
}

/// Adds what the configuration names, says that clients may come, and serves until an interrupt. A new cache is filled
/// meanwhile; at the end what is hot is written down.
fn serve_on(running: &Arc<Running>, watched: &Watched, interrupts: &Interrupts) -> Result<()> {
    running.configuration().iter().for_each(|configuration| add_volumes(running, configuration));
    let names = running.names_served();
    if names.is_empty() {
        bail!("there is no volume on {}, and none could be added", running.era().name);
    }
    ready(&names, running.nbd(), watched, &figures(&running.era()));
    let (done, ended) = mpsc::channel::<()>();
    let filled = Arc::clone(running);
    let filling = spawn("warm", move || {
        filled.warm_up();
        drop(done);
    });
    if let Err(error) = filling {
        event(Event::NotWarmedUp, format_args!("the new cache stays cold: {error:#}"));
    }
    let attended = attend(running, interrupts);
    running.end_warm_up();
    // It ends by itself soon; a daemon that stops waits for its last reads anyway.
    let _is_over = ended.recv();
    if let Err(error) = running.write_warm_list() {
        event(Event::NotNoted, format_args!("{error:#}"));
    }
    attended
}

/// Where the daemon keeps its warm list, and how fast a new cache is filled from it.
fn list_keeping(warming: &Warming, prepared: &Prepared) -> Result<ListKeeping> {
    let is_ephemeral = prepared.identity.ephemeral;
    let file = match &warming.warm_list {
        None if !is_ephemeral => None,
        None | Some(ListPlace::State) => Some(prepared.record.list()),
        Some(ListPlace::Off) => None,
        Some(ListPlace::File(path)) => {
            let path = std::path::absolute(path).context("the warm list has no path")?;
            let directory = path.parent().filter(|directory| directory.is_dir());
            directory
                .with_context(|| format!("there is no directory for the warm list {}", path.display()))?;
            warm_list::expect_place(&path)?;
            Some(path)
        }
    };
    let rate_bytes = match warming.warm_rate {
        Some(WarmRate::Off) => None,
        Some(WarmRate::Bytes(bytes)) => Some(bytes),
        None => Some(RATE_DEFAULT),
    };
    Ok(ListKeeping { file, rate_bytes: rate_bytes.filter(|_| is_ephemeral) })
}

/// The names of the volumes that have their origins.
fn served_names(prepared: &Prepared) -> Vec<String> {
    let served = prepared.volumes.iter().filter(|volume| volume.origin.is_some());
    served.map(|volume| volume.name.clone()).collect()
}

/// Allows as many open files as the system lets this process have: each client takes one.
fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // With the old limit fewer clients come in; the start checks that there is room for some.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Refuses a cache that was created with another profile. How it is called does not matter, nor do the
/// mode of its volumes and whether it is safe.
fn expect_profile(
    spec: &DeviceSpec,
    wanted: &Wanted,
    options: &RunOptions,
    state: &StateDirectory,
) -> Result<()> {
    let mut cache = halves::find(spec, options.mirror.as_ref(), Access::ReadOnlyExclusive, Some(state))?;
    // The start itself finishes what a crash cut off, or refuses it.
    let superblock = superblock::read(&mut cache.image, &spec.to_string())?;
    let found = superblock::composition(&superblock, &spec.to_string())?;
    expect_composition(spec, wanted, &superblock.profile, &found)
}

/// The same of a cache of which profile and composition are known.
fn expect_composition(spec: &DeviceSpec, wanted: &Wanted, profile: &str, found: &Composition) -> Result<()> {
    let wanted = profile::load(wanted)?;
    let Composition { write_mode, safe, .. } = *found;
    if *found == (Composition { write_mode, safe, ..wanted.composition }) {
        return Ok(());
    }
    bail!(
        "the cache {spec} was created with profile {}, not with {}{}; to change it, detach its volumes and run \
         forebay create again",
        profile,
        wanted.name,
        if profile == wanted.name { " as it is now" } else { "" }
    )
}

/// A cache that cannot be used at all.
struct Missing {
    why: String,
    /// The way to mend that.
    remedy: &'static str,
}

/// Reason why the cache cannot be used at all, if there is one, after `patience` with devices that come late. A cache that is
/// there but in use is an error.
fn missing(
    spec: &DeviceSpec,
    options: &RunOptions,
    state: &StateDirectory,
    patience: Option<Duration>,
) -> Result<Option<Missing>> {
    if let Some(patience) = patience {
        device_wait::wait_for_devices(spec, options, patience);
    }
    let why = missing_device(spec)?;
    let has_other = || halves::has_other_half(spec, options.mirror.as_ref(), state);
    Ok(if why.is_some() && has_other()? { None } else { why })
}

/// Reason why this device of a cache cannot be used at all, if there is one.
fn missing_device(spec: &DeviceSpec) -> Result<Option<Missing>> {
    // A lock may be that of a daemon that was killed just now.
    let cache = match opening::open(spec, Access::ReadOnlyExclusive) {
        Ok(cache) => cache,
        Err(error @ (DeviceError::Missing { .. } | DeviceError::Empty { .. } | DeviceError::Os { .. })) => {
            return Ok(Some(Missing { why: format!("the cache is missing: {error}"), remedy: "connect it" }));
        }
        // The start itself will report the error and a remedy.
        Err(_) => return Ok(None),
    };
    // One that gave its place up is refused by the start itself, and so is one of another version.
    match engine::recovery::load_superblock(&mut BlockingDevice::new(&cache)) {
        Ok(_) => Ok(None),
        Err(error @ SuperblockError::Version { .. }) => Err(superblock::refused(error, &spec.to_string())),
        Err(SuperblockError::DeviceTooSmall { device_bytes, cache_bytes }) => Ok(Some(Missing {
            why: format!(
                "the cache {spec} has shrunk: it has {}, and had {} when it was formatted",
                Size(device_bytes),
                Size(cache_bytes)
            ),
            remedy: "give it its size back",
        })),
        Err(error) => Ok(Some(Missing {
            why: format!("the cache cannot be read: {spec} cannot be used: {error}"),
            remedy: "connect it",
        })),
    }
}

/// Addresses for NBD clients: the operator's, or a unix socket in the run directory.
fn listen(given: Vec<ListenAddress>, volume: &str, group: Option<Group>) -> Result<Vec<ListenAddress>> {
    if !given.is_empty() {
        return Ok(given);
    }
    let directory = RunDirectory::find();
    directory.make(group)?;
    Ok(vec![ListenAddress::Unix(directory.nbd_socket(volume)?)])
}

fn figures(Era { session, recovery, .. }: &Era) -> String {
    format!(
        "session={session} recovery_seconds={:.3} batches_cut={} redestage_bytes={}",
        recovery.seconds, recovery.batches_cut, recovery.redestage_bytes
    )
}

/// The one line that says that clients may come.
fn ready(names: &[String], nbd: &[ListenAddress], watched: &Watched, figures: &str) {
    let addresses: Vec<String> = nbd.iter().map(ToString::to_string).collect();
    let mut output = Output::stdout();
    let word = |key: &str, address: &Option<ListenAddress>| {
        address.as_ref().map_or_else(String::new, |address| format!(" {key}={address}"))
    };
    let watched = word("metrics", &watched.metrics) + &word("web", &watched.web);
    let line = format!("ready volumes={} nbd={} {figures}{watched}", names.join(","), addresses.join(","));
    service::ready(&format!("serving {}", names.join(", ")));
    // The line may have no reader; the server has clients all the same.
    let _ = writeln!(output, "{line}").and_then(|()| output.finish());
}

/// Refuses a configuration with volumes that the cache does not have and that cannot be added, and tells of those that it
/// leaves out, and of modes that are others than it says. The names of those that are to be added.
fn expect_volumes(
    configuration: &Configuration,
    cache: &DeviceSpec,
    prepared: &Prepared,
) -> Result<Vec<String>> {
    let file = configuration.path.display();
    let mut new_volumes = Vec::new();
    for wish in &configuration.volumes {
        let volume = prepared.volumes.iter().find(|volume| volume.name == wish.name);
        if volume.is_none() && wish.origin.is_none() {
            bail!(
                "{file}:{}: there is no volume {} on {cache}; forebay add {cache} --origin DEV --name {} puts it there",
                wish.line,
                wish.name,
                wish.name
            );
        }
        if wish.mode == Some(WriteMode::Writeback) && prepared.identity.ephemeral {
            bail!(
                "{file}:{}: volume {} cannot be in writeback: the cache {cache} is ephemeral, and may be gone at any start",
                wish.line,
                wish.name
            );
        }
        for kept in &wish.settings {
            superblock::check_kept(&prepared.identity.profile, &prepared.identity.composition, *kept)
                .with_context(|| format!("{file}:{}", wish.line))?;
        }
        let Some(volume) = volume else {
            new_volumes.push(wish.name.clone());
            continue;
        };
        if let Some(mode) = wish.mode.filter(|mode| *mode != volume.mode) {
            event_of(
                Event::ModeDiffers,
                &wish.name,
                format_args!(
                    "volume {} is in {}, and {file}:{} says {}; forebay set {cache} {} mode={}, or a reload, changes it",
                    wish.name,
                    volume.mode.name(),
                    wish.line,
                    mode.name(),
                    wish.name,
                    mode.name()
                ),
            );
        }
    }
    let is_named = |name: &str| configuration.volumes.iter().any(|wish| wish.name == name);
    for volume in prepared.volumes.iter().filter(|volume| !is_named(&volume.name)) {
        if !configuration.volumes.is_empty() {
            event_of(
                Event::NotConfigured,
                &volume.name,
                format_args!("volume {} is served, and {file} says nothing of it", volume.name),
            );
        }
    }
    if new_volumes.is_empty() {
        prepared.expect_volumes()?;
    }
    Ok(new_volumes)
}

/// Stays until an interrupt, and keeps devices alive and the notes on dirty data up to date meanwhile.
///
/// # Errors
/// Why the daemon cannot go on.
fn attend(running: &Arc<Running>, interrupts: &Interrupts) -> Result<()> {
    let mut said = String::new();
    let mut noted_at = Instant::now();
    let mut watchdog = Watchdog::of_service();
    while !interrupts.wait(LOOK_EVERY) {
        if let Some(why) = running.broken() {
            bail!("{why}");
        }
        if interrupts.take_reload() {
            service::reloading();
            reload(running);
            service::ready("the configuration was read again");
        }
        running.look_after_devices();
        running::flush_on_schedule(running, interrupts);
        running::scrubbing::scrub_when_due(running, interrupts);
        let mut looked = running.picture().and_then(|status| {
            // An answer of the engine is the proof that it works, whether notes can be written or not.
            watchdog.pat();
            running.look(&status)
        });
        if noted_at.elapsed() >= NOTE_EVERY {
            noted_at = Instant::now();
            looked = looked.and(running.note_written()).and(running.write_warm_list());
        }
        let error = looked.err().map_or_else(String::new, |error| format!("{error:#}"));
        // The notes stay on the safe side; the next look tries again, and says so only if the reason is another one.
        if !error.is_empty() && error != said {
            event(Event::NotNoted, format_args!("{error}"));
        }
        said = error;
    }
    service::stopping();
    Ok(())
}

/// Adds the volumes that a configuration names and the cache does not have.
fn add_volumes(running: &Running, configuration: &Configuration) {
    for wish in &configuration.volumes {
        if !matches!(running.mode_of(&wish.name), Ok(None)) {
            continue;
        }
        let added = match &wish.origin {
            Some(origin) => running.add(&addition::wish(&wish.name, origin, wish.mode, None)),
            None => {
                Err(anyhow!("there is no volume {}; it can be added if its `origin` is named", wish.name))
            }
        };
        match added {
            Ok(added) => event(
                Event::VolumeAdded,
                format_args!("volume {} of {} was added ({})", added.name, added.origin, added.mode),
            ),
            Err(error) => event(
                Event::VolumeNotAdded,
                format_args!("{}:{}: {error:#}", configuration.path.display(), wish.line),
            ),
        }
    }
}

/// Reads certificates and configuration again, and does what of it can be done while the cache is served: adds new
/// volumes, and sets the modes and the settings that it says. A file with an error changes nothing.
fn reload(running: &Running) {
    if let Err(error) = running.reload_certificates() {
        event(Event::CertificatesNotRead, format_args!("the former certificates stay: {error}"));
    }
    let Some(old) = running.configuration() else { return };
    let new = match configuration::load(&old.path) {
        Ok(new) => new,
        Err(error) => return event(Event::NotReloaded, format_args!("nothing is changed: {error:#}")),
    };
    add_volumes(running, &new);
    for wish in &new.volumes {
        let Some(mode) = wish.mode else { continue };
        match running.mode_of(&wish.name) {
            Ok(Some(now)) if now == mode => {}
            Ok(Some(_)) => match running.set(Some(&wish.name), Setting::Mode(mode)) {
                Ok(()) => event_of(
                    Event::ModeSet,
                    &wish.name,
                    format_args!("volume {} is set to {}", wish.name, mode.name()),
                ),
                Err(error) => event_of(
                    Event::ModeNotSet,
                    &wish.name,
                    format_args!("{}:{}: {error:#}", new.path.display(), wish.line),
                ),
            },
            Ok(None) => {}
            Err(error) => return event(Event::ModeNotSet, format_args!("{error:#}")),
        }
    }
    let (cache, era) = (new.cache(), running.era());
    let is_it = |named: &DeviceSpec| running.names().iter().any(|name| name.canonical() == named.canonical());
    if live::devices::parse(cache).is_ok_and(|named| !is_it(&named)) {
        event(
            Event::NextStart,
            format_args!(
                "{}:{}: `cache` names {cache}, and the cache is {} now; name that one before the next start",
                new.path.display(),
                new.cache_line(),
                era.name
            ),
        );
    }
    // Of volumes that are new something was said already.
    let is_new = |key: &str| {
        let name = key.strip_prefix("volume.");
        name.is_some_and(|name| old.volumes.iter().all(|wish| wish.name != name))
    };
    for key in old.changed_keys(&new).into_iter().filter(|key| !is_new(key)) {
        event(
            Event::NextStart,
            format_args!("{}: `{key}` has changed, which the next start takes up", new.path.display()),
        );
    }
    if let Err(error) = running.configure(new) {
        event(Event::ModeNotSet, format_args!("{error:#}"));
    }
}
