//! Several volumes on one cache.

use crate::daemon::{Daemon, Site, first_difference, tool, try_tool};

const MIB: u64 = 1 << 20;

/// Three volumes with three modes keep apart what they hold; one goes, one loses its origin, the
/// others go on.
#[test]
fn volumes_do_not_disturb_each_other() {
    let site = Site::new("volumes");
    let cache = site.file("cache", 64 << 20);
    let modes = ["writeback", "writethrough", "writearound"];
    let names = ["red", "green", "blue"];
    let sizes = [40 * MIB, 24 * MIB, 32 * MIB];
    let mut origins = Vec::new();
    for ((name, mode), size_bytes) in names.into_iter().zip(modes).zip(sizes) {
        let origin = site.file(&format!("{name}.origin"), size_bytes);
        let verb: &[&str] =
            if origins.is_empty() { &["create", "--cache", &cache] } else { &["add", &cache] };
        site.run(&[verb, &["--origin", &origin, "--name", name, "--mode", mode]].concat());
        origins.push(origin);
    }
    let inputs: Vec<String> = (0..3)
        .map(|number| site.noise(&format!("input-{number}"), sizes[number], number as u64 + 7))
        .collect();
    let holds = |daemon: &Daemon, number: usize| {
        let output = site.path("output");
        tool("nbdcopy", &[&daemon.uri(names[number]), &output]);
        assert_eq!(first_difference(&inputs[number], &output), None, "{}", names[number]);
        std::fs::remove_file(output).expect("it was just written");
    };

    let daemon = Daemon::start(&site, &cache, &[]);
    std::thread::scope(|scope| {
        for (input, name) in inputs.iter().zip(names) {
            let uri = daemon.uri(name);
            scope.spawn(move || tool("nbdcopy", &["--flush", input, &uri]));
        }
    });
    (0..3).for_each(|number| holds(&daemon, number));
    assert!(!try_tool("nbdinfo", &[&daemon.uri("")]).status.success(), "which of three is the default?");

    site.run(&["detach", &cache, "green", "--verify"]);
    assert_eq!(first_difference(&inputs[1], &origins[1]), None, "detached: all is in the origin");
    assert!(!try_tool("nbdinfo", &[&daemon.uri("green")]).status.success(), "it is gone");
    holds(&daemon, 0);
    holds(&daemon, 2);
    daemon.kill();

    // Without its origin a volume is not served; the other one is.
    std::fs::rename(&origins[2], site.path("elsewhere")).expect("it can be moved");
    let daemon = Daemon::start(&site, &cache, &[]);
    holds(&daemon, 0);
    let status = site.report(&["status", &cache]);
    let state = |name: &str| {
        let volumes = status["volumes"].as_array().expect("a list");
        volumes.iter().find(|volume| volume["name"] == name).map(|volume| volume["state"].clone())
    };
    assert_eq!(state("blue"), Some("origin-missing".into()), "{status}");
    assert_eq!(state("green"), None, "{status}");
    daemon.stop();

    // It may also be named where it is now.
    let elsewhere = format!("blue={}", site.path("elsewhere"));
    let daemon = Daemon::start(&site, &cache, &["--origin", &elsewhere]);
    holds(&daemon, 2);
    daemon.stop();
    assert_eq!(site.report(&["check", &cache])["ok"], true);
}

/// An origin that has grown is served at its old size until the operator sets another.
#[test]
fn a_grown_origin_waits_to_be_told() {
    let site = Site::new("grown");
    let origin = site.file("origin", 16 * MIB);
    let cache = site.file("cache", 32 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    std::fs::File::options().write(true).open(&origin).and_then(|file| file.set_len(24 * MIB)).expect("room");
    let daemon = Daemon::start(&site, &cache, &[]);
    let size = |daemon: &Daemon| tool("nbdinfo", &["--size", &daemon.uri("disk")]).trim().to_owned();
    assert_eq!(size(&daemon), (16 * MIB).to_string());
    site.run(&["set", &cache, "disk", "size=origin"]);
    assert_eq!(size(&daemon), (24 * MIB).to_string());
    let message = site.refused(&["set", &cache, "disk", "size=origin"]);
    assert!(message.contains("has the size of its origin already"), "{message}");
    // It may also grow while the daemon runs.
    std::fs::File::options().write(true).open(&origin).and_then(|file| file.set_len(40 * MIB)).expect("room");
    assert_eq!(size(&daemon), (24 * MIB).to_string());
    site.run(&["set", &cache, "disk", "size=origin"]);
    assert_eq!(size(&daemon), (40 * MIB).to_string());
    let input = site.noise("input", 40 * MIB, 3);
    tool("nbdcopy", &["--flush", &input, &daemon.uri("disk")]);
    daemon.kill();
    let daemon = Daemon::start(&site, &cache, &[]);
    assert_eq!(size(&daemon), (40 * MIB).to_string());
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
    assert_eq!(first_difference(&input, &origin), None);
}
