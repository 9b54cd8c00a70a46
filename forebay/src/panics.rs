//! Panics of a daemon: one in any thread ends the whole, whatever profile it was built with.
//!
//! The profile of this repository aborts where it panics. A build from the packages has cargo's own profile, with which
//! a panic ends its thread alone: the others would go on without it.

use std::panic;
use std::process;

/// From now on a panic in any thread says what it has to say and ends the program.
pub(crate) fn end_all() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        usual(info);
        process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::thread;

    /// Set in the process of its own in which the panic happens.
    const INSIDE: &str = "FOREBAY_TEST_PANICS";

    #[test]
    fn one_thread_that_panics_takes_the_others_with_it() {
        if env::var_os(INSIDE).is_some() {
            end_all();
            let panicked = thread::spawn(|| panic!("it is wrong")).join();
            assert!(panicked.is_ok(), "the thread went alone");
            return;
        }
        let test = "panics::tests::one_thread_that_panics_takes_the_others_with_it";
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{said}");
        assert!(said.contains("it is wrong") && !said.contains("the thread went alone"), "{said}");
    }
}
