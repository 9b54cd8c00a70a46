//! A trial from its first to its last life: devices are made, steps are carried out, everything comes home.

use super::caches::{Cache, SmallFileSystem, Zram};
use super::layer::{Layer, Weather};
use super::ledger::{Ledger, Place};
use super::medium::Plant;
use super::steps::{Between, End, Life, MODES, Scope, Step, between};
use super::trial::{Finding, Seen, Trial, Volume, lock};
use crate::daemon::{Daemon, Site};
use crate::verifier::Crash;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The least that a cache has.
const CACHE_BYTES: u64 = 32 * MIB;
const VOLUMES: [(&str, u64); 3] = [("one", 12 * MIB), ("two", 6 * MIB), ("three", 4 * MIB)];
/// The daemon's patience with a device where one may hang for longer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// What a trial is.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub profile: &'static str,
    pub seed: u64,
    /// Crashes to come through.
    pub crashes: u64,
    /// Whether the daemon takes threads and no io_uring.
    pub has_threads: bool,
    /// The cache is a layer, whatever the seed says.
    pub is_layered: bool,
    pub plant_in_cache: Plant,
    pub plant_in_origins: Plant,
}

/// The devices of a trial.
struct Ground<'site> {
    cache: Cache<'site>,
    origins: Vec<Layer<'site>>,
    ledger: Arc<Mutex<Ledger>>,
}

impl<'site> Ground<'site> {
    fn new(site: &'site Site, setup: &Setup) -> Ground<'site> {
        let ledger = Arc::default();
        let layer = |name: &str, size_bytes, plant, place| {
            let salt = name.bytes().map(u64::from).sum::<u64>();
            Layer::new(site, name, size_bytes, (plant, setup.seed ^ salt), (place, &ledger))
        };
        let origins = VOLUMES.iter().enumerate().map(|(at, (name, size_bytes))| {
            layer(name, *size_bytes, setup.plant_in_origins, Place::Origin(at))
        });
        let origins = origins.collect();
        let kind = if setup.is_layered { 0 } else { setup.seed % 6 };
        let other = match kind {
            4 => Zram::new(CACHE_BYTES).map(Cache::Zram),
            5 => Some(Cache::Small(SmallFileSystem::new(site, CACHE_BYTES))),
            _ => None,
        };
        let own = || Cache::Layer(layer("cache", CACHE_BYTES, setup.plant_in_cache, Place::Cache));
        let cache = other.unwrap_or_else(own);
        Ground { cache, origins, ledger }
    }

    fn scope(&self, is_long: bool) -> Scope {
        Scope { volumes: self.origins.len(), is_layered: matches!(self.cache, Cache::Layer(_)), is_long }
    }

    fn layer(&self, place: Place) -> Option<&Layer<'site>> {
        match (place, &self.cache) {
            (Place::Cache, Cache::Layer(layer)) => Some(layer),
            (Place::Cache, _) => None,
            (Place::Origin(volume), _) => Some(&self.origins[volume]),
        }
    }

    fn layers(&self) -> impl Iterator<Item = &Layer<'site>> {
        self.layer(Place::Cache).into_iter().chain(&self.origins)
    }

    /// Ends what makes devices fail; what is gone stays gone as long as a daemon uses it.
    fn calm(&self) {
        self.layers().for_each(|layer| layer.set(Weather::default()));
    }

    /// Makes all devices whole again, with no daemon on them.
    fn heal(&mut self) {
        self.cache.heal();
        self.origins.iter_mut().for_each(Layer::heal);
    }

    /// The power of all devices fails under the daemon.
    fn cut(&mut self, daemon: Daemon) -> u64 {
        self.layers().for_each(Layer::fail_power);
        daemon.kill_and(|| self.layers().for_each(Layer::release));
        let cache = match &mut self.cache {
            Cache::Layer(layer) => layer.restore_power(),
            _ => 0,
        };
        cache + self.origins.iter_mut().map(Layer::restore_power).sum::<u64>()
    }

    /// Does a step; a finding is what an operator's command must not say.
    fn take(&self, step: &Step, trial: &Operator<'_>) -> Result<(), Finding> {
        let now = Instant::now();
        match step {
            Step::Weather(place, weather) => {
                self.layer(*place).into_iter().for_each(|layer| layer.set(*weather));
            }
            Step::Pause(place, pause) => {
                if let Some(layer) = self.layer(*place) {
                    layer.set(Weather { hangs: true, ..Weather::default() });
                    std::thread::sleep(*pause);
                    layer.set(Weather::default());
                }
            }
            Step::Hang(place) => {
                if let Some(layer) = self.layer(*place) {
                    lock(&self.ledger).gone(*place, now);
                    layer.set(Weather { hangs: true, ..Weather::default() });
                    std::thread::sleep(TIMEOUT + Duration::from_secs(1));
                }
            }
            Step::Vanish(place) => {
                if let Some(layer) = self.layer(*place) {
                    lock(&self.ledger).gone(*place, now);
                    layer.vanish();
                }
            }
            Step::Fill => {
                lock(&self.ledger).fail_cache(now);
                self.cache.fill();
            }
            Step::Heal => self.calm(),
            Step::Mode(volume, mode) => {
                trial.run(self, &["set", trial.cache, VOLUMES[*volume].0, &format!("mode={mode}")])?;
            }
            // It waits as long as devices fail; and what cannot be read for 30 s is given up.
            Step::Flush(_) if lock(&self.ledger).is_faulty() => {}
            Step::Flush(volume) => trial.run(self, &["flush", trial.cache, VOLUMES[*volume].0])?,
        }
        Ok(())
    }
}

/// Somebody at the command line.
struct Operator<'a> {
    site: &'a Site,
    cache: &'a str,
}

impl Operator<'_> {
    /// Runs a command; it may fail only if a device did.
    fn run(&self, ground: &Ground<'_>, arguments: &[&str]) -> Result<(), Finding> {
        let output = self.site.run_unlocked(arguments);
        if output.status.success() || lock(&ground.ledger).is_faulty() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Finding::new(format!("forebay {arguments:?} fails on sound devices: {errors}")))
    }
}

/// Runs a trial; what was seen, or the first promise that was broken.
pub fn run(setup: &Setup) -> Result<(Seen, u64), Finding> {
    let mut site = Site::new(&format!("judge-{}", setup.profile));
    if setup.has_threads {
        site = site.with("FOREBAY_NO_IO_URING", "1");
    }
    let result = come_through(&site, setup);
    if result.is_err() {
        eprintln!("the daemon's last words:\n{}", site.last_words());
    }
    result
}

fn come_through(site: &Site, setup: &Setup) -> Result<(Seen, u64), Finding> {
    let mut draw = Xoshiro256PlusPlus::seed_from_u64(setup.seed);
    let mut ground = Ground::new(site, setup);
    let volumes = VOLUMES.iter().zip(&ground.origins).map(|((name, size_bytes), origin)| {
        let mode = MODES[draw.random_range(0..3)];
        Volume { name, size_bytes: *size_bytes, origin: origin.path().to_owned(), mode }
    });
    let volumes: Vec<Volume> = volumes.collect();
    let cache = ground.cache.path().to_owned();
    let create = ["--profile", setup.profile, "--sparse"];
    let mut trial = Trial::new(site, &create, cache, volumes, setup.seed, &ground.ledger);
    let result = all_lives(&mut trial, &mut ground, setup, &mut draw);
    if result.is_err() {
        let skip = trial.trail.len().saturating_sub(12);
        trial.trail.iter().skip(skip).for_each(|event| eprintln!("{event}"));
    }
    let faults = lock(&ground.ledger).total();
    result.map(|()| (trial.seen, faults))
}

fn all_lives(
    trial: &mut Trial<'_>,
    ground: &mut Ground<'_>,
    setup: &Setup,
    draw: &mut Xoshiro256PlusPlus,
) -> Result<(), Finding> {
    let scope = ground.scope(setup.crashes > 4);
    while trial.seen.kills + trial.seen.cuts < setup.crashes {
        let life = Life::draw(draw, scope);
        trial.trail.push(format!("{life:?}"));
        live(trial, ground, &life)?;
        for event in between(draw, scope) {
            trial.trail.push(format!("{event:?}"));
            pass(trial, ground, event, draw)?;
        }
    }
    trial.begin(&[])?;
    for volume in 0..VOLUMES.len() {
        trial.come_home(volume, || ground.origins[volume].content())?;
    }
    trial.stop()
}

/// One life; afterwards the devices are whole again.
fn live(trial: &mut Trial<'_>, ground: &mut Ground<'_>, life: &Life) -> Result<(), Finding> {
    let has_hang = life.steps.iter().any(|(_, step)| matches!(step, Step::Hang(_)));
    let threads = life.threads.to_string();
    let mut options = vec!["--threads", &threads];
    if has_hang {
        options.extend(["--device-timeout", "3"]);
    }
    trial.begin(&options)?;
    let (site, cache) = (trial.site, trial.cache.clone());
    let found = RefCell::new(None);
    let result = trial.live(&life.load, life.depth, |daemon| {
        let operator = Operator { site, cache: &cache };
        for (pause, step) in &life.steps {
            std::thread::sleep(*pause);
            if let Err(finding) = ground.take(step, &operator) {
                found.replace(Some(finding));
                break;
            }
        }
        std::thread::sleep(life.rest);
        end(ground, daemon, life.end).unwrap_or_else(|finding| {
            found.replace(Some(finding));
            Crash::Process
        })
    });
    match life.end {
        End::Kill => trial.seen.kills += 1,
        End::Cut => trial.seen.cuts += 1,
        End::Stop => trial.seen.stops += 1,
    }
    ground.heal();
    result.and(found.into_inner().map_or(Ok(()), Err))
}

fn end(ground: &mut Ground<'_>, daemon: Daemon, end: End) -> Result<Crash, Finding> {
    match end {
        End::Kill => {
            daemon.kill_and(|| ground.calm());
            Ok(Crash::Process)
        }
        End::Cut => {
            ground.cut(daemon);
            Ok(Crash::Power)
        }
        End::Stop => {
            lock(&ground.ledger).stopping(Instant::now());
            let status = daemon.stop_and(|| {
                std::thread::sleep(Duration::from_millis(200));
                ground.calm();
            });
            let may_fail = lock(&ground.ledger).is_faulty();
            if status.success() || may_fail {
                return Ok(Crash::Process);
            }
            Err(Finding::new(format!("a clean stop on sound devices ends with {status}")))
        }
    }
}

/// What happens between two lives.
fn pass(
    trial: &mut Trial<'_>,
    ground: &mut Ground<'_>,
    event: Between,
    draw: &mut Xoshiro256PlusPlus,
) -> Result<(), Finding> {
    match event {
        Between::Check => trial.check()?,
        Between::Stumble(after) => {
            let daemon = Daemon::spawn(trial.site, &trial.cache, &[]);
            std::thread::sleep(after);
            daemon.kill();
            trial.seen.stumbles += 1;
            trial.crashed(Crash::Process);
        }
        Between::Starts(place, weather, times) => {
            for _ in 0..times {
                ground.layer(place).into_iter().for_each(|layer| layer.set(weather));
                match Daemon::try_start(trial.site, &trial.cache, &[]) {
                    Ok(daemon) if draw.random_range(0..2) == 0 => daemon.kill_and(|| ground.calm()),
                    Ok(daemon) => {
                        daemon.stop_and(|| ground.calm());
                    }
                    Err(line) if line.contains("panicked") => {
                        return Err(Finding::new(format!("a start with a failing device: {line}")));
                    }
                    Err(_) => trial.seen.refused += 1,
                }
                trial.crashed(Crash::Process);
            }
            ground.heal();
        }
        Between::Homecoming(volume, mode) => {
            if trial.come_home(volume, || ground.origins[volume].content())? {
                trial.return_with(volume, mode);
            }
        }
    }
    Ok(())
}
