//! Goal: `top` shows a running cache in a real terminal, goes on when the daemon goes, and gives the terminal back.
//! Method: tmux on a socket of its own.

use crate::scene::Scene;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A terminal of 160 columns; ended when dropped.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn new(scene: &Scene, command: &str) -> Terminal {
        let socket = scene.place.path("tmux.sock").to_str().expect("a plain path").to_owned();
        let terminal = Terminal { socket };
        let exit = "; echo over=$?; sleep 60";
        let shell = format!("{command}{exit}");
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "160", "-y", "40", &shell], scene);
        terminal
    }

    fn tmux(&self, arguments: &[&str], scene: &Scene) -> String {
        let output = Command::new("tmux")
            .args(["-S", &self.socket])
            .args(arguments)
            .env("FOREBAY_STATE_DIR", scene.place.path("state"))
            .env("FOREBAY_RUN_DIR", scene.place.path("run"))
            .env("TERM", "xterm-256color")
            .output()
            .expect("tmux is installed");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the screen has all these words.
    fn wait_for(&self, words: &[&str], scene: &Scene) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p"], scene);
            if words.iter().all(|word| screen.contains(word)) {
                return screen;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{words:?} are missing in:\n{screen}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = Command::new("tmux").args(["-S", &self.socket, "kill-server"]).output();
    }
}

#[test]
fn top_shows_a_cache_and_gives_the_terminal_back() {
    let scene = Scene::new(32 * MIB, &["--mode", "writeback"]);
    let daemon = scene.serve();
    let terminal = Terminal::new(&scene, &format!("{} top {}", env!("CARGO_BIN_EXE_forebay"), scene.cache));
    terminal.wait_for(&["volume", "disk", "writeback", "active", "session 1", "q ends"], &scene);
    daemon.write("disk", &scene.change);
    for _ in 0..4 {
        daemon.read("disk");
        std::thread::sleep(Duration::from_millis(300));
    }
    let screen = terminal.wait_for(&["hit ratio", "requests", "dirty"], &scene);
    let has_plot = |screen: &str| screen.chars().any(|character| ('▁'..='█').contains(&character));
    let begun = Instant::now();
    while !has_plot(&terminal.tmux(&["capture-pane", "-p"], &scene)) {
        assert!(begun.elapsed() < Duration::from_secs(10), "nothing is plotted:\n{screen}");
        daemon.read("disk");
    }
    daemon.stop();
    terminal.wait_for(&["not running"], &scene);
    let daemon = scene.serve();
    terminal.wait_for(&["session 2"], &scene);
    terminal.tmux(&["resize-window", "-x", "40", "-y", "8"], &scene);
    terminal.wait_for(&["volume"], &scene);
    terminal.tmux(&["send-keys", "q"], &scene);
    let screen = terminal.wait_for(&["over=0"], &scene);
    assert!(!screen.contains("q ends"), "the page is gone:\n{screen}");
    daemon.stop();
}

#[test]
fn top_tells_of_a_half_that_is_lost() {
    let (scene, mirror) = crate::mirrored::scene(&[]);
    std::fs::remove_file(&mirror).expect("the half is there");
    let daemon = scene.serve();
    let terminal = Terminal::new(&scene, &format!("{} top {}", env!("CARGO_BIN_EXE_forebay"), scene.cache));
    terminal.wait_for(&["degraded: ", "does not count; forebay replace"], &scene);
    daemon.stop();
}

#[test]
fn top_without_a_terminal_or_a_daemon_is_one_line() {
    let scene = Scene::new(32 * MIB, &[]);
    scene.place.refused(&["top", &scene.cache], 1, &["needs a terminal", "forebay stats"]);
    let terminal = Terminal::new(&scene, &format!("{} top {}", env!("CARGO_BIN_EXE_forebay"), scene.cache));
    terminal.wait_for(&["is not running", "over=1"], &scene);
}
