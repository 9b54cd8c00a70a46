//! Goal: what the system does not give is said in one clear line, and harms nothing else. Method: the real command with
//! limits of file sizes and memory, and failures that go on.

use crate::scene::{Place, Scene, pattern};
use live::nbd::client::{Address, Client};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// The command under a limit of prlimit's.
fn limited(place: &Place, limit: &str, arguments: &[&str]) -> Command {
    let plain = place.command(arguments);
    let mut command = Command::new("prlimit");
    command.arg(limit).arg(plain.get_program()).args(plain.get_args());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Its first line on standard output; nothing if it ends without one.
fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("it speaks or ends");
    line
}

fn stop(child: Child) -> String {
    let stopped = Command::new("kill").arg(child.id().to_string()).status().expect("kill exists");
    let output = child.wait_with_output().expect("it was started");
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(stopped.success() && output.status.code() == Some(0), "{:?}: {errors}", output.status);
    errors
}

/// An origin beyond the limit of file sizes fails each write: that is an error like any other, and is said once and
/// then counted.
#[test]
fn a_failure_that_goes_on_is_said_once_and_the_daemon_goes_on() {
    let scene = Scene::new(64 * MIB, &[]);
    let socket = scene.place.path("nbd.sock");
    let address = format!("unix:{}", socket.display());
    let serve = ["serve", &scene.cache, "--nbd", &address];
    let mut child =
        limited(&scene.place, &format!("--fsize={}", 12 * MIB), &serve).spawn().expect("it starts");
    assert!(first_line(&mut child).starts_with("ready "));
    let mut client = Client::connect(&Address::Unix(socket), "disk").expect("it is served");
    let content = pattern(5, 4096);
    for block in 0..64 {
        client
            .write(13 * MIB + block * 4096, &content)
            .expect("it is connected")
            .expect("the cache takes it");
    }
    let end = Instant::now() + Duration::from_secs(20);
    while scene.status()["volumes"][0]["origin_errors"].as_u64() < Some(3) {
        assert!(Instant::now() < end, "the origin fails again and again: {}", scene.status());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(client.read(13 * MIB, 4096).expect("it is connected").expect("the cache has it"), content);
    let errors = stop(child);
    let said = errors.lines().filter(|line| line.contains("File too large")).count();
    assert!((1..=3).contains(&said), "one line, and one with the count at the end: {errors}");
    assert!(errors.contains("repeated ") && errors.contains(" times"), "{errors}");
    assert!(!errors.contains("os error 27) (os error"), "{errors}");
    // Nothing is lost.
    scene.place.done(&["flush", &scene.cache]);
    let home = fs::read(&scene.origin).expect("a file");
    assert_eq!(home[13 * MIB as usize..][..4096], content);
}

/// A cache whose file cannot grow says why in log and status.
#[test]
fn a_cache_without_space_says_so() {
    let scene = Scene::new(64 * MIB, &["--sparse"]);
    let address = format!("unix:{}", scene.place.path("nbd.sock").display());
    let serve = ["serve", &scene.cache, "--nbd", &address];
    let mut child =
        limited(&scene.place, &format!("--fsize={}", 3 * MIB), &serve).spawn().expect("it starts");
    assert!(first_line(&mut child).starts_with("ready "));
    let uri = format!("nbd+unix:///disk?socket={}", scene.place.path("nbd.sock").display());
    let copied =
        Command::new("nbdcopy").args(["--flush", &scene.change, &uri]).output().expect("it is installed");
    assert!(!copied.status.success(), "4 MiB do not go into 3");
    let status = scene.status();
    assert_eq!(status["cache"]["latched"], true, "{status}");
    let because = status["cache"]["latched_because"].as_str().expect("the reason is known").to_owned();
    assert!(because.contains("File too large") && because.contains("ulimit -f"), "{because}");
    assert!(scene.place.done(&["status", &scene.cache]).contains(&because));
    assert!(stop(child).contains(&because));
}

/// Whatever the memory is at which a start fails: it says so in one line, without a backtrace.
#[test]
fn too_little_memory_is_one_line() {
    let scene = Scene::new(64 * MIB, &[]);
    for (refused, mib) in (30..1000).step_by(10).enumerate() {
        let serve = ["serve", &scene.cache];
        let mut child =
            limited(&scene.place, &format!("--as={}", mib * MIB), &serve).spawn().expect("prlimit starts");
        if first_line(&mut child).starts_with("ready ") {
            stop(child);
            assert!(refused > 3, "{mib} MiB are said to be enough");
            return;
        }
        let output = child.wait_with_output().expect("it has ended");
        let errors = String::from_utf8(output.stderr).expect("text");
        let said: Vec<&str> =
            errors.lines().filter(|line| !line.contains("io_uring is not available")).collect();
        assert_eq!((output.status.code(), said.len()), (Some(1), 1), "{mib} MiB: {errors}");
        assert_eq!(
            errors.matches("(os error").count(),
            said[0].matches("(os error").count().min(1),
            "{errors}"
        );
    }
    panic!("1000 MiB are enough");
}

#[test]
fn an_error_of_the_system_is_told_once() {
    let scene = Scene::new(64 * MIB, &[]);
    let nowhere = format!("unix:{}", scene.place.path("nowhere/nbd.sock").display());
    let output = scene.place.forebay(&["serve", &scene.cache, "--nbd", &nowhere]);
    let errors = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(
        errors.contains("could not listen on unix:")
            && errors.contains("(make its directory first)")
            && errors.matches("os error").count() == 1,
        "{errors}"
    );
}

/// Notes that cannot be written are found before anything is formatted.
#[test]
fn a_create_without_a_place_for_notes_formats_nothing() {
    let place = Place::new();
    let (origin, cache) = (place.file("slow.img", 16 * MIB), place.file("fast.img", 64 * MIB));
    let create = ["create", "--origin", &origin, "--cache", &cache, "--state-dir", &origin];
    place.refused(&create, 1, &[&origin]);
    assert!(fs::read(&cache).expect("a file").iter().all(|&byte| byte == 0), "nothing was written");
}
