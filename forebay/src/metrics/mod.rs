//! Metrics: what a daemon does, for Prometheus, at `http://ADDRESS/metrics`.
//!
//! The page is made anew for each scrape from the same reports that `status` and `stats` print: nothing is counted
//! twice, and clients' requests pay for no counter of it.

mod page;

use crate::http::{Answer, Asked, Site};
use crate::watchers::Source;
use live::server::ListenAddress;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use thiserror::Error;

/// The site of a daemon's metrics: one page.
pub struct MetricsSite<S>(pub Arc<S>);

impl<S: Source> Site for MetricsSite<S> {
    fn answer(&self, asked: &Asked) -> Answer {
        match asked.path.as_str() {
            "/metrics" => {}
            "/" => return Answer::text("200 OK", "forebay: the metrics are at /metrics"),
            _ => return Answer::text("404 Not Found", "the metrics are at /metrics"),
        }
        match self.0.figures().map(|figures| page::encode(&figures, self.0.advice().ok().as_ref())) {
            Ok(Ok(body)) => Answer { status: "200 OK", kind: page::CONTENT_TYPE, headers: Vec::new(), body },
            Ok(Err(_)) => Answer::text("500 Internal Server Error", "the page could not be made"),
            Err(error) => Answer::text("503 Service Unavailable", &format!("{error:#}")),
        }
    }
}

/// An address to serve metrics at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsAddress(pub ListenAddress);

/// A text that is no address for metrics.
#[derive(Debug, Error)]
#[error("`{text}` is no address for metrics; write {form}")]
pub struct MetricsAddressError {
    text: String,
    form: String,
}

impl FromStr for MetricsAddress {
    type Err = MetricsAddressError;

    fn from_str(text: &str) -> Result<MetricsAddress, MetricsAddressError> {
        let wrong = || MetricsAddressError {
            text: text.to_owned(),
            form: if text.starts_with('/') {
                format!("unix:{text} for a socket there")
            } else {
                "HOST:PORT with a numeric host, :PORT, or unix:PATH".to_owned()
            },
        };
        // A host alone would get the port of NBD.
        if text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
            return Err(wrong());
        }
        text.parse().map(MetricsAddress).map_err(|_| wrong())
    }
}

impl MetricsAddress {
    /// Whether only this machine reaches it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match &self.0 {
            ListenAddress::Unix(_) => true,
            ListenAddress::Tcp(address) => address.ip().is_loopback(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        let address: MetricsAddress = ":9419".parse().expect("a port on loopback");
        assert!(address.is_local());
        assert!(!"0.0.0.0:9419".parse::<MetricsAddress>().expect("any host").is_local());
        assert!("unix:/run/m".parse::<MetricsAddress>().expect("a socket").is_local());
        for wrong in ["127.0.0.1", "[::1]", "example.org:9419", "9419", ""] {
            assert!(wrong.parse::<MetricsAddress>().is_err(), "{wrong}");
        }
        let path = "/run/m".parse::<MetricsAddress>().expect_err("it lacks its kind").to_string();
        assert!(path.ends_with("write unix:/run/m for a socket there"), "{path}");
    }
}
