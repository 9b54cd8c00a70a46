//! Work whose panic does not end the program's other work.
//!
//! A release aborts where it panics, which is right for a server of data. A study is hours of other people's runs: a
//! work that panics reports that and waits for the end of the program, with whatever it holds.

use std::cell::RefCell;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;
use std::thread;

type Tell = Box<dyn FnOnce(String)>;

thread_local! {
    /// The receiver of this thread's panics.
    static TELL: RefCell<Option<Tell>> = const { RefCell::new(None) };
}

/// Works on a thread of its own. `tell` gets the result, or the message and place of a panic, in one line.
pub(super) fn spawn<T: 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    tell: impl Fn(Result<T, String>) + Clone + Send + 'static,
) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| match TELL.take() {
            None => usual(info),
            Some(tell) => {
                tell(line(info));
                // A return from here aborts the program, where a panic does not end the thread alone. (The hook cannot be
                // changed any more then.)
                while cfg!(panic = "abort") {
                    thread::park();
                }
            }
        }));
    });
    thread::spawn(move || {
        let tell_defect = tell.clone();
        TELL.set(Some(Box::new(move |defect| tell_defect(Err(defect)))));
        let result = work();
        TELL.set(None);
        tell(Ok(result));
    });
}

fn line(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map_or_else(String::new, |at| format!(" ({}:{})", at.file(), at.line()));
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
    format!("{}{place}", text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn one_that_panics_tells_so_and_the_others_go_on() {
        let (sender, receiver) = mpsc::channel();
        for number in 0..3u32 {
            let sender = sender.clone();
            let work = move || if number == 1 { panic!("it is\n wrong") } else { number };
            spawn(work, move |result| drop(sender.send((number, result))));
        }
        let mut told: Vec<(u32, Result<u32, String>)> = receiver.iter().take(3).collect();
        told.sort_by_key(|(number, _)| *number);
        assert_eq!((&told[0].1, &told[2].1), (&Ok(0), &Ok(2)));
        let defect = told[1].1.as_ref().expect_err("it panicked");
        assert!(defect.starts_with("it is wrong (") && defect.contains("defect.rs:"), "{defect}");
    }
}
