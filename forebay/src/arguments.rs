//! Command line: verbs and their options.
//!
//! Values are parsed here into what they mean, so that a wrong mode, a wrong size or a malformed
//! device is a usage error (exit status 2) before anything is opened.

pub mod access;
pub mod attach;
#[cfg(test)]
mod documented;
pub mod duel;
pub mod look;
pub mod salvage;
pub mod scrub;
pub mod studies;
pub mod succession;
pub mod traces;
pub mod warm;
pub mod watch;

use crate::metrics::MetricsAddress;
use crate::profile;
use crate::setting::Setting;
use crate::web::WebAddress;
use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::effect::WriteMode;
use live::devices::{self, DeviceSpec};
use live::server::{DEVICE_TIMEOUT_DEFAULT, ListenAddress, REACTORS_MAX};
use std::path::PathBuf;
use std::time::Duration;

/// An SSD cache for block devices that runs as an ordinary program.
///
/// Devices are named by path or URI: /dev/sdb, file:/x.img, model:hdd?store=/x.img&size=8G.
/// Sizes take K, M, G or T.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, disable_help_subcommand = true)]
pub struct Arguments {
    /// The verb.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs of the program.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Format a cache device for an origin; nothing is written to the origin.
    Create(Create),
    /// Put one more volume on a cache, whether it is running or not.
    Add(Add),
    /// Recover a cache and serve its volumes until SIGTERM.
    Serve(Serve),
    /// Make a block device of a volume that a daemon serves: /dev/forebay/VOLUME.
    Attach(attach::Attach),
    /// Take the block device of a volume away, unless somebody uses it.
    Unattach(attach::Unattach),
    /// Show how a cache and its volumes are doing.
    Status(look::Status),
    /// Show what a running cache has done: requests, hits, bytes, latencies.
    Stats(Look),
    /// Watch a running cache in the terminal: rates, hits, latencies, dirty data, destage.
    Top(Top),
    /// Say what size and what modes the load of a running cache wants, and what wears its SSD.
    Advise(watch::Advise),
    /// Write down what clients of a running cache ask for: a trace, without any content.
    Record(watch::Record),
    /// Change a volume or a cache: mode, size, limits, shares, hours.
    Set(Set),
    /// Fill the cache with what will be read: a warm list, what a trace touches, or a range.
    Warm(Box<warm::Warm>),
    /// Bring all dirty data home to the origin.
    Flush(Flush),
    /// Compare all that is cached with its checksums, drop what rotted and is clean, and name what is lost.
    Scrub(scrub::Scrub),
    /// Bring all dirty data home and take the volume off the cache.
    Detach(Detach),
    /// Put another device in the place of a cache, while clients work.
    Replace(succession::Replace),
    /// Give a cache another size, while clients work.
    Resize(succession::Resize),
    /// Verify every header, summary, checksum and record of a cache that is not running.
    Check(Check),
    /// Bring home, or into files, what can be read of the dirty data of a cache that cannot be started.
    Salvage(salvage::Salvage),
    /// Print superblock, segments and entries, or records of slots, of a cache that is not running.
    Dump(Dump),
    /// List the built-in profiles.
    Profiles(Report),
    /// List the built-in modelled disks.
    Models(Report),
    /// List the built-in studies: published measurements of caches.
    Studies(Report),
    /// The simulator: the same engine in virtual time.
    #[command(subcommand)]
    Lab(Box<LabVerb>),
    /// Look after configuration files.
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Print the script that completes verbs and options in a shell.
    Completions(Completions),
    /// Write the manual pages: one for the program, and one for each verb.
    Man(Man),
}

/// The verbs of configuration files.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Say what is wrong with configuration files, by file and line.
    Check(ConfigCheck),
}

/// `config check`.
#[derive(Debug, Args)]
pub struct ConfigCheck {
    /// The files, or directories with them [default: all .toml in FOREBAY_CONFIG_DIR, or /etc/forebay].
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// `completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Completions {
    /// The shell that reads the script.
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// A shell that completes command lines by a script.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// As /usr/share/bash-completion/completions/forebay.
    Bash,
    /// As /usr/share/zsh/vendor-completions/_forebay.
    Zsh,
    /// As /usr/share/fish/vendor_completions.d/forebay.fish.
    Fish,
}

/// `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// The directory that gets the pages; it is made if there is none.
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

/// The verbs of the simulator.
#[derive(Debug, Subcommand)]
pub enum LabVerb {
    /// Power cuts and faults, drawn from a seed, against an oracle that knows what may be read.
    Verify(LabVerify),
    /// How many requests the simulator carries out in a second, on one core.
    Bench(LabBench),
    /// Replay a trace on modelled disks: hits, latencies, bytes, and what waits to be written home.
    Trace(traces::LabTrace),
    /// All profiles over traces and sizes of the cache, and whether one of them is the best in each.
    Duel(duel::LabDuel),
    /// How much cache, and which replacement policy, a trace is worth.
    Advise(traces::LabAdvise),
    /// Run published studies again: published and simulated figures side by side.
    Study(studies::LabStudy),
    /// The best published system, the best simulated one, ours, and an ideal cache, for each test of the studies.
    League(studies::LabLeague),
    /// Modelled disks beside the native figures of the studies that they were fitted to, measured again.
    Fit(LabFit),
}

/// `lab fit`.
#[derive(Debug, Args)]
pub struct LabFit {
    /// A modelled disk; may be repeated [default: all that are fitted].
    #[arg(value_name = "MODEL")]
    pub models: Vec<String>,
    /// Search for numbers that come nearer to the figures, and print them.
    #[arg(long, conflicts_with_all = ["csv", "json"], requires = "models")]
    pub search: bool,
    /// Print the table that the program has built in.
    #[arg(long, conflicts_with_all = ["models", "json"])]
    pub csv: bool,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// `lab bench`.
#[derive(Debug, Args)]
pub struct LabBench {
    /// How long each row is measured.
    #[arg(long, value_name = "N", default_value = "2", value_parser = seconds)]
    pub seconds: Duration,
    /// Measure what strict order costs instead: writes and flushes on modelled disks, in virtual time.
    #[arg(long)]
    pub order: bool,
    /// Measure recovery instead: a killed cache on a modelled NVMe is opened again, new, full of what was read, and
    /// with writes that no client has flushed. The time of the processor is this machine's.
    #[arg(long, conflicts_with = "order")]
    pub recovery: bool,
    /// With --recovery: a profile, or a file of one's own; may be repeated [default: ours and the six systems].
    #[arg(long, value_name = "PROFILE", requires = "recovery", value_parser = profile::parse_wanted)]
    pub profile: Vec<profile::Wanted>,
    /// With --recovery: a size of the cache device; may be repeated [default: 1G and 16G, ours 128G, too].
    #[arg(long, value_name = "SIZE", requires = "recovery", value_parser = devices::parse_size)]
    pub cache_size: Vec<u64>,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// `lab verify`.
#[derive(Debug, Args)]
pub struct LabVerify {
    /// The first run's seed; the others count on from there [default: another one each time].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// How many runs; each has several power cuts.
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,
    /// The profile.
    #[arg(long, value_name = "PROFILE", default_value = profile::DEFAULT, value_parser = profile::parse_name)]
    pub profile: &'static str,
    /// As the published system, on the devices that it needs, with what it promises.
    #[arg(long = "unsafe")]
    pub is_unsafe: bool,
    /// Each run with a profile that its seed draws, and with more troubles at once: servers of origins that die, failing
    /// devices, an operator's jobs.
    #[arg(long, conflicts_with_all = ["profile", "is_unsafe"])]
    pub mixed: bool,
    /// Runs at the same time [default: the number of cores].
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroU16>,
    /// Change what the seed draws, as a report of a violation says.
    #[arg(long, value_name = "NAME=NUMBER ...", value_parser = run_options)]
    pub options: Option<String>,
    /// Print every event of every run.
    #[arg(long)]
    pub events: bool,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// How to print.
#[derive(Debug, Args)]
pub struct Report {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Where the daemon and the verbs meet, and where notes are kept.
#[derive(Debug, Args)]
pub struct Places {
    /// Where the notes on each cache are kept that must outlive it [default: FOREBAY_STATE_DIR, or
    /// /var/lib/forebay as root, otherwise ~/.local/state/forebay].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// `create`.
#[derive(Debug, Args)]
pub struct Create {
    /// The slow device whose content the clients see. It is only read.
    #[arg(long, value_name = "DEV", value_parser = devices::parse)]
    pub origin: DeviceSpec,
    /// The fast device. It is formatted.
    #[arg(long, value_name = "DEV", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// A second fast device, for a mirrored cache: both have what is dirty, and either may fail. It is formatted, too.
    #[arg(long, value_name = "DEV", value_parser = devices::parse, conflicts_with = "ephemeral")]
    pub mirror: Option<DeviceSpec>,
    /// The volume's name [default: from the origin's file name].
    #[arg(long, value_name = "NAME", value_parser = volume_name)]
    pub name: Option<String>,
    /// The profile: a built-in one, or a file whose name ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = profile::DEFAULT, value_parser = profile::parse_wanted)]
    pub profile: profile::Wanted,
    /// The write mode [default: the profile's].
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<WriteMode>,
    /// The order in which dirty data goes home [default: the profile's]: strict keeps the origin a state that its clients had
    /// flushed, for when the cache is lost.
    #[arg(long, value_name = "ORDER", value_parser = ["free", "strict"])]
    pub order: Option<String>,
    /// Promise only what the published system promises; `forebay profiles` tells what that gives up.
    #[arg(long = "unsafe")]
    pub is_unsafe: bool,
    /// The cache device may be blank at any start, as an instance store of a cloud is, and is formatted anew then. No volume
    /// can be in writeback.
    #[arg(long, conflicts_with = "is_unsafe")]
    pub ephemeral: bool,
    /// Format a device although it holds something: repeat its name here; once for each.
    #[arg(long, value_name = "DEV", value_parser = devices::parse)]
    pub wipe: Vec<DeviceSpec>,
    /// Use the origin although another cache has it, which is given up then, or it is a cache itself: repeat its name here.
    #[arg(long, value_name = "DEV", value_parser = devices::parse)]
    pub take_over: Option<DeviceSpec>,
    /// Reserve no space for a cache that is a file. When its file system is full, the cache fails.
    #[arg(long)]
    pub sparse: bool,
    /// Try the cache device for so long before it is formatted, and say what it is good for; 0: not at all. It is written once at
    /// the most, and the origin is read for a tenth of that time [default: 30 for a block device, 0 for anything else].
    #[arg(long, value_name = "SECONDS")]
    pub trial_seconds: Option<u32>,
    /// Where notes are kept.
    #[command(flatten)]
    pub places: Places,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// `add`.
#[derive(Debug, Args)]
pub struct Add {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// The slow device of the new volume. It is only read.
    #[arg(long, value_name = "DEV", value_parser = devices::parse)]
    pub origin: DeviceSpec,
    /// The new volume's name.
    #[arg(long, value_name = "NAME", value_parser = volume_name)]
    pub name: String,
    /// The write mode [default: that of the cache's profile].
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<WriteMode>,
    /// Use the origin although another cache has it, which is given up then, or it is a cache itself: repeat its name here.
    #[arg(long, value_name = "DEV", value_parser = devices::parse)]
    pub take_over: Option<DeviceSpec>,
    /// Where notes are kept.
    #[command(flatten)]
    pub places: Places,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// How a cache is run.
#[derive(Clone, Debug, Args)]
pub struct RunOptions {
    /// Use DEV as the origin (of volume NAME) instead of the one given to create. It must be the same disk.
    #[arg(long, value_name = "[NAME=]DEV", value_parser = origin_override)]
    pub origin: Vec<OriginOverride>,
    /// Memory for buffers and the index of cached blocks [default: 120M and what the cache needs].
    #[arg(long, value_name = "SIZE", value_parser = devices::parse_size)]
    pub memory: Option<u64>,
    /// A device that does not answer for this many seconds counts as gone until the next start; an NBD server, until it
    /// answers again.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub device_timeout: Duration,
    /// With one device of a mirrored cache alone, stay in writeback: if that one fails too, what is dirty is lost.
    #[arg(long)]
    pub lone_writeback: bool,
    /// The other device of a mirrored cache, as an option of `serve` names it.
    #[arg(skip)]
    pub mirror: Option<DeviceSpec>,
    /// The volumes that the configuration file of `serve` names: those that are not there are added.
    #[arg(skip)]
    pub configured: Vec<String>,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            origin: Vec::new(),
            memory: None,
            device_timeout: DEVICE_TIMEOUT_DEFAULT,
            lone_writeback: false,
            mirror: None,
            configured: Vec::new(),
        }
    }
}

/// `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse, required_unless_present = "config")]
    pub cache: Option<DeviceSpec>,
    /// Read FILE for the cache and all options that are not given here: forebay.toml(5).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where NBD clients connect; may be given several times [default: a unix socket in the run directory].
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    pub nbd: Vec<ListenAddress>,
    /// Permissions of unix sockets for NBD clients, octal, whatever the umask.
    #[arg(long, value_name = "OCTAL", default_value = "0600", value_parser = permissions)]
    pub nbd_mode: u32,
    /// The profile that the cache must have been created with.
    #[arg(long, value_name = "PROFILE", value_parser = profile::parse_wanted)]
    pub profile: Option<profile::Wanted>,
    /// The other device of a mirrored cache, if it is not where it was; also if CACHE is gone [default: as the cache knows it].
    #[arg(long, value_name = "DEV", value_parser = devices::parse)]
    pub mirror: Option<DeviceSpec>,
    /// The cache is missing: serve the volumes that cannot have dirty data by their origins alone.
    #[arg(long)]
    pub uncached: bool,
    /// Wait so long for the cache, its other half and the origins, if they are missing: at boot a disk may be found late.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub wait_for_devices: Option<Duration>,
    /// Make a block device of each volume, too: /dev/forebay/VOLUME.
    #[arg(long, conflicts_with = "uncached")]
    pub attach: bool,
    /// Door, connections and patience of the devices.
    #[command(flatten)]
    pub connection: attach::Connection,
    /// Threads that serve clients, 1 to 16; a client stays with one of them [default: 2, or 1 on one processor].
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Who may connect.
    #[command(flatten)]
    pub access: access::Access,
    /// How it is watched.
    #[command(flatten)]
    pub watching: Watching,
    /// Its warm list.
    #[command(flatten)]
    pub warming: warm::Warming,
    /// How it is run.
    #[command(flatten)]
    pub running: RunOptions,
    /// Where notes are kept.
    #[command(flatten)]
    pub places: Places,
}

/// How a daemon is watched.
#[derive(Clone, Debug, Default, Args)]
pub struct Watching {
    /// Serve metrics for Prometheus at http://HOST:PORT/metrics, or at a unix socket.
    #[arg(long, value_name = "HOST:PORT|unix:PATH")]
    pub metrics: Option<MetricsAddress>,
    /// Permissions of a unix socket for metrics, octal, whatever the umask [default: 0600].
    #[arg(long, value_name = "OCTAL", value_parser = permissions, requires = "metrics")]
    pub metrics_mode: Option<u32>,
    /// Serve metrics at an address that other machines reach: there is no password, and no encryption.
    #[arg(long, requires = "metrics")]
    pub metrics_remote: bool,
    /// Serve a page with plots for browsers of this machine, at http://127.0.0.1:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    pub web: Option<WebAddress>,
    /// Bytes that the cache device may be written in its life, as its maker rates it (600T for 600 TBW).
    #[arg(long, value_name = "SIZE", value_parser = endurance)]
    pub endurance: Option<u64>,
    /// Bytes that the cache device may be written in a day, unless forebay set says otherwise (200G).
    #[arg(long, value_name = "SIZE", value_parser = wear_budget)]
    pub wear_budget: Option<u64>,
    /// Compare all that is cached with its checksums once in so many days, unless forebay set says otherwise.
    #[arg(long, value_name = "DAYS", value_parser = scrub::days)]
    pub scrub_days: Option<u16>,
}

/// `status` and `stats`.
#[derive(Debug, Args)]
pub struct Look {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// Only this volume.
    #[arg(value_name = "VOLUME")]
    pub volume: Option<String>,
    /// Where notes are.
    #[command(flatten)]
    pub places: Places,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// Seconds from one look to the next.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
}

/// `set`.
#[derive(Debug, Args)]
pub struct Set {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// The volume (may be left out if there is only one) and what to set: mode=MODE, order=strict|free,
    /// size=origin, origin=changed, origin=changed-discard-dirty, lost=give-up;
    /// limits: iops=N[,burst=N], bandwidth=SIZE[,burst=SIZE]; hours: destage-hours=HH:MM-HH:MM,
    /// flush-at=HH:MM; room: cache-min=N%|SIZE, cache-max=N%|SIZE; each of these may be none, and so
    /// may wear-budget=SIZE and scrub-days=N, which are of the whole cache.
    #[arg(value_name = "[VOLUME] KEY=VALUE", required = true, value_parser = word)]
    pub words: Vec<Word>,
    /// Use DEV as the origin with origin=changed.
    #[arg(long, value_name = "DEV", value_parser = devices::parse)]
    pub origin: Option<DeviceSpec>,
    /// Where notes are kept.
    #[command(flatten)]
    pub places: Places,
}

/// `flush`.
#[derive(Debug, Args)]
pub struct Flush {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// Only this volume.
    #[arg(value_name = "VOLUME")]
    pub volume: Option<String>,
    /// Show the progress on stderr even if that is no terminal.
    #[arg(long)]
    pub progress: bool,
    /// How it is run, if it is not running yet.
    #[command(flatten)]
    pub running: RunOptions,
    /// Where notes are kept.
    #[command(flatten)]
    pub places: Places,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// `detach`.
#[derive(Debug, Args)]
pub struct Detach {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// The volume; may be left out if there is only one.
    #[arg(value_name = "VOLUME")]
    pub volume: Option<String>,
    /// Compare all that the cache holds with the origin before the volume is taken off.
    #[arg(long)]
    pub verify: bool,
    /// Show the progress on stderr even if that is no terminal.
    #[arg(long)]
    pub progress: bool,
    /// How it is run, if it is not running yet.
    #[command(flatten)]
    pub running: RunOptions,
    /// Where notes are kept.
    #[command(flatten)]
    pub places: Places,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// Cut the log where it is broken, take damaged records of slots back, give up what a killed daemon kept in a file that is
    /// gone, and say what that loses; the status is 3 if that is anything.
    #[arg(long)]
    pub repair: bool,
    /// Where notes are.
    #[command(flatten)]
    pub places: Places,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// `dump`.
#[derive(Debug, Args)]
pub struct Dump {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// Only this segment, with its entries.
    #[arg(long, value_name = "N")]
    pub segment: Option<u32>,
    /// All entries of the log, or all records of slots.
    #[arg(long)]
    pub entries: bool,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// An origin that replaces the one on record.
#[derive(Clone, Debug)]
pub struct OriginOverride {
    /// The volume; `None` if there is only one.
    pub volume: Option<String>,
    /// Where its origin is now.
    pub device: DeviceSpec,
}

/// A word of `set`: the volume's name, or a setting.
#[derive(Clone, Debug)]
pub enum Word {
    /// The volume.
    Volume(String),
    /// A setting.
    Setting(Setting),
}

/// Bytes that a job reads in a second at the least.
const RATE_BYTES_MIN: u64 = 64 << 10;
/// The least endurance: no device is rated for less.
const ENDURANCE_BYTES_MIN: u64 = 1 << 30;
/// The least limit of a recording: a part of it that is compressed may have more than this.
const RECORDING_BYTES_MIN: u64 = 64 << 10;
/// The largest cache.
const CACHE_BYTES_MAX: u64 = 2 << 40;

/// Reason why a word of the command line has no meaning.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// No such mode.
    #[error("unknown mode; there are {known}", known = mode_names())]
    Mode,
    /// A name that cannot be an export's.
    #[error("a volume's name has 1 to 64 letters, digits, '-', '_' or '.'")]
    VolumeName,
    /// No such modelled disk.
    #[error("unknown disk; there are {known}", known = models::catalogue::names().collect::<Vec<_>>().join(", "))]
    Model,
    /// No such format of traces.
    #[error("unknown format; there are {known}", known = lab::trace::Format::ALL.map(|(_, name)| name).join(", "))]
    TraceFormat,
    /// Not the permissions of a file.
    #[error("give the permissions in octal, 0 to 0777, for example 0660")]
    Permissions,
    /// Too little memory of a client.
    #[error("give 256K or more, with a suffix, for example 1M")]
    ClientMemory,
    /// Not a number of seconds.
    #[error("give whole seconds, 1 or more")]
    Seconds,
    /// So few bytes in a second that nothing would come of it.
    #[error("give {} KiB a second or more, with a suffix, for example 16M", RATE_BYTES_MIN >> 10)]
    Rate,
    /// A size that no cache has.
    #[error("give a size of up to {} TiB, with a suffix, for example 64M", CACHE_BYTES_MAX >> 40)]
    CacheSize,
    /// Not a rated endurance.
    #[error("give the bytes that the device is rated for, 1G or more, for example 600T")]
    Endurance,
    /// A recording that could hold nothing.
    #[error("give {} KiB or more, with a suffix, for example 1G", RECORDING_BYTES_MIN >> 10)]
    RecordingLimit,
    /// Not a wear budget.
    #[error(
        "give the bytes of a day, 1M or more, for example 200G; without the flag there is no wear budget"
    )]
    WearBudget,
    /// Not a number of days.
    #[error("give 1 to 365 days, for example 30; without the flag nothing is scrubbed by itself")]
    ScrubDays,
    /// Not a number of threads.
    #[error("give 1 to {REACTORS_MAX} threads")]
    Threads,
}

fn mode_names() -> String {
    WriteMode::ALL.map(|(_, name)| name).join(", ")
}

pub(crate) fn mode(text: &str) -> Result<WriteMode, ValueError> {
    WriteMode::parse(text).ok_or(ValueError::Mode)
}

pub(crate) fn is_volume_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.')
}

pub(crate) fn volume_name(text: &str) -> Result<String, ValueError> {
    // It names files and links, too.
    let is_place = matches!(text, "." | "..");
    let is_good = (1..=64).contains(&text.len()) && text.chars().all(is_volume_character) && !is_place;
    if is_good { Ok(text.to_owned()) } else { Err(ValueError::VolumeName) }
}

fn run_options(text: &str) -> Result<String, lab::swarm::UnknownKnob> {
    lab::swarm::Options::draw(0).change(text).map(|()| text.to_owned())
}

/// Bytes in a second that a job reads; with fewer, one step of it would take seconds.
fn rate(text: &str) -> Result<u64, ValueError> {
    devices::parse_size(text).ok().filter(|bytes| *bytes >= RATE_BYTES_MIN).ok_or(ValueError::Rate)
}

/// The size of a modelled cache.
fn cache_size(text: &str) -> Result<u64, ValueError> {
    let bytes = devices::parse_size(text).ok();
    bytes.filter(|bytes| (1..=CACHE_BYTES_MAX).contains(bytes)).ok_or(ValueError::CacheSize)
}

fn seconds(text: &str) -> Result<Duration, ValueError> {
    let seconds: u32 = text.parse().map_err(|_| ValueError::Seconds)?;
    if seconds == 0 { Err(ValueError::Seconds) } else { Ok(Duration::from_secs(seconds.into())) }
}

fn permissions(text: &str) -> Result<u32, ValueError> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777).ok_or(ValueError::Permissions)
}

fn threads(text: &str) -> Result<usize, ValueError> {
    text.parse().ok().filter(|threads| (1..=REACTORS_MAX).contains(threads)).ok_or(ValueError::Threads)
}

/// `NAME=DEV` or `DEV`. A URI's own `=` comes after its `:` or `/`, which no name has.
fn origin_override(text: &str) -> Result<OriginOverride, devices::DeviceSpecError> {
    match text.split_once('=') {
        Some((name, device)) if !name.is_empty() && name.chars().all(is_volume_character) => {
            Ok(OriginOverride { volume: Some(name.to_owned()), device: devices::parse(device)? })
        }
        _ => Ok(OriginOverride { volume: None, device: devices::parse(text)? }),
    }
}

fn endurance(text: &str) -> Result<u64, ValueError> {
    devices::parse_size(text).ok().filter(|bytes| *bytes >= ENDURANCE_BYTES_MIN).ok_or(ValueError::Endurance)
}

fn recording_limit(text: &str) -> Result<u64, ValueError> {
    let bytes = devices::parse_size(text).ok().filter(|bytes| *bytes >= RECORDING_BYTES_MIN);
    bytes.ok_or(ValueError::RecordingLimit)
}

fn wear_budget(text: &str) -> Result<u64, ValueError> {
    crate::setting::budget(text).ok().flatten().ok_or(ValueError::WearBudget)
}

fn word(text: &str) -> Result<Word, crate::setting::SettingError> {
    if text.contains('=') { text.parse().map(Word::Setting) } else { Ok(Word::Volume(text.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_origin_may_carry_a_volume_name() {
        let named = origin_override("disk=/dev/sdb").expect("a name and a path");
        assert_eq!(named.volume.as_deref(), Some("disk"));
        let bare = origin_override("model:hdd?store=/x.img&size=8G").expect("a URI alone");
        assert_eq!(bare.volume, None);
    }

    #[test]
    fn names_that_no_export_can_have_are_refused() {
        assert!(volume_name("").is_err());
        assert!(volume_name("a b").is_err());
        assert!(volume_name(&"x".repeat(65)).is_err());
        assert!(volume_name("sdb-1.img").is_ok());
    }
}
