//! The disks that are built in: one file each in `models/disks`.

use crate::parameters::Parameters;
use alloc::vec::Vec;

/// Name and file of each disk, in the order of reports.
const DISKS: [(&str, &str); 8] = [
    ("hdd", include_str!("../disks/hdd.toml")),
    ("hdd-5400", include_str!("../disks/hdd-5400.toml")),
    ("wd-re-4tb", include_str!("../disks/wd-re-4tb.toml")),
    ("samsung-hd155ui", include_str!("../disks/samsung-hd155ui.toml")),
    ("ssd", include_str!("../disks/ssd.toml")),
    ("nvme", include_str!("../disks/nvme.toml")),
    ("samsung-850-pro", include_str!("../disks/samsung-850-pro.toml")),
    ("samsung-830", include_str!("../disks/samsung-830.toml")),
];

/// All disks.
#[must_use]
pub fn catalogue() -> Vec<Parameters> {
    DISKS.iter().map(|(name, text)| read(name, text)).collect()
}

/// The disk of that name.
#[must_use]
pub fn find(name: &str) -> Option<Parameters> {
    DISKS.iter().find(|(known, _)| *known == name).map(|(name, text)| read(name, text))
}

/// The names of all disks.
pub fn names() -> impl Iterator<Item = &'static str> {
    DISKS.iter().map(|(name, _)| *name)
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
