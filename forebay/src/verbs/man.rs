//! `forebay man`: the manual pages, made from the command line's own descriptions.

use crate::arguments::{Arguments, Man};
use crate::configuration;
use anyhow::{Context, Result};
use clap::{Arg, ArgAction, CommandFactory};
use clap_mangen::roff::{Roff, bold, italic, roman};
use std::fs;
use std::io;
use std::path::Path;

/// The file of the page on configuration files.
const CONFIGURATION_PAGE: &str = "forebay.toml.5";

/// A file that shows all that one can say of volumes.
const EXAMPLE: &str = r#"cache = "/dev/disk/by-id/nvme-Samsung_SSD_990_PRO_S6Z-part4"
nbd = ["unix:/run/forebay/data.sock", ":10809"]
metrics = ":9419"
endurance = "600T"
wear-budget = "200G"

[[volume]]
name = "data"
origin = "/dev/disk/by-id/ata-WDC_WD80EFZX_VK0"
mode = "writeback"
bandwidth = "200M"
destage-hours = "22:00-06:00"
cache-max = "50%"
"#;

pub(super) fn run(arguments: &Man) -> Result<()> {
    let directory = &arguments.directory;
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory))
        .and_then(|()| write_configuration_page(directory))
        .with_context(|| format!("the manual pages cannot be written to {}", directory.display()))
}

fn write_configuration_page(directory: &Path) -> io::Result<()> {
    let version = format!("forebay {}", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new();
    page.control("TH", ["forebay.toml", "5", "", &version]);
    page.control("SH", ["NAME"]).text([roman("forebay.toml - what a daemon of forebay serves, and how")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([italic("/etc/forebay/NAME.toml")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("There is one file for each cache. "),
        bold("forebay serve --config FILE"),
        roman(" serves it; "),
        bold("systemctl start forebay@NAME"),
        roman(
            " does that with /etc/forebay/NAME.toml, and a reload reads it again: modes follow at once, all ",
        ),
        roman("else with the next start. "),
        bold("forebay config check"),
        roman(" says what is wrong with it, by line. Values are texts in quotes, numbers, true or false."),
    ]);
    page.control("SH", ["KEYS"]);
    entry(&mut page, "cache", "DEV", "The cache device, as given to forebay create. Needed.");
    for option in configuration::options() {
        let key = option.get_long().unwrap_or_default().to_owned();
        let help = option.get_long_help().or(option.get_help()).map_or_else(String::new, ToString::to_string);
        let default = option.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        let default = default
            .filter(|_| !matches!(option.get_action(), ArgAction::SetTrue))
            .map_or_else(String::new, |value| format!(" [default: {value}]"));
        entry(&mut page, &key, &value_of(&option), &format!("{help}{default}"));
    }
    page.control("SH", ["VOLUMES"]);
    page.text([
        roman("Each volume may have a table "),
        bold("[[volume]]"),
        roman(". Volumes of the cache without one are served all the same."),
    ]);
    entry(&mut page, "name", "NAME", "The name of the volume. Needed.");
    entry(&mut page, "origin", "DEV", "Its origin, if it has another name than the one given to create.");
    entry(
        &mut page,
        "mode",
        "MODE",
        "Its write mode. What forebay set changes stays changed until a reload; forebay status tells where the two \
         differ.",
    );
    page.control("SH", ["EXAMPLE"]).control("nf", []);
    for line in EXAMPLE.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("forebay"),
        roman("(1), "),
        bold("forebay-serve"),
        roman("(1), "),
        bold("forebay-config"),
        roman("(1)"),
    ]);
    fs::write(directory.join(CONFIGURATION_PAGE), page.render())
}

fn entry(page: &mut Roff, key: &str, value: &str, help: &str) {
    page.control("TP", []);
    page.text([bold(key), roman(" = "), italic(value)]);
    page.text([roman(help.split_whitespace().collect::<Vec<_>>().join(" "))]);
}

/// The form of an option's value in a file.
fn value_of(option: &Arg) -> String {
    if matches!(option.get_action(), ArgAction::SetTrue) {
        return "true".to_owned();
    }
    let name = option.get_value_names().and_then(|names| names.first()).map_or("VALUE", |name| name.as_str());
    if matches!(option.get_action(), ArgAction::Append) { format!("[{name}, ...]") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;

    #[test]
    fn the_example_is_right() {
        let (configuration, findings) = Configuration::parse(Path::new("x.toml"), EXAMPLE);
        assert!(configuration.is_some() && findings.is_empty(), "{findings:?}");
    }
}
