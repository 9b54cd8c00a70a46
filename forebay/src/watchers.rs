//! Watchers: those who look at a daemon over HTTP, metrics and the web page.

use crate::access::Group;
use crate::arguments::Watching;
use crate::http::{Endpoint, SocketFile};
use crate::metrics::MetricsSite;
use crate::report::{AdviceReport, StatsReport, StatusReport};
use crate::web::{self, WebSite};
use anyhow::{Result, bail};
use live::server::{ListenAddress, SOCKET_PERMISSIONS_DEFAULT};
use std::sync::Arc;

/// Figures of a daemon at one moment.
pub struct Figures {
    /// Its status.
    pub status: StatusReport,
    /// Its statistics.
    pub stats: StatsReport,
}

/// A daemon that tells its figures.
pub trait Source: Send + Sync + 'static {
    /// The figures now.
    ///
    /// # Errors
    /// If it is stopping.
    fn figures(&self) -> Result<Figures>;

    /// Advice from its load.
    ///
    /// # Errors
    /// If it is stopping, or has no cache to give advice on.
    fn advice(&self) -> Result<AdviceReport>;
}

/// Endpoints that listen already, and serve nothing yet: taken before anything begins, like all that a start may lack.
#[derive(Default)]
pub struct Watchers {
    metrics: Option<Endpoint>,
    web: Option<Endpoint>,
}

impl Watchers {
    /// Listens at the addresses that are wanted; the file of a unix socket gets this group.
    ///
    /// # Errors
    /// If one of them cannot be had, or is open to others without a word that this is meant.
    pub fn open(watching: &Watching, group: Option<Group>) -> Result<Watchers> {
        let Watching { metrics, metrics_mode, metrics_remote, web, .. } = watching;
        let metrics = match metrics {
            Some(address) if !address.is_local() && !metrics_remote => bail!(
                "metrics at {} would be open to other machines, without a password; say --metrics-remote if that is meant",
                address.0
            ),
            Some(address) => {
                let permissions = metrics_mode.unwrap_or(SOCKET_PERMISSIONS_DEFAULT);
                Some(Endpoint::bind("metrics", &address.0, permissions, group)?)
            }
            None => None,
        };
        let web = match web {
            Some(address) => {
                let address = ListenAddress::Tcp(address.0);
                Some(Endpoint::bind("web", &address, SOCKET_PERMISSIONS_DEFAULT, None)?)
            }
            None => None,
        };
        Ok(Watchers { metrics, web })
    }

    /// The addresses of metrics and of the web page, as bound.
    #[must_use]
    pub fn addresses(&self) -> (Option<ListenAddress>, Option<ListenAddress>) {
        let address = |endpoint: &Option<Endpoint>| endpoint.as_ref().map(|one| one.address().clone());
        (address(&self.metrics), address(&self.web))
    }

    /// Serves from now on, until the process ends. The file of a socket goes when the returned guard is dropped.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn serve<S: Source>(self, source: &Arc<S>) -> Result<Option<SocketFile>> {
        if let Some(endpoint) = self.web {
            let hour = web::keep_hour(Arc::clone(source))?;
            endpoint.serve(Arc::new(WebSite::new(Arc::clone(source), hour)))?;
        }
        match self.metrics {
            Some(endpoint) => endpoint.serve(Arc::new(MetricsSite(Arc::clone(source)))),
            None => Ok(None),
        }
    }
}
