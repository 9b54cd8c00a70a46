//! Goal: who may look and who may change is what the options say, and clients have the limits that they say. Method:
//! sockets with modes and groups, other users where the tests run as root, and more clients than there are places.

use crate::scene::Scene;
use live::nbd::client::{Address, Client};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A number that no group and no user of this machine has.
const STRANGE: &str = "64321";

fn control_socket(scene: &Scene) -> PathBuf {
    let entries = fs::read_dir(scene.place.path("run")).expect("the run directory");
    let mut sockets = entries.map(|entry| entry.expect("an entry").path());
    sockets.find(|path| path.extension().is_some_and(|end| end == "sock")).expect("a control socket")
}

fn mode_and_group(path: &Path) -> (u32, u32) {
    let found = fs::metadata(path).expect("it is there");
    (found.mode() & 0o7777, found.gid())
}

#[test]
fn the_control_socket_is_private_unless_it_is_said() {
    let scene = Scene::new(64 << 20, &[]);
    let own = rustix::process::getegid().as_raw();
    let daemon = scene.serve();
    assert_eq!(mode_and_group(&control_socket(&scene)), (0o600, own));
    assert_eq!(mode_and_group(&scene.place.path("run")).0, 0o700);
    daemon.stop();
    let group = own.to_string();
    let daemon = scene.place.serve(&scene.cache, &["--control-mode", "0660", "--socket-group", &group]);
    assert_eq!(mode_and_group(&control_socket(&scene)), (0o660, own));
    assert_eq!(mode_and_group(&scene.place.path("run")), (0o750, own));
    daemon.stop();
    scene.place.refused(&["serve", &scene.cache, "--control-mode", "rw"], 2, &["octal"]);
    let nobody = ["serve", &scene.cache, "--socket-group", "no-such-group"];
    scene.place.refused(&nobody, 2, &["there is no group no-such-group", "groupadd"]);
}

/// The command as another user, who is a member of this group alone.
fn as_other(scene: &Scene, group: &str, arguments: &[&str]) -> Output {
    let program = scene.place.path("forebay");
    if !program.exists() {
        // Where it was built others may not come.
        fs::copy(env!("CARGO_BIN_EXE_forebay"), &program).expect("a copy of the program");
    }
    let plain = scene.place.command(arguments);
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", STRANGE, "--regid", group, "--clear-groups"])
        .arg(program)
        .args(plain.get_args());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.output().expect("setpriv of util-linux is installed")
}

#[test]
fn members_of_the_group_look_and_change_only_if_they_may() {
    // Only root can be somebody else.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scene = Scene::new(64 << 20, &[]);
    let group = ["--control-mode", "0660", "--socket-group", STRANGE];
    let set = ["set", &scene.cache, "mode=writethrough"];
    let says = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let daemon = scene.place.serve(&scene.cache, &group);
    for verb in ["status", "stats"] {
        let output = as_other(&scene, STRANGE, &[verb, &scene.cache]);
        assert!(output.status.success(), "{}", says(&output));
    }
    for refused in [&set[..], &["flush", &scene.cache], &["detach", &scene.cache, "disk"]] {
        let output = as_other(&scene, STRANGE, refused);
        assert_eq!((output.status.code(), says(&output).lines().count()), (Some(1), 1), "{}", says(&output));
        assert!(says(&output).contains("you may look only"), "{}", says(&output));
    }
    assert_eq!(scene.status()["volumes"][0]["mode"], "writeback", "nothing was changed");
    // Who is no member does not get in.
    let output = as_other(&scene, "64322", &["status", &scene.cache]);
    assert_eq!((output.status.code(), says(&output).lines().count()), (Some(1), 1), "{}", says(&output));
    daemon.stop();
    let daemon = scene.place.serve(&scene.cache, &[&group[..], &["--control-changes"]].concat());
    let output = as_other(&scene, STRANGE, &set);
    assert!(output.status.success(), "{}", says(&output));
    daemon.stop();
    // The directory is open to the group, the socket is not.
    let daemon = scene.place.serve(&scene.cache, &["--socket-group", STRANGE]);
    let output = as_other(&scene, STRANGE, &["status", &scene.cache]);
    assert!(says(&output).contains("does not take you"), "{}", says(&output));
    daemon.stop();
}

#[test]
fn clients_have_the_limits_that_were_said() {
    let scene = Scene::new(64 << 20, &[]);
    let limits = ["--clients", "2", "--client-requests", "1", "--client-memory", "256K"];
    let metrics = format!("unix:{}", scene.place.path("metrics").display());
    let daemon = scene.place.serve(&scene.cache, &[&limits[..], &["--metrics", &metrics]].concat());
    let socket = daemon.socket.clone();
    let mut clients: Vec<Client> = (0..2)
        .map(|_| Client::connect(&Address::Unix(socket.clone()), "disk").expect("there is a place"))
        .collect();
    for client in &mut clients {
        let content = vec![5; 4 << 20];
        client.write(0, &content).expect("it is connected").expect("it is taken");
        assert!(client.read(0, 4 << 20).expect("it is connected").expect("it is there") == content);
    }
    assert!(Client::connect(&Address::Unix(socket), "disk").is_err(), "there are two places");
    let end = Instant::now() + Duration::from_secs(10);
    while scene.status()["clients"]["sent_away"] != 1 {
        assert!(Instant::now() < end, "{}", scene.status());
        std::thread::sleep(Duration::from_millis(50));
    }
    let status = scene.status();
    assert_eq!((&status["clients"]["connected"], &status["clients"]["limit"]), (&2.into(), &2.into()));
    assert!(
        scene
            .place
            .done(&["status", &scene.cache])
            .contains("clients    2 of 2 at the most, 1 found no place")
    );
    daemon.stop();
    for (option, wrong) in [("--clients", "0"), ("--client-requests", "0"), ("--client-memory", "1K")] {
        let output = scene.place.forebay(&["serve", &scene.cache, option, wrong]);
        assert_eq!(output.status.code(), Some(2), "{option} {wrong}");
    }
}

/// More clients than files may be open are refused at the start, and not when they come.
#[test]
fn more_clients_than_files_are_one_line() {
    let scene = Scene::new(64 << 20, &[]);
    let plain = scene.place.command(&["serve", &scene.cache, "--clients", "2000"]);
    let mut command = Command::new("prlimit");
    command.arg("--nofile=512:512").arg(plain.get_program()).args(plain.get_args());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().expect("prlimit of util-linux is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(errors.contains("2000 clients need 2064 open files, and 512 are allowed"), "{errors}");
}
