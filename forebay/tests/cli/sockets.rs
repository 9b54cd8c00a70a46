//! Goal: only those who may can connect to a daemon. Method: daemons with all kinds of umasks and run directories; the
//! permissions of their sockets, and what is refused.

use crate::scene::Scene;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

fn permissions(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

/// Permissions of the NBD socket that a daemon makes under this umask.
fn made(scene: &Scene, umask: &str, more: &[&str]) -> u32 {
    let socket = scene.place.path("nbd.sock");
    let address = format!("unix:{}", socket.display());
    let plain = scene.place.command(&[&["serve", &scene.cache, "--nbd", &address][..], more].concat());
    let mut command = Command::new("sh");
    command.args(["-c", "umask $0; exec \"$@\"", umask]).arg(plain.get_program()).args(plain.get_args());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the shell starts");
    let mut ready = String::new();
    let stdout = child.stdout.take().expect("it is a pipe");
    BufReader::new(stdout).read_line(&mut ready).expect("it speaks or ends");
    assert!(ready.starts_with("ready "), "{ready}");
    let (found, run) = (permissions(&socket), permissions(&scene.place.path("run")));
    assert_eq!(run, 0o700, "the run directory is closed under umask {umask}");
    let stopped = Command::new("kill").arg(child.id().to_string()).status().expect("kill exists");
    assert!(stopped.success() && child.wait().expect("it was started").success());
    fs::remove_dir_all(scene.place.path("run")).expect("a directory that was made");
    found
}

#[test]
fn a_socket_has_the_mode_that_was_asked_for_whatever_the_umask() {
    let scene = Scene::new(64 << 20, &[]);
    assert_eq!(made(&scene, "0000", &[]), 0o600);
    assert_eq!(made(&scene, "0022", &[]), 0o600);
    assert_eq!(made(&scene, "0077", &["--nbd-mode", "0660"]), 0o660);
    assert_eq!(made(&scene, "0000", &["--nbd-mode", "666"]), 0o666);
    for wrong in ["0888", "rw", "7777", ""] {
        scene.place.refused(&["serve", &scene.cache, "--nbd-mode", wrong], 2, &["octal"]);
    }
}

#[test]
fn a_run_directory_that_others_can_use_is_refused() {
    let scene = Scene::new(64 << 20, &[]);
    let run = scene.place.path("run");
    // No daemon has made it yet: it is not there, or somebody else has been quicker.
    let serve = ["serve", &scene.cache];
    let status = ["status", &scene.cache];
    let refused = |words: &[&str]| {
        scene.place.refused(&serve, 1, words);
        scene.place.refused(&status, 1, words);
    };
    // Such as /tmp, which must stay as it is.
    fs::create_dir(&run).unwrap();
    fs::set_permissions(&run, Permissions::from_mode(0o1777)).unwrap();
    refused(&["everybody may write", "name one of its own with FOREBAY_RUN_DIR"]);
    fs::remove_dir(&run).unwrap();
    for mode in [0o755, 0o770, 0o701, 0o500] {
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, Permissions::from_mode(mode)).unwrap();
        refused(&[&format!("mode {mode:04o} instead of 0700"), "chmod 700"]);
        fs::remove_dir(&run).unwrap();
    }
    let real = scene.place.path("real");
    fs::create_dir(&real).unwrap();
    fs::set_permissions(&real, Permissions::from_mode(0o700)).unwrap();
    symlink(&real, &run).unwrap();
    refused(&["is a symbolic link", "FOREBAY_RUN_DIR"]);
    fs::remove_file(&run).unwrap();
    // Only root can give a directory away.
    if chown(&real, Some(65_534), None).is_ok() {
        fs::rename(&real, &run).unwrap();
        refused(&["belongs to another user"]);
        fs::remove_dir(&run).unwrap();
    }
    scene.serve().stop();
    assert_eq!(permissions(&run), 0o700);
}
