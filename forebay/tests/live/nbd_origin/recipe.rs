//! The recipe docs/recipes/nbd.md, its commands run as they are written there.

use super::{Known, MIB, wait_until};
use crate::daemon::{Site, end_of};
use live::nbd::client::{Address, Client};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const RECIPE: &str = include_str!("../../../../docs/recipes/nbd.md");

/// The commands below a mark of the recipe.
fn commands(mark: &str) -> String {
    let mark = format!("<!-- {mark} -->\n");
    let (_, rest) = RECIPE.split_once(&mark).unwrap_or_else(|| panic!("the recipe has {mark}"));
    let lines: Vec<&str> = rest.lines().take_while(|line| line.starts_with("    ")).collect();
    assert!(!lines.is_empty(), "{mark} has commands");
    lines.join("\n")
}

/// A shell with the recipe's variables, in which `forebay` is the one under test.
fn shell(site: &Site, port: u16, script: &str) -> Command {
    let forebay = Path::new(env!("CARGO_BIN_EXE_forebay")).parent().expect("a directory");
    let path = format!("{}:{}", forebay.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "sh", "-ec", script]).env("PATH", path);
    command.envs([("SERVER", "127.0.0.1"), ("PORT", &port.to_string())]);
    command.envs([("DISK", site.path("disk")), ("SSD", site.path("ssd")), ("SOCKET", site.path("socket"))]);
    command.envs([("FOREBAY_STATE_DIR", site.path("state")), ("FOREBAY_RUN_DIR", site.path("run"))]);
    command.stdin(Stdio::null());
    command
}

fn run(site: &Site, port: u16, mark: &str) -> String {
    let output = shell(site, port, &commands(mark)).output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{mark}: {told}{}", String::from_utf8_lossy(&output.stderr));
    told
}

/// A command that goes on; ended when it goes.
struct Running(Child);

impl Running {
    fn start(site: &Site, port: u16, mark: &str) -> Running {
        let script = format!("exec {}", commands(mark).trim_start());
        let child = shell(site, port, &script).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Running(child.expect("a shell"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        end_of(&mut self.0);
    }
}

#[test]
fn the_recipe_works_as_it_is_written() {
    let site = Site::new("recipe");
    let disk = site.file("disk", 48 * MIB);
    site.file("ssd", 32 * MIB);
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = free.local_addr().expect("its address").port();
    drop(free);
    let server = Running::start(&site, port, "server");
    wait_until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert!(run(&site, port, "create").contains("volume archive"));
    let daemon = Running::start(&site, port, "serve");
    let address = Address::Unix(site.path("socket").into());
    wait_until("the daemon serves", || Client::connect(&address, "archive").is_ok());
    let mut known = Known::new(48 * MIB);
    known.write(&mut Client::connect(&address, "archive").expect("it serves"), 100);
    let told = run(&site, port, "look");
    assert!(told.contains("export=\"archive\"") && told.contains("volume     archive"), "{told}");
    run(&site, port, "out");
    drop(daemon);
    drop(server);
    known.compare_file(&disk);
}
