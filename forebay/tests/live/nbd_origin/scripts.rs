//! The scripts that bring up a real cluster and a real bucket, `scripts/ceph` and `scripts/bucket`.

use crate::daemon::{Site, end_of};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A script of this repository, with the programs that it unpacks below the build.
#[derive(Clone, Copy, Debug)]
pub struct Script(pub &'static str);

impl Script {
    /// The words of a command line that runs it with these arguments.
    pub fn words(self, arguments: &[&str]) -> Vec<String> {
        let built = Path::new(env!("CARGO_BIN_EXE_forebay")).ancestors().nth(2).expect("a build directory");
        let path = format!("{}/../scripts/{}", env!("CARGO_MANIFEST_DIR"), self.0);
        let first = ["env".to_owned(), format!("TARGET={}", built.display()), path];
        first.into_iter().chain(arguments.iter().map(|word| (*word).to_owned())).collect()
    }

    fn command(self, arguments: &[&str]) -> Command {
        let words = self.words(arguments);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(words);
        command.stdin(Stdio::null());
        command
    }

    /// Whether a test has to do without, because what the script needs is not to be had here. It says so on the
    /// terminal even if the test passes: what was not tested is nobody's secret.
    pub fn is_left_out(self, test: &str) -> bool {
        let why = if std::env::var_os("FOREBAY_SKIP_ORIGINS").is_some_and(|value| value == "1") {
            "FOREBAY_SKIP_ORIGINS=1".to_owned()
        } else {
            let output = self.command(&["get"]).output().expect("setpriv starts");
            let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            match output.status.code() {
                Some(0) => return false,
                Some(3) => told,
                _ => panic!("scripts/{} get: {}: {told}", self.0, output.status),
            }
        };
        // Not by a macro: what those say is shown of failed tests only.
        let _ = writeln!(std::io::stderr(), "\nSKIPPED: {test}: {why}");
        true
    }

    /// Runs it with these arguments, which must work; its standard output.
    pub fn run(self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("setpriv starts");
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "scripts/{} {arguments:?}: {}: {wrong}", self.0, output.status);
        String::from_utf8(output.stdout).expect("text")
    }

    /// Starts a program that goes on; what it says goes to a log in the site.
    pub fn start(self, site: &Site, arguments: &[&str]) -> Process {
        let log = File::create(site.path(&format!("{}-{}.log", self.0, arguments[0]))).expect("a log");
        let errors = log.try_clone().expect("a second handle of the log");
        let child = self.command(arguments).stdout(log).stderr(errors).spawn().expect("setpriv starts");
        Process(child)
    }
}

/// A program that goes on; killed when it goes.
pub struct Process(Child);

impl Process {
    /// Asks it for a clean end, and waits for it.
    pub fn stop(mut self) {
        crate::daemon::tool("sh", &["-c", &format!("kill -TERM {}", self.0.id())]);
        end_of(&mut self.0).expect("it ends when it is asked to");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        end_of(&mut self.0);
    }
}
