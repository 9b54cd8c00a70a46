//! Names of devices on the command line: a path, or a URI.
//!
//! `/dev/sdb`, `file:/x.img`, `mem:1G`, `model:hdd?store=/x.img&size=8G&speed=4&write_cache=off`, `nbd://host/export`.

use super::size::{SizeError, parse_size};
use crate::nbd::uri::{self, NbdUri, NbdUriError};
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// `speed` of a modelled disk is kept in thousandths.
pub const SPEED_UNIT: u64 = 1000;
/// The greatest `speed`: times shorter than a millionth are no times.
const SPEED_MAX: u64 = 1_000_000 * SPEED_UNIT;
/// The parameters of `model:`.
const MODEL_PARAMETERS: &str = "store, size, speed, write_cache";

/// A device as named, not opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceSpec {
    /// A file or a block device.
    File {
        /// Where it is.
        path: PathBuf,
    },
    /// Memory of the process, gone when it ends.
    Memory {
        /// Its size.
        size_bytes: u64,
    },
    /// A modelled disk in real time.
    Model(ModelSpec),
    /// An export of an NBD server.
    Nbd(NbdUri),
}

/// A modelled disk as named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// The model's name.
    pub name: String,
    /// The file that holds the content; memory if `None`.
    pub store: Option<PathBuf>,
    /// The disk's size; that of the store if `None`.
    pub size_bytes: Option<u64>,
    /// All times are divided by this, in units of 1 / [`SPEED_UNIT`].
    pub speed: u64,
    /// The volatile write cache, if not as the model has it.
    pub write_cache: Option<WriteCache>,
}

/// The size of a modelled disk's volatile write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// No write cache: a write is acknowledged when it is on the medium.
    Off,
    /// This many bytes.
    Bytes(u64),
}

/// Reason why a text names no device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceSpecError {
    /// There is nothing.
    #[error("a device is missing; name a path, or mem:SIZE, or model:NAME?store=PATH&size=SIZE")]
    Empty,
    /// Something that an NBD server makes a device of.
    #[error(
        "`{scheme}:` is no kind of device: serve it by {server} and name that (nbd:), as in docs/recipes/{recipe}"
    )]
    Served {
        /// The text before the colon.
        scheme: String,
        /// The server that can.
        server: &'static str,
        /// The page that shows it.
        recipe: &'static str,
    },
    /// A kind of device that does not exist.
    #[error(
        "`{scheme}:` is no kind of device; known are file:, mem:, model: and nbd: (a file of that name: ./{text})"
    )]
    UnknownScheme {
        /// The text before the colon.
        scheme: String,
        /// The whole text.
        text: String,
    },
    /// The name of an export is wrong.
    #[error(transparent)]
    Nbd(#[from] NbdUriError),
    /// A size is wrong.
    #[error("{what}: {reason}")]
    Size {
        /// The size that is wrong.
        what: &'static str,
        /// The error.
        reason: SizeError,
    },
    /// A modelled disk in memory needs a size.
    #[error("model:{name} needs size=SIZE, because it has no store=PATH to take the size from")]
    SizeMissing {
        /// The model's name.
        name: String,
    },
    /// A model that does not exist.
    #[error("unknown model `{name}`; known are {known}")]
    UnknownModel {
        /// The name as written.
        name: String,
        /// All there are.
        known: String,
    },
    /// A parameter that does not exist.
    #[error("unknown parameter `{parameter}` of model:; known are {MODEL_PARAMETERS}")]
    UnknownParameter {
        /// The parameter as written.
        parameter: String,
    },
    /// A parameter given twice.
    #[error("parameter `{parameter}` is given twice")]
    Twice {
        /// The parameter.
        parameter: String,
    },
    /// A speed that is not a positive number.
    #[error("`{value}` is not a speed; write a number between 0.001 and 1000000, for example 4")]
    Speed {
        /// The value as written.
        value: String,
    },
    /// A `%` without two hexadecimal digits after it, or bytes that are not UTF-8.
    #[error("`{value}` is not a path in URI form; write % as %25")]
    Escape {
        /// The value as written.
        value: String,
    },
}

/// Reads the name of a device.
///
/// # Errors
/// [`DeviceSpecError`]: one line that says what is wrong and what is right.
pub fn parse(spec: &str) -> Result<DeviceSpec, DeviceSpecError> {
    let Some((scheme, rest)) = split_scheme(spec) else {
        return match spec {
            "" => Err(DeviceSpecError::Empty),
            _ => Ok(DeviceSpec::File { path: PathBuf::from(spec) }),
        };
    };
    match scheme {
        "file" => {
            let path = rest.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(rest);
            if path.is_empty() {
                return Err(DeviceSpecError::Empty);
            }
            Ok(DeviceSpec::File { path: PathBuf::from(path) })
        }
        "mem" => {
            let size_bytes =
                parse_size(rest).map_err(|reason| DeviceSpecError::Size { what: "mem:", reason })?;
            Ok(DeviceSpec::Memory { size_bytes })
        }
        "model" => parse_model(rest).map(DeviceSpec::Model),
        _ if uri::is_nbd_scheme(scheme) => Ok(DeviceSpec::Nbd(uri::parse(spec)?)),
        "s3" => Err(served(scheme, "nbdkit", "s3.md")),
        "rbd" => Err(served(scheme, "qemu-nbd", "ceph-rbd.md")),
        _ => Err(DeviceSpecError::UnknownScheme { scheme: scheme.to_owned(), text: spec.to_owned() }),
    }
}

fn served(scheme: &str, server: &'static str, recipe: &'static str) -> DeviceSpecError {
    DeviceSpecError::Served { scheme: scheme.to_owned(), server, recipe }
}

/// The part before the first colon, if it looks like the scheme of a URI.
fn split_scheme(spec: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = spec.split_once(':')?;
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'+';
    let named = scheme.starts_with(|first: char| first.is_ascii_lowercase()) && scheme.bytes().all(letters);
    named.then_some((scheme, rest))
}

fn parse_model(text: &str) -> Result<ModelSpec, DeviceSpecError> {
    let (name, parameters) = text.split_once('?').unwrap_or((text, ""));
    if models::find(name).is_none() {
        let known: Vec<&str> = models::catalogue::names().collect();
        return Err(DeviceSpecError::UnknownModel { name: name.to_owned(), known: known.join(", ") });
    }
    let mut spec = ModelSpec {
        name: name.to_owned(),
        store: None,
        size_bytes: None,
        speed: SPEED_UNIT,
        write_cache: None,
    };
    let mut seen: Vec<&str> = Vec::new();
    for pair in parameters.split('&').filter(|pair| !pair.is_empty()) {
        let (parameter, value) = pair.split_once('=').unwrap_or((pair, ""));
        if seen.contains(&parameter) {
            return Err(DeviceSpecError::Twice { parameter: parameter.to_owned() });
        }
        seen.push(parameter);
        match parameter {
            "store" => spec.store = Some(PathBuf::from(unescape(value)?)),
            "size" => {
                let size = parse_size(value);
                spec.size_bytes =
                    Some(size.map_err(|reason| DeviceSpecError::Size { what: "size=", reason })?);
            }
            "speed" => spec.speed = parse_speed(value)?,
            "write_cache" => spec.write_cache = Some(parse_write_cache(value)?),
            _ => return Err(DeviceSpecError::UnknownParameter { parameter: parameter.to_owned() }),
        }
    }
    if spec.store.is_none() && spec.size_bytes.is_none() {
        return Err(DeviceSpecError::SizeMissing { name: spec.name });
    }
    Ok(spec)
}

fn parse_write_cache(value: &str) -> Result<WriteCache, DeviceSpecError> {
    match value {
        "off" | "0" => Ok(WriteCache::Off),
        _ => match parse_size(value) {
            Ok(bytes) => Ok(WriteCache::Bytes(bytes)),
            Err(reason) => Err(DeviceSpecError::Size { what: "write_cache= (off or a size)", reason }),
        },
    }
}

/// A decimal number as thousandths: `4`, `0.5`, `2.25`.
fn parse_speed(value: &str) -> Result<u64, DeviceSpecError> {
    let wrong = || DeviceSpecError::Speed { value: value.to_owned() };
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 7 || fraction.len() > 3 || !digits(whole) || !digits(fraction) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let fraction: u64 = format!("{fraction:0<3}").parse().map_err(|_| wrong())?;
    let speed = whole * SPEED_UNIT + fraction;
    if speed == 0 || speed > SPEED_MAX { Err(wrong()) } else { Ok(speed) }
}

/// Replaces `%XX` by the byte it stands for.
fn unescape(value: &str) -> Result<String, DeviceSpecError> {
    let wrong = || DeviceSpecError::Escape { value: value.to_owned() };
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let hexadecimal = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok()).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(hexadecimal, 16).map_err(|_| wrong())?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// The reverse of [`unescape`], for characters that have a meaning in these URIs.
fn escape(path: &Path) -> String {
    let mut text = String::new();
    for character in path.to_string_lossy().chars() {
        match character {
            '%' | '&' | '?' | '=' => {
                let _ = write!(text, "%{:02X}", character as u32);
            }
            _ => text.push(character),
        }
    }
    text
}

impl DeviceSpec {
    /// The file or block device under it, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            DeviceSpec::File { path } => Some(path),
            DeviceSpec::Memory { .. } | DeviceSpec::Nbd(_) => None,
            DeviceSpec::Model(model) => model.store.as_deref(),
        }
    }

    /// Whether its content is gone when the process ends.
    #[must_use]
    pub fn is_fleeting(&self) -> bool {
        self.path().is_none() && !matches!(self, DeviceSpec::Nbd(_))
    }

    /// A name that stays the same however the device was written: the absolute path of the file under it
    /// with links resolved (if it exists), else the URI.
    #[must_use]
    pub fn canonical(&self) -> String {
        match self.path() {
            Some(path) => {
                let resolved = path.canonicalize().or_else(|_| std::path::absolute(path));
                resolved.unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
            }
            None => match self {
                DeviceSpec::Nbd(uri) => uri.canonical(),
                _ => self.to_string(),
            },
        }
    }

    /// The same device with an absolute path, valid in any working directory.
    #[must_use]
    pub fn absolute(&self) -> DeviceSpec {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        match self {
            DeviceSpec::File { path } => DeviceSpec::File { path: absolute(path) },
            DeviceSpec::Memory { .. } => self.clone(),
            DeviceSpec::Nbd(uri) => DeviceSpec::Nbd(uri.absolute()),
            DeviceSpec::Model(model) => {
                let store = model.store.as_deref().map(absolute);
                DeviceSpec::Model(ModelSpec { store, ..model.clone() })
            }
        }
    }
}

impl fmt::Display for DeviceSpec {
    /// Writes the spec so that [`parse`] reads the same again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::File { path } => {
                let text = path.to_string_lossy();
                let prefix = if split_scheme(&text).is_some() { "file:" } else { "" };
                write!(f, "{prefix}{text}")
            }
            DeviceSpec::Memory { size_bytes } => write!(f, "mem:{size_bytes}"),
            DeviceSpec::Model(model) => write_model(model, f),
            DeviceSpec::Nbd(uri) => write!(f, "{uri}"),
        }
    }
}

fn write_model(model: &ModelSpec, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "model:{}", model.name)?;
    let mut separator = '?';
    let mut parameter = |f: &mut fmt::Formatter<'_>, name: &str, value: String| {
        let written = write!(f, "{separator}{name}={value}");
        separator = '&';
        written
    };
    if let Some(store) = &model.store {
        parameter(f, "store", escape(store))?;
    }
    if let Some(size_bytes) = model.size_bytes {
        parameter(f, "size", size_bytes.to_string())?;
    }
    if model.speed != SPEED_UNIT {
        let (whole, fraction) = (model.speed / SPEED_UNIT, model.speed % SPEED_UNIT);
        parameter(f, "speed", format!("{whole}.{fraction:03}"))?;
    }
    match model.write_cache {
        Some(WriteCache::Off) => parameter(f, "write_cache", "off".to_owned()),
        Some(WriteCache::Bytes(bytes)) => parameter(f, "write_cache", bytes.to_string()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str) -> ModelSpec {
        match parse(text) {
            Ok(DeviceSpec::Model(model)) => model,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn paths_and_uris_are_told_apart() {
        for (text, path) in
            [("/dev/sdb", "/dev/sdb"), ("a.img", "a.img"), ("file:/x y.img", "/x y.img"), ("file:///x", "/x")]
        {
            assert_eq!(parse(text), Ok(DeviceSpec::File { path: PathBuf::from(path) }), "{text}");
        }
        assert_eq!(parse("./a:b"), Ok(DeviceSpec::File { path: PathBuf::from("./a:b") }));
        assert_eq!(parse("mem:1G"), Ok(DeviceSpec::Memory { size_bytes: 1 << 30 }));
    }

    #[test]
    fn model_parameters_are_read() {
        let spec = model("model:hdd?store=/a%26b.img&size=8G&speed=2.5&write_cache=off");
        assert_eq!(spec.store.as_deref(), Some(Path::new("/a&b.img")));
        assert_eq!(spec.size_bytes, Some(8 << 30));
        assert_eq!(spec.speed, 2500);
        assert_eq!(spec.write_cache, Some(WriteCache::Off));
        assert_eq!(model("model:ssd?size=1G&write_cache=32M").write_cache, Some(WriteCache::Bytes(32 << 20)));
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "/dev/sdb",
            "file:mem:1",
            "mem:1048576",
            "nbd://nas:10810/disk",
            "nbd+unix:///?socket=/run/nbd.sock",
            "model:hdd?store=/a%26b.img&size=8589934592&speed=2.500&write_cache=off",
            "model:ssd?size=1073741824&write_cache=4096",
        ] {
            let spec = parse(text).unwrap();
            assert_eq!(spec.to_string(), text);
            assert_eq!(parse(&spec.to_string()), Ok(spec));
        }
    }

    #[test]
    fn wrong_names_say_what_is_wrong() {
        let line = |text: &str| parse(text).unwrap_err().to_string();
        assert!(matches!(parse(""), Err(DeviceSpecError::Empty)));
        assert!(matches!(parse("file:"), Err(DeviceSpecError::Empty)));
        assert!(line("nbd+unix:///disk").contains("add ?socket="));
        assert!(line("s3://b/p").contains("docs/recipes/s3.md"));
        assert!(line("rbd:p/i").contains("docs/recipes/ceph-rbd.md"));
        assert!(line("tape:0").contains("no kind of device"));
        assert!(line("mem:8X").contains("size suffix"));
        assert!(line("mem:").contains("size is missing"));
        assert!(line("model:floppy?size=1M").contains("known are"));
        assert!(line("model:hdd").contains("needs size=SIZE"));
        assert!(line("model:hdd?size=1Q").contains("size suffix"));
        assert!(line("model:hdd?size=1G&colour=red").contains("unknown parameter `colour`"));
        assert!(line("model:hdd?size=1G&size=2G").contains("given twice"));
        assert!(line("model:hdd?size=1G&store=%zz").contains("URI form"));
        assert!(line("model:hdd?size=1G&write_cache=much").contains("write_cache="));
        for speed in ["0", "-1", "fast", "", "1.2345", "99999999"] {
            assert!(line(&format!("model:hdd?size=1G&speed={speed}")).contains("is not a speed"), "{speed}");
        }
    }
}
