//! A limit on connections that are answered in threads of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit on connections, and how many there are.
pub struct ConnectionLimit {
    admitted: Arc<AtomicUsize>,
    most: usize,
}

impl ConnectionLimit {
    /// So many at the same time.
    #[must_use]
    pub fn new(most: usize) -> ConnectionLimit {
        ConnectionLimit { admitted: Arc::default(), most }
    }

    /// Admits one more, until what is returned is dropped; `None` if there are enough.
    #[must_use]
    pub fn admit(&self) -> Option<Admitted> {
        let before = self.admitted.fetch_add(1, Ordering::Relaxed);
        let one = Admitted(Arc::clone(&self.admitted));
        // Dropped, it is counted no more.
        (before < self.most).then_some(one)
    }
}

/// A connection that was admitted.
pub struct Admitted(Arc<AtomicUsize>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_admitted_than_it_says() {
        let limit = ConnectionLimit::new(2);
        let (first, second) = (limit.admit(), limit.admit());
        assert!(first.is_some() && second.is_some());
        assert!(limit.admit().is_none() && limit.admit().is_none());
        drop(first);
        assert!(limit.admit().is_some());
        drop(second);
    }
}
