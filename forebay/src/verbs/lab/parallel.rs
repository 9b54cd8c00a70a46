//! Many tasks, several at a time; one that panics does not end the others.

use super::defect;
use std::num::NonZeroU16;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Interval at which the progress is shown.
const REFRESH: Duration = Duration::from_millis(200);

/// Tasks at the same time: the number asked for, or that of the cores.
pub(super) fn threads(wanted: Option<NonZeroU16>) -> usize {
    wanted.map_or_else(
        || thread::available_parallelism().map_or(1, usize::from),
        |threads| usize::from(threads.get()),
    )
}

/// Carries out all tasks, begun in their order; the results are in that order, too. `show` is called now and then.
/// The result of a task that panics is a line that says so.
pub(super) fn carry_out<T: Send + 'static, R: Send + 'static>(
    tasks: Vec<T>,
    threads: usize,
    work: impl Fn(T) -> Result<R, String> + Send + Sync + 'static,
    show: &mut dyn FnMut(),
) -> Vec<Result<R, String>> {
    let work = Arc::new(work);
    let mut results: Vec<Option<Result<R, String>>> = tasks.iter().map(|_| None).collect();
    let (sender, receiver) = mpsc::channel();
    let (mut waiting, mut under_way) = (tasks.into_iter().enumerate(), 0);
    loop {
        for (at, task) in waiting.by_ref().take(threads - under_way) {
            let (work, sender) = (Arc::clone(&work), sender.clone());
            // The receiver is gone only if the program is about to end.
            defect::spawn(move || work(task), move |result| drop(sender.send((at, result))));
            under_way += 1;
        }
        if under_way == 0 {
            return results.into_iter().flatten().collect();
        }
        show();
        if let Ok((at, result)) = receiver.recv_timeout(REFRESH) {
            results[at] = Some(result.unwrap_or_else(|defect| Err(format!("a defect: {defect}"))));
            under_way -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_come_in_order_and_a_panic_is_one_of_them() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            move |task: u64| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // The later ones end earlier.
                thread::sleep(Duration::from_millis(20 - 2 * task));
                now.fetch_sub(1, Ordering::SeqCst);
                match task {
                    3 => panic!("it is wrong"),
                    4 => Err("it cannot be".to_owned()),
                    _ => Ok(task),
                }
            }
        };
        let results = carry_out((0..6).collect(), 3, work, &mut || ());
        assert_eq!((results.len(), most.load(Ordering::SeqCst) <= 3), (6, true));
        for (at, result) in (0..).zip(&results) {
            match at {
                3 => assert!(result.as_ref().is_err_and(|line| line.starts_with("a defect: it is wrong"))),
                4 => assert_eq!(result, &Err("it cannot be".to_owned())),
                _ => assert_eq!(result, &Ok(at)),
            }
        }
    }
}
