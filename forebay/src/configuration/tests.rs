//! Findings in configuration files, and what a file means.

use super::*;

/// The findings in a text, each as `LINE: TEXT`.
fn findings(text: &str) -> Vec<String> {
    let (configuration, findings) = Configuration::parse(Path::new("x.toml"), text);
    let is_wrong = findings.iter().any(|finding| !finding.is_hint);
    assert_eq!(configuration.is_none(), is_wrong, "a file with errors has no configuration");
    findings.iter().map(|finding| format!("{}: {}", finding.line, finding.text)).collect()
}

#[test]
fn a_file_is_the_command_line_in_other_form() {
    let text = r#"
cache = "/dev/disk/by-id/nvme-x-part4"
nbd = ["unix:/run/forebay/data.sock", ":10809"]
nbd-mode = "0660"
threads = 3
memory = "512M"
device-timeout = 60
metrics = ":9419"
endurance = "600T"
[[volume]]
name = "data"
origin = "/dev/disk/by-id/ata-y"
mode = "writethrough"
[[volume]]
name = "more"
iops = "5000,burst=6000"
"#;
    let (configuration, findings) = Configuration::parse(Path::new("x.toml"), text);
    assert_eq!(findings, []);
    let configuration = configuration.expect("it is right");
    assert_eq!(configuration.mode_of("data"), Some(WriteMode::Writethrough));
    assert_eq!(configuration.mode_of("more"), None);
    let said: Vec<String> = configuration.settings_of("more").iter().map(ToString::to_string).collect();
    assert_eq!(said, ["iops=5000,burst=6000"]);
    let parsed = Arguments::try_parse_from(configuration.command(&BTreeSet::new())).expect("a command line");
    let Verb::Serve(serve) = parsed.verb else { panic!("it serves") };
    assert_eq!(serve.cache.expect("a cache").to_string(), "/dev/disk/by-id/nvme-x-part4");
    assert_eq!((serve.nbd.len(), serve.nbd_mode, serve.threads), (2, 0o660, Some(3)));
    assert_eq!(serve.running.memory, Some(512 << 20));
    assert_eq!(serve.running.origin.len(), 1);
    assert_eq!(serve.watching.endurance, Some(600 << 40));
}

#[test]
fn what_is_given_counts_before_the_file() {
    let text = "cache = \"mem:1G\"\nthreads = 3\nmemory = \"512M\"\n";
    let (configuration, _) = Configuration::parse(Path::new("x.toml"), text);
    let given = BTreeSet::from(["threads".to_owned(), "cache".to_owned()]);
    let command = configuration.expect("it is right").command(&given);
    assert_eq!(command, ["forebay", "serve", "--memory=512M"].map(OsString::from));
}

#[test]
fn every_finding_has_its_line_and_the_word_that_was_meant() {
    let with_cache = |text: &str| findings(&format!("cache = \"mem:1G\"\n{text}"));
    assert_eq!(
        with_cache("device_timeout = 3"),
        ["2: unknown key `device-timeout`".replace("-t", "_t") + "; did you mean `device-timeout`?"]
    );
    assert_eq!(with_cache("\nnbd-mod = \"0660\""), ["3: unknown key `nbd-mod`; did you mean `nbd-mode`?"]);
    let unknown = with_cache("colour = \"red\"");
    assert!(unknown[0].starts_with("2: unknown key `colour`; there are nbd, "), "{unknown:?}");
    assert!(!unknown[0].contains("uncached"), "{unknown:?}");
    assert_eq!(with_cache("threads = 99"), ["2: `threads`: give 1 to 16 threads"]);
    assert_eq!(with_cache("nbd-mode = 0o660"), ["2: write it as a text, in quotes: \"0660\""]);
    assert_eq!(with_cache("metrics-remote = \"yes\""), ["2: `metrics-remote` is true or false"]);
    assert_eq!(with_cache("threads = [1]"), ["2: write a text in quotes or a number; this is: array"]);
    let uncached = with_cache("uncached = true");
    assert!(uncached[0].contains("say it on the command line"), "{uncached:?}");
    let origin = with_cache("origin = \"/x\"");
    assert!(origin[0].contains("[[volume]]"), "{origin:?}");
    assert!(findings("threads = 1")[0].contains("`cache` is missing"));
    assert!(findings("cache = \"model:\"")[0].starts_with("1: `cache`: "));
    let requires = with_cache("metrics-remote = true");
    assert!(requires[0].contains("--metrics"), "{requires:?}");
    assert_eq!(with_cache("threads = = 1").len(), 1, "what cannot be read is one finding");
}

#[test]
fn findings_in_volumes_have_their_lines() {
    let text = "cache = \"mem:1G\"\n[[volume]]\nname = \"a\"\nmode = \"writebak\"\n[[volume]]\nname = \"a\"\n\
                [[volume]]\norigin = \"/x\"\n[[volume]]\nname = \"b b\"\nsize = 1\n";
    let findings = findings(text);
    assert!(findings[0].starts_with("4: `mode`: unknown mode; there are writeback"), "{findings:?}");
    assert_eq!(findings[1], "6: volume a stands in line 3 already");
    assert_eq!(findings[2], "8: a volume needs a `name`");
    assert!(findings.iter().any(|finding| finding.starts_with("10: `name`: a volume's name has")));
    assert!(findings.iter().any(|finding| finding.starts_with("11: unknown key `size`")), "{findings:?}");
    let limits = "cache = \"mem:1G\"\n[[volume]]\nname = \"a\"\niops = \"fast\"\nbandwith = \"1G\"\n";
    let findings = self::findings(limits);
    assert!(
        findings[0].starts_with("4: `iops`: `fast` is no rate; write for example iops=5000"),
        "{findings:?}"
    );
    assert_eq!(findings[1], "5: unknown key `bandwith`; did you mean `bandwidth`?");
}

#[test]
fn a_name_that_may_move_is_a_hint() {
    let hints = findings("cache = \"/dev/nvme0n1p4\"\n[[volume]]\nname = \"a\"\norigin = \"/dev/sdb\"\n");
    assert_eq!(hints.len(), 2);
    assert!(hints[0].starts_with("1: /dev/nvme0n1p4 may be another disk"), "{hints:?}");
    assert!(hints[1].starts_with("4: /dev/sdb may be"), "{hints:?}");
}

#[test]
fn changed_keys_are_named() {
    let of = |text: &str| Configuration::parse(Path::new("x.toml"), text).0.expect("it is right");
    let old = of("cache = \"mem:1G\"\nthreads = 3\n[[volume]]\nname = \"a\"\nmode = \"writeback\"\n");
    let new = of("cache = \"mem:1G\"\nmetrics = \":1\"\n[[volume]]\nname = \"a\"\nmode = \"readonly\"\n");
    assert_eq!(old.changed_keys(&new), ["metrics", "threads"]);
    assert!(old.changed_keys(&old).is_empty());
}
