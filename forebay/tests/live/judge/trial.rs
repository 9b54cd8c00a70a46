//! A cache under load, its daemon that comes and goes, and what is known of each volume.

use super::ledger::Ledger;
use crate::daemon::{Daemon, Site};
use crate::verifier::{Crash, Excuses, Failure, Load, Verifier, Violation};
use live::nbd::client::{Address, Client};
use serde_json::Value;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

const CONNECTIONS: usize = 2;

/// A volume of a trial.
#[derive(Clone, Debug)]
pub struct Volume {
    pub name: &'static str,
    pub size_bytes: u64,
    pub origin: String,
    pub mode: &'static str,
}

/// A broken promise, and where it was seen.
#[derive(Debug)]
pub struct Finding {
    pub what: String,
    pub violation: Option<Box<Violation>>,
}

impl Finding {
    pub fn new(what: impl Into<String>) -> Finding {
        Finding { what: what.into(), violation: None }
    }

    fn of(volume: &str, when: &str) -> impl FnOnce(Box<Violation>) -> Finding {
        let what = format!("volume {volume}, {when}");
        move |violation| Finding { what, violation: Some(violation) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        self.violation.iter().try_for_each(|violation| write!(f, ": {violation}"))
    }
}

/// Counts of what happened, so that a trial proves what it says.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub lives: u64,
    pub kills: u64,
    pub cuts: u64,
    pub stops: u64,
    pub stumbles: u64,
    pub refused: u64,
    pub homecomings: u64,
    pub reads: u64,
    pub changes: u64,
    pub flushes: u64,
    pub errors: u64,
    pub cut_off: u64,
    pub recovered_dirty_bytes: u64,
    pub lost_blocks: u64,
}

/// Volumes under load.
pub struct Trial<'site> {
    pub site: &'site Site,
    pub cache: String,
    pub volumes: Vec<Volume>,
    pub seen: Seen,
    /// What was done, for whoever looks into a finding.
    pub trail: Vec<String>,
    ledger: Arc<Mutex<Ledger>>,
    daemon: Option<Daemon>,
    verifiers: Vec<Verifier>,
}

/// The excuses of one volume.
struct Book<'a>(usize, &'a Mutex<Ledger>);

impl Excuses for Book<'_> {
    fn explain(&self, failure: &Failure) -> bool {
        lock(self.1).explains(self.0, failure)
    }

    fn flush_answered(&self, asked_at: Instant) {
        lock(self.1).flush_answered(self.0, asked_at);
    }
}

/// A thread that panicked while it held the lock is no reason to fail here as well.
pub fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'site> Trial<'site> {
    /// Creates the cache; all volumes are zeroes.
    pub fn new(
        site: &'site Site,
        create: &[&str],
        cache: String,
        volumes: Vec<Volume>,
        seed: u64,
        ledger: &Arc<Mutex<Ledger>>,
    ) -> Trial<'site> {
        let verifiers =
            volumes.iter().zip(0..).map(|(volume, at)| Verifier::new(seed + at, volume.size_bytes));
        let verifiers = verifiers.collect();
        let ledger = Arc::clone(ledger);
        let trial = Trial {
            site,
            cache,
            volumes,
            seen: Seen::default(),
            trail: Vec::new(),
            ledger,
            daemon: None,
            verifiers,
        };
        let first = &trial.volumes[0];
        let created = ["create", "--cache", &trial.cache, "--origin", &first.origin, "--name", first.name];
        site.run(&[&created[..], &["--mode", first.mode], create].concat());
        (1..trial.volumes.len()).for_each(|volume| trial.add(volume));
        trial
    }

    fn add(&self, volume: usize) {
        let Volume { name, origin, mode, .. } = &self.volumes[volume];
        self.site.run(&["add", &self.cache, "--origin", origin, "--name", name, "--mode", mode]);
    }

    /// Starts the daemon on sound devices and reads everything.
    pub fn begin(&mut self, options: &[&str]) -> Result<(), Finding> {
        lock(&self.ledger).restart();
        let daemon = Daemon::try_start(self.site, &self.cache, options)
            .map_err(|last| Finding::new(format!("a start on sound devices is refused: {last}")))?;
        let status = self.site.report(&["status", &self.cache]);
        self.seen.recovered_dirty_bytes += status["recovery"]["redestage_bytes"].as_u64().unwrap_or(0);
        for (volume, verifier) in self.volumes.iter().zip(&mut self.verifiers) {
            let mut client = connect(&daemon, volume.name)?;
            let found = if lock(&self.ledger).is_torn() {
                verifier.verify_what_is_left(&mut client)
            } else {
                verifier.verify_all(&mut client).map(|()| 0)
            };
            self.seen.lost_blocks += found.map_err(Finding::of(volume.name, "read after a start"))? as u64;
        }
        self.seen.lives += 1;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// A life under load; the script does what it likes to the daemon, and ends it.
    pub fn live(
        &mut self,
        load: &Load,
        depth: usize,
        script: impl FnOnce(Daemon) -> Crash,
    ) -> Result<(), Finding> {
        let daemon = self.daemon.take().expect("it was begun");
        let load = Load { depth, ..load.clone() };
        let mut lanes = Vec::new();
        for volume in &self.volumes {
            let clients = (0..CONNECTIONS).map(|_| connect(&daemon, volume.name));
            lanes.push(clients.collect::<Result<Vec<Client>, Finding>>()?);
        }
        let (ledger, volumes) = (&*self.ledger, &self.volumes);
        let (results, crash) = std::thread::scope(|scope| {
            let parts = self.verifiers.iter_mut().zip(&mut lanes).enumerate();
            let loads: Vec<_> = parts
                .map(|(at, (verifier, clients))| {
                    let load = &load;
                    scope.spawn(move || verifier.run_on_faulty_devices(clients, load, &Book(at, ledger)))
                })
                .collect();
            let crash = script(daemon);
            let results = loads.into_iter().map(|load| load.join().expect("the load does not panic"));
            (results.collect::<Vec<_>>(), crash)
        });
        for (result, volume) in results.into_iter().zip(volumes) {
            let progress = result.map_err(Finding::of(volume.name, "under load"))?;
            self.seen.reads += progress.reads;
            self.seen.changes += progress.changes;
            self.seen.flushes += progress.flushes;
            self.seen.errors += progress.errors;
            self.seen.cut_off += progress.cut_off;
        }
        self.crashed(crash);
        Ok(())
    }

    /// Notes that a daemon ended.
    pub fn crashed(&mut self, crash: Crash) {
        self.verifiers.iter_mut().for_each(|verifier| verifier.after_crash(crash));
    }

    /// Looks at the cache as a crash left it: a torn tail is no corruption.
    pub fn check(&self) -> Result<(), Finding> {
        if lock(&self.ledger).is_torn() {
            return Ok(());
        }
        let output = self.site.run_unlocked(&["check", &self.cache, "--json"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let report: Value = serde_json::from_str(&said).unwrap_or_default();
        if report["ok"] == true {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Finding::new(format!("check finds damage: {said}{errors}")))
    }

    /// Runs a command on sound devices, which must work.
    fn operate(&self, arguments: &[&str]) -> Result<(), Finding> {
        let output = self.site.run_unlocked(arguments);
        if output.status.success() {
            return Ok(());
        }
        let both = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&both).into_owned();
        Err(Finding::new(format!("forebay {arguments:?} fails on sound devices: {said}")))
    }

    /// Takes a volume off the cache, on sound devices: its origin must then be what its clients saw. Returns whether it
    /// is off, which it is not while blocks are lost.
    pub fn come_home(&mut self, volume: usize, home: impl FnOnce() -> Vec<u8>) -> Result<bool, Finding> {
        let name = self.volumes[volume].name;
        if lock(&self.ledger).is_torn() && self.seen.lost_blocks > 0 {
            // What is lost has to be given up first, and then its origin may be older there.
            return Ok(false);
        }
        self.operate(&["detach", &self.cache, name, "--verify"])?;
        self.seen.homecomings += 1;
        self.verifiers[volume].verify_home(&home()).map_err(Finding::of(name, "its origin alone"))?;
        Ok(true)
    }

    /// Puts a volume on the cache again.
    pub fn return_with(&mut self, volume: usize, mode: &'static str) {
        self.volumes[volume].mode = mode;
        self.add(volume);
    }

    /// Stops the daemon that was begun.
    pub fn stop(&mut self) -> Result<(), Finding> {
        let status = self.daemon.take().expect("it was begun").stop_and(|| {});
        self.seen.stops += 1;
        self.crashed(Crash::Process);
        if status.success() { Ok(()) } else { Err(Finding::new(format!("a clean stop ends with {status}"))) }
    }
}

fn connect(daemon: &Daemon, export: &str) -> Result<Client, Finding> {
    Client::connect(&Address::from(daemon.socket()), export)
        .map_err(|error| Finding::new(format!("volume {export} is not served: {error}")))
}
