//! The disks that are built in: one file each in `models/devices`.

use crate::parameters::{Parameters, Value};
use alloc::borrow::ToOwned;
use alloc::vec::Vec;

/// Name and file of each disk, in the order of reports.
const DISKS: [(&str, &str); 16] = [
    ("hdd", include_str!("../devices/hdd.toml")),
    ("hdd-5400", include_str!("../devices/hdd-5400.toml")),
    ("wd-re-4tb", include_str!("../devices/wd-re-4tb.toml")),
    ("samsung-hd155ui", include_str!("../devices/samsung-hd155ui.toml")),
    ("enhanceio-2013-hdd", include_str!("../devices/enhanceio-2013-hdd.toml")),
    ("iozone-2014-hdd", include_str!("../devices/iozone-2014-hdd.toml")),
    ("mapperx-2021-hdd", include_str!("../devices/mapperx-2021-hdd.toml")),
    ("ssd", include_str!("../devices/ssd.toml")),
    ("nvme", include_str!("../devices/nvme.toml")),
    ("network", include_str!("../devices/network.toml")),
    ("samsung-850-pro", include_str!("../devices/samsung-850-pro.toml")),
    ("samsung-850-pro-freebsd", include_str!("../devices/samsung-850-pro-freebsd.toml")),
    ("samsung-830", include_str!("../devices/samsung-830.toml")),
    ("enhanceio-2013-ssd", include_str!("../devices/enhanceio-2013-ssd.toml")),
    ("iozone-2014-ssd", include_str!("../devices/iozone-2014-ssd.toml")),
    ("mapperx-2021-ssd", include_str!("../devices/mapperx-2021-ssd.toml")),
];

/// Disks that are another one after hard use: full, and written again in any order.
const WORN: [(&str, &str); 2] = [
    ("samsung-850-pro-full", "samsung-850-pro"),
    ("samsung-850-pro-freebsd-full", "samsung-850-pro-freebsd"),
];

/// All disks.
#[must_use]
pub fn catalogue() -> Vec<Parameters> {
    names().filter_map(find).collect()
}

/// The disk of that name.
#[must_use]
pub fn find(name: &str) -> Option<Parameters> {
    if let Some((name, text)) = DISKS.iter().find(|(known, _)| *known == name) {
        return Some(read(name, text));
    }
    let (name, fresh) = WORN.iter().find(|(known, _)| *known == name)?;
    let mut parameters = find(fresh)?;
    parameters.name = (*name).to_owned();
    parameters.description.push_str(", full and worn in");
    for (key, value) in [("fill_permille", Value::Number(1000)), ("fill_scattered", Value::Flag(true))] {
        if let Err(error) = parameters.set(key, value) {
            panic!("The built-in disk {name} is wrong: {error}");
        }
    }
    Some(parameters)
}

/// The names of all disks.
pub fn names() -> impl Iterator<Item = &'static str> {
    DISKS.iter().chain(&WORN).map(|(name, _)| *name)
}

/// The files are part of the program, and a test reads each: one that is wrong is our own mistake.
fn read(name: &str, text: &str) -> Parameters {
    match Parameters::parse(name, text) {
        Ok(parameters) => parameters,
        Err(error) => panic!("The built-in disk {name} is wrong: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{DISKS, catalogue, find, names};

    #[test]
    fn every_built_in_disk_is_valid_and_found_by_its_name() {
        for parameters in catalogue() {
            assert_eq!(find(&parameters.name), Some(parameters.clone()));
            assert!(!parameters.description.is_empty());
        }
        assert_eq!(names().count(), catalogue().len());
        assert_eq!(find("no-such-disk"), None);
    }

    #[test]
    fn every_number_has_a_comment_that_says_where_it_comes_from() {
        for (name, text) in DISKS {
            for line in text.lines().filter(|line| line.contains(" = ") && !line.starts_with('#')) {
                assert!(line.contains(" # ") || line.starts_with("description"), "{name}: {line}");
            }
        }
    }
}
