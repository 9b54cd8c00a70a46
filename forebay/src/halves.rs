//! The device of a cache, or the two halves of a mirrored one: found, locked, and joined to one image.
//!
//! All that reads or writes a cache that does not run goes through [`CacheImage`]: no verb changes one half without the other.
//!
//! A half says the names of both. Of several devices that say something the newest counts, and leads to the other one: a half
//! that was replaced is still there, perhaps, and names devices of former days. Where the named device is gone, or blank, the
//! notes in the state directory know the names.

use crate::control::Connection;
use crate::lasting;
use crate::log::notice;
use crate::opening;
use crate::ownership::is_same;
use crate::startup::index_bytes;
use crate::state::StateDirectory;
use crate::superblock;
use anyhow::{Result, anyhow, bail};
use engine::format::{PairPage, Superblock};
use engine::mutation::Mutations;
use engine::pair::{Half, JoinError, Pair, Standing, page_of};
use engine::recovery::{self, Options, load_superblock};
use live::devices::{self, Access, BlockingDevice, Device, DeviceError, DeviceSpec};

/// A cache as one device, whether it is mirrored or not.
pub type CacheImage = Pair<BlockingDevice>;

/// The devices of a cache.
#[derive(Clone, Debug)]
pub struct Halves {
    /// Those that count, the first half first; of a cache that is not mirrored the first alone.
    pub devices: [Option<Device>; 2],
    /// The names of both halves; `None` if the cache is not mirrored.
    pub names: Option<[String; 2]>,
}

/// A cache that was found.
pub struct Found {
    /// Its devices.
    pub halves: Halves,
    /// Both as one.
    pub image: CacheImage,
    /// A line for each half that does not count, for the operator.
    pub remarks: Vec<String>,
}

impl Halves {
    /// A cache on one device.
    #[must_use]
    pub fn single(device: &Device) -> Halves {
        Halves { devices: [Some(device.clone()), None], names: None }
    }

    /// The device of a cache that is not mirrored.
    #[must_use]
    pub fn only(&self) -> Option<&Device> {
        self.devices[0].as_ref().filter(|_| self.names.is_none())
    }

    /// All names under which the cache is known: that of `named`, and those of its halves.
    #[must_use]
    pub fn all_names(&self, named: &DeviceSpec) -> Vec<DeviceSpec> {
        let mut all = vec![named.clone()];
        for name in self.names.iter().flatten().filter_map(|name| devices::parse(name).ok()) {
            if all.iter().all(|known| known.canonical() != name.canonical()) {
                all.push(name);
            }
        }
        all
    }
}

impl Found {
    fn tell(&self) {
        for remark in &self.remarks {
            notice(format_args!("{remark}"));
        }
    }

    /// The device of a cache that is not mirrored.
    ///
    /// # Errors
    /// If it is mirrored.
    pub fn plain(self, spec: &DeviceSpec) -> Result<Device> {
        match self.halves.devices {
            [Some(device), None] if self.halves.names.is_none() => Ok(device),
            _ => bail!("the cache {spec} is mirrored: it has two devices, and this works on one"),
        }
    }
}

/// Opens a cache that a daemon does not serve, and says of halves that do not count.
///
/// # Errors
/// The error of a device, with advice; or why the halves cannot be one cache.
pub fn open(spec: &DeviceSpec, access: Access) -> Result<Found> {
    open_by_notes(spec, access, StateDirectory::find(None).ok().as_ref())
}

/// The same with the notes of that directory.
///
/// # Errors
/// As [`open`].
pub fn open_by_notes(spec: &DeviceSpec, access: Access, state: Option<&StateDirectory>) -> Result<Found> {
    find(spec, None, access, state).inspect(Found::tell)
}

/// The same for who only looks at what is left of a damaged cache: of a mirrored one a device will do that cannot tell
/// whether it has everything.
///
/// # Errors
/// As [`open`].
pub fn open_damaged(spec: &DeviceSpec) -> Result<Found> {
    let search = Search { takes_without_page: true, ..Search::new(Access::ReadOnlyExclusive) };
    search.find(spec, None, StateDirectory::find(None).ok().as_ref()).inspect(Found::tell)
}

/// Finds the devices of the cache `spec`, of which the other half may be named by `mirror`.
///
/// # Errors
/// As [`open`].
pub fn find(
    spec: &DeviceSpec,
    mirror: Option<&DeviceSpec>,
    access: Access,
    state: Option<&StateDirectory>,
) -> Result<Found> {
    Search::new(access).find(spec, mirror, state)
}

/// Whether a half of the cache `spec` can be opened that is not that device.
///
/// # Errors
/// If the notes cannot be read.
pub fn has_other_half(
    spec: &DeviceSpec,
    mirror: Option<&DeviceSpec>,
    state: &StateDirectory,
) -> Result<bool> {
    let mut search = Search::new(Access::ReadOnly);
    for name in mirror.cloned().into_iter().chain(noted_halves(spec, state)?) {
        if !is_same(&name, spec) && search.open(&name).is_err() {
            // The start itself reports the error.
            return Ok(true);
        }
    }
    Ok(search.newest().is_some())
}

/// Changes the superblock of a cache that is not served.
///
/// # Errors
/// If it cannot be read or written: the change may have been made or not.
pub fn store(image: &mut CacheImage, superblock: &mut Superblock, spec: &DeviceSpec) -> Result<()> {
    if image.is_mirrored() {
        // RULE 20: the first write makes both halves the same, as the one says that a start would take.
        let index_budget_bytes = index_bytes(superblock, true);
        let options = Options { index_budget_bytes, repair: false, mutations: Mutations::NONE };
        let opened =
            recovery::inspect(image, options).map_err(|error| superblock::not_recovered(&error, spec))?;
        recovery::settle(image, &opened)
            .map_err(|errno| anyhow!("the devices of {spec} cannot be made the same (errno {})", errno.0))?;
    }
    superblock::store(image, superblock)
}

/// The names of both halves by the notes on the cache that was served under that name.
fn noted_halves(spec: &DeviceSpec, state: &StateDirectory) -> Result<Vec<DeviceSpec>> {
    let record = state.find_by_device(spec)?;
    let names = record.and_then(|record| record.halves).into_iter().flatten();
    Ok(names.filter_map(|name| devices::parse(&name).ok()).collect())
}

/// A device that was opened.
struct One {
    device: Device,
    /// Whether it holds the superblock of a cache, and its page if that is mirrored.
    is_cache: bool,
    /// Whether it is a half without its page.
    is_page_lost: bool,
    /// Its page, if it is a half.
    page: Option<PairPage>,
}

/// A search for the devices of a cache.
struct Search {
    access: Access,
    /// A half that has lost its page will do.
    takes_without_page: bool,
    found: Vec<One>,
    /// The names that were tried, with why there is no device.
    tried: Vec<(DeviceSpec, Option<DeviceError>)>,
}

impl Search {
    fn new(access: Access) -> Search {
        Search { access, takes_without_page: false, found: Vec::new(), tried: Vec::new() }
    }

    fn find(
        mut self,
        spec: &DeviceSpec,
        mirror: Option<&DeviceSpec>,
        state: Option<&StateDirectory>,
    ) -> Result<Found> {
        if Connection::open(spec)?.is_some() {
            bail!("the cache {spec} is in use: a daemon serves it; stop the daemon first");
        }
        self.open(spec).map_err(|error| unusable(&error))?;
        if let Some(mirror) = mirror {
            if is_same(spec, mirror) {
                bail!("the cache and its other half are both {spec}; they are two devices");
            }
            self.open(mirror).map_err(|error| unusable(&error))?;
            if !self.found.iter().any(|one| one.page.is_some()) && self.found.iter().any(|one| one.is_cache) {
                bail!("the cache {spec} is not mirrored; leave --mirror out");
            }
        } else {
            self.ask_notes(spec, state)?;
            // The second one may know of a newer one.
            self.follow_pages()?;
            self.follow_pages()?;
        }
        self.join(spec)
    }

    /// Opens a device, unless it is merely missing.
    fn open(&mut self, spec: &DeviceSpec) -> Result<(), DeviceError> {
        let device = match opening::open(spec, self.access) {
            Ok(device) => device,
            Err(error) => {
                let is_absent = matches!(
                    error,
                    DeviceError::Missing { .. } | DeviceError::Empty { .. } | DeviceError::Os { .. }
                );
                self.tried.push((spec.clone(), Some(error.clone())));
                return if is_absent { Ok(()) } else { Err(error) };
            }
        };
        self.tried.push((spec.clone(), None));
        let mut image = BlockingDevice::new(&device);
        let superblock = load_superblock(&mut image).ok().map(|(superblock, _)| superblock);
        // A page that an earlier cache left says nothing.
        let page = superblock
            .as_ref()
            .and_then(|superblock| page_of(&mut image).filter(|page| page.set_id == superblock.set_id));
        let is_page_lost = page.is_none() && superblock.as_ref().is_some_and(|found| found.is_mirrored);
        self.found.push(One { device, is_cache: superblock.is_some() && !is_page_lost, is_page_lost, page });
        Ok(())
    }

    fn newest(&self) -> Option<&PairPage> {
        self.found.iter().filter_map(|one| one.page.as_ref()).max_by_key(|page| page.update)
    }

    fn is_tried(&self, spec: &DeviceSpec) -> bool {
        self.tried.iter().any(|(tried, _)| is_same(tried, spec))
    }

    /// Opens the devices that the notes know of, if the one that was named is no cache.
    fn ask_notes(&mut self, spec: &DeviceSpec, state: Option<&StateDirectory>) -> Result<()> {
        let Some(state) = state.filter(|_| !self.found.iter().any(|one| one.is_cache)) else { return Ok(()) };
        for name in noted_halves(spec, state)? {
            if !self.is_tried(&name) {
                self.open(&name).map_err(|error| unusable(&error))?;
            }
        }
        Ok(())
    }

    /// Opens the devices that the newest page names.
    fn follow_pages(&mut self) -> Result<()> {
        let Some(page) = self.newest() else { return Ok(()) };
        let (names, is_other_out) = (page.names.clone(), page.is_other_out);
        for name in names.iter().filter_map(|name| devices::parse(name).ok()) {
            if self.is_tried(&name) {
                continue;
            }
            match self.open(&name) {
                // A half that does not count may have become something else.
                Err(error) if !is_other_out => return Err(unusable(&error)),
                _ => (),
            }
        }
        Ok(())
    }

    fn join(mut self, spec: &DeviceSpec) -> Result<Found> {
        let Some(newest) = self.newest() else { return self.alone(spec) };
        let (set_id, names) = (newest.set_id, newest.names.clone());
        let without_page: Vec<DeviceSpec> =
            self.found.iter().filter(|one| one.is_page_lost).map(|one| one.device.spec().clone()).collect();
        let mut devices: [Option<(u64, Device)>; 2] = [None, None];
        for One { device, page, .. } in self.found.drain(..) {
            let Some(page) = page.filter(|page| page.set_id == set_id) else { continue };
            let place = &mut devices[usize::from(page.half)];
            if place.as_ref().is_none_or(|(update, _)| *update < page.update) {
                *place = Some((page.update, device));
            }
        }
        let mut devices = devices.map(|found| found.map(|(_, device)| device));
        let image = Pair::join(devices.each_ref().map(|device| device.as_ref().map(BlockingDevice::new)))
            .map_err(|error| not_joined(error, spec, &names))?;
        let standings = image.standings();
        let mut remarks = Vec::new();
        for half in Half::BOTH {
            let (standing, device) = (standings[half.at()], &mut devices[half.at()]);
            if standing != Standing::In {
                let (name, other) = (&names[half.at()], &names[half.other().at()]);
                let why = self.why_not(name, device.as_ref(), standing, &without_page);
                remarks.push(format!(
                    "the mirrored cache {spec} goes on with {other} alone: {why}; once it is served: forebay replace {spec} \
                     --mirror DEV, with that device or another one"
                ));
                // Whoever wants may have it.
                *device = None;
            }
        }
        Ok(Found { halves: Halves { devices, names: Some(names) }, image, remarks })
    }

    /// Why a half does not count, where these devices have lost their pages.
    fn why_not(
        &self,
        name: &str,
        device: Option<&Device>,
        standing: Standing,
        without_page: &[DeviceSpec],
    ) -> String {
        match (device, standing) {
            (Some(_), Standing::Behind) => format!("{name} was not brought up to date"),
            (Some(_), _) => format!("{name} failed, or was missing, since it was up to date"),
            (None, _) => {
                let is_it = |tried: &DeviceSpec| devices::parse(name).is_ok_and(|name| is_same(tried, &name));
                if without_page.iter().any(is_it) {
                    return format!("both copies of the page of {name} are damaged");
                }
                let tried = self.tried.iter().find(|(tried, _)| is_it(tried));
                match tried.and_then(|(_, error)| error.as_ref()) {
                    Some(error) => error.to_string(),
                    None => format!("{name} is no half of it"),
                }
            }
        }
    }

    /// A cache that is not mirrored.
    fn alone(mut self, spec: &DeviceSpec) -> Result<Found> {
        if self.found.is_empty() {
            let error = self.tried.swap_remove(0).1;
            return Err(
                error.map_or_else(|| anyhow!("the cache {spec} cannot be used"), |error| unusable(&error))
            );
        }
        let One { device, is_page_lost, .. } = self.found.swap_remove(0);
        let mut remarks = Vec::new();
        if is_page_lost {
            // RULE 20: it may have been out, and lack what was written since.
            let lost = format!(
                "{spec} is one of the two devices of a mirrored cache, and both copies of the page that says whether it has \
                 everything are damaged"
            );
            if !self.takes_without_page {
                bail!("{lost}; connect the other one, or see forebay salvage");
            }
            remarks.push(lost);
        }
        let mut image = BlockingDevice::new(&device);
        if let Ok((superblock, _)) = load_superblock(&mut image) {
            image = lasting::with_left(image, &superblock)?;
        }
        let image = Pair::alone(image);
        Ok(Found { halves: Halves::single(&device), image, remarks })
    }
}

/// Why a device of a cache cannot be used, with advice.
fn unusable(error: &DeviceError) -> anyhow::Error {
    let advice = match error {
        DeviceError::Locked { .. } => "; ask its daemon as the user who runs it, or stop that",
        DeviceError::Missing { .. } => "; connect it, or name it as it was given to create",
        _ => "",
    };
    anyhow!("the cache cannot be used: {error}{advice}")
}

/// Why halves cannot be one cache, with advice.
fn not_joined(error: JoinError, spec: &DeviceSpec, [first, second]: &[String; 2]) -> anyhow::Error {
    match error {
        JoinError::Split => anyhow!(
            "{first} and {second} each went on without the other one: only one of them can be the cache {spec}; take the other \
             one away, or wipe it: wipefs -a, and dd over its first MiB"
        ),
        JoinError::Behind => anyhow!(
            "the half of the mirrored cache {spec} that is there was not up to date; connect the other one of {first} and \
             {second}"
        ),
        JoinError::Superblock(error) => superblock::refused(error, &spec.to_string()),
        error => anyhow!("the cache {spec} cannot be used: {error}"),
    }
}
