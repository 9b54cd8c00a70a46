//! The web page: how a running cache is doing, with plots of the last hour, for browsers of this machine.
//!
//! One page without any other resource, and the figures behind it as JSON: those of `status`, `stats` and `advise`, and
//! the hour. It is off unless it is asked for, and listens on loopback alone. Any page that a browser shows may send
//! requests there, under a name of its own that leads to this machine: so the host must be one of ours, and what is
//! answered may not be shown inside of another page.
//!
//! | file | subject |
//! | --- | --- |
//! | `address.rs` | where it may be served |
//! | `hour.rs` | the last hour, in memory with a bound |
//! | `page.html` | the page |

mod address;
mod hour;

pub use address::WebAddress;

use crate::http::{Answer, Asked, Site};
use crate::interrupt::spawn;
use crate::watchers::{Figures, Source};
use address::is_ours;
use anyhow::Result;
use hour::Hour;
use serde::Serialize;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The page; `{nonce}` stands where a number goes that nobody knows before.
const PAGE: &str = include_str!("page.html");
const PAGE_KIND: &str = "text/html; charset=utf-8";
const JSON_KIND: &str = "application/json";
/// From one look to the next.
const PERIOD: Duration = Duration::from_secs(1);

/// The site of the page.
pub struct WebSite<S> {
    source: Arc<S>,
    hour: Arc<Mutex<Hour>>,
}

/// Looks at a daemon once a second from now on, in a thread of its own.
///
/// # Errors
/// If the system has no more threads.
pub fn keep_hour<S: Source>(source: Arc<S>) -> Result<Arc<Mutex<Hour>>> {
    let hour = Arc::new(Mutex::new(Hour::default()));
    let kept = Arc::clone(&hour);
    spawn("hour", move || {
        let mut next = Instant::now();
        // Nothing is to be seen of a daemon that is stopping.
        while let Ok(Figures { status, stats }) = source.figures() {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            lock(&kept).look(Instant::now(), unix.as_secs_f64(), &status, &stats);
            next += PERIOD;
            // After a pause of the machine no look is made up for.
            next = next.max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    })?;
    Ok(hour)
}

fn lock(hour: &Mutex<Hour>) -> std::sync::MutexGuard<'_, Hour> {
    hour.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Source> WebSite<S> {
    /// The site of this daemon.
    #[must_use]
    pub fn new(source: Arc<S>, hour: Arc<Mutex<Hour>>) -> WebSite<S> {
        WebSite { source, hour }
    }
}

impl<S: Source> Site for WebSite<S> {
    fn answer(&self, asked: &Asked) -> Answer {
        let mut answer = if asked.host.as_deref().is_some_and(is_ours) {
            match asked.path.as_str() {
                "/" => return page(),
                "/status.json" => json(self.source.figures().map(|figures| figures.status)),
                "/stats.json" => json(self.source.figures().map(|figures| figures.stats)),
                "/advice.json" => json(self.source.advice()),
                "/hour.json" => json(Ok(lock(&self.hour).series())),
                _ => Answer::text("404 Not Found", "the page is at /"),
            }
        } else {
            Answer::text("421 Misdirected Request", "this page is at localhost alone")
        };
        answer.headers.extend(guards("default-src 'none'; frame-ancestors 'none'".to_owned()));
        answer
    }
}

/// Headers that keep other pages away from what is answered.
fn guards(policy: String) -> [(&'static str, String); 5] {
    [
        ("Content-Security-Policy", policy),
        ("Cross-Origin-Resource-Policy", "same-origin".to_owned()),
        ("Cross-Origin-Opener-Policy", "same-origin".to_owned()),
        ("Referrer-Policy", "no-referrer".to_owned()),
        ("Cache-Control", "no-store".to_owned()),
    ]
}

fn page() -> Answer {
    let Ok(nonce) = nonce() else {
        return Answer::text("503 Service Unavailable", "the system gives no random numbers");
    };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let body = PAGE.replace("{nonce}", &nonce);
    Answer { status: "200 OK", kind: PAGE_KIND, headers: guards(policy).into(), body }
}

/// A number that nobody can guess.
fn nonce() -> Result<String, rustix::io::Errno> {
    let mut bytes = [0_u8; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK)?;
    if filled < bytes.len() {
        return Err(rustix::io::Errno::AGAIN);
    }
    let mut nonce = String::new();
    for byte in bytes {
        // Text in memory has room.
        let _ = write!(nonce, "{byte:02x}");
    }
    Ok(nonce)
}

fn json(value: Result<impl Serialize>) -> Answer {
    match value.and_then(|value| Ok(serde_json::to_string(&value)?)) {
        Ok(body) => Answer { status: "200 OK", kind: JSON_KIND, headers: Vec::new(), body },
        Err(error) => Answer::text("503 Service Unavailable", &format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::AdviceReport;
    use anyhow::bail;

    struct Stopping;

    impl Source for Stopping {
        fn figures(&self) -> Result<Figures> {
            bail!("the daemon is stopping")
        }

        fn advice(&self) -> Result<AdviceReport> {
            bail!("the cache is missing")
        }
    }

    fn ask(path: &str, host: Option<&str>) -> Answer {
        let site = WebSite::new(Arc::new(Stopping), Arc::default());
        site.answer(&Asked::get(path, host))
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in [Some("localhost:9420"), Some("127.0.0.1:1"), Some("[::1]:9420"), Some("localhost")] {
            assert_eq!(ask("/hour.json", host).status, "200 OK", "{host:?}");
        }
        for host in
            [None, Some(""), Some("evil.example:9420"), Some("localhost.evil.example"), Some("10.0.0.1:9420")]
        {
            let answer = ask("/hour.json", host);
            assert_eq!(answer.status, "421 Misdirected Request", "{host:?}");
            assert!(!answer.body.contains('{'), "{host:?}: {}", answer.body);
            assert_eq!(ask("/", host).status, "421 Misdirected Request", "{host:?}");
        }
    }

    #[test]
    fn a_page_has_a_number_of_its_own_in_its_policy() {
        let (one, other) = (ask("/", Some("localhost")), ask("/", Some("localhost")));
        assert_ne!(one.body, other.body);
        let policy = &one.headers[0];
        assert_eq!(policy.0, "Content-Security-Policy");
        let nonce =
            policy.1.split("'nonce-").nth(1).and_then(|rest| rest.split('\'').next()).expect("a number");
        assert_eq!(nonce.len(), 32);
        assert_eq!(one.body.matches(&format!("nonce=\"{nonce}\"")).count(), 2, "a script and a style");
        for foreign in
            ["http://", "https://", "//cdn", "<link", "<img", "style=\"", "onclick", "{nonce}", "unsafe"]
        {
            assert!(!one.body.replace("http://www.w3.org/2000/svg", "").contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_daemon_that_cannot_answer_says_why() {
        let answer = ask("/status.json", Some("localhost"));
        assert_eq!(
            (answer.status, answer.body.as_str()),
            ("503 Service Unavailable", "the daemon is stopping\n")
        );
        assert_eq!(ask("/advice.json", Some("localhost")).body, "the cache is missing\n");
        assert_eq!(ask("/../secret", Some("localhost")).status, "404 Not Found");
    }
}
