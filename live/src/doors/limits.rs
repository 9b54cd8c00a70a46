//! Limits of clients: how many there are, and what each may have at a time; and how many were turned away.

use crate::buffers::Pool;

/// Default of [`ClientLimits::clients`].
pub const CLIENTS_DEFAULT: usize = 256;
/// Default of [`ClientLimits::requests`].
pub const CLIENT_REQUESTS_DEFAULT: usize = 512;
/// The least memory of one client.
pub const CLIENT_MEMORY_BYTES_MIN: u64 = 256 << 10;

/// The part of the doors' memory that one client may have at most: one in so many.
pub(crate) const SHARE: u64 = 4;

/// Limits of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Most clients. One more waits a moment for a place, and is closed if none gets free.
    pub clients: usize,
    /// Most requests of one client that are under way; the next one waits on its socket.
    pub requests: usize,
    /// Most memory that one client holds, at least [`CLIENT_MEMORY_BYTES_MIN`]; never more than a quarter of all.
    pub memory_bytes: u64,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits { clients: CLIENTS_DEFAULT, requests: CLIENT_REQUESTS_DEFAULT, memory_bytes: u64::MAX }
    }
}

impl ClientLimits {
    /// Memory that one client may hold of this pool.
    pub(crate) fn share_bytes(&self, pool: &Pool) -> u64 {
        self.memory_bytes.clamp(CLIENT_MEMORY_BYTES_MIN, pool.door_quota_bytes() / SHARE)
    }
}

/// Clients as they are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientFigures {
    /// Those that are connected.
    pub connected: usize,
    /// The most that may be.
    pub limit: usize,
    /// Those that found no place, since the start.
    pub sent_away: u64,
    /// Those that were refused for what they are, since the start.
    pub refused: u64,
}

/// Clients that did not stay, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnedAway {
    pub sent_away: u64,
    pub refused: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::DOOR_BYTES_MIN;

    #[test]
    fn a_share_is_a_quarter_at_most() {
        let pool = Pool::new(DOOR_BYTES_MIN).expect("memory for a test");
        let of = |memory_bytes| ClientLimits { memory_bytes, ..ClientLimits::default() }.share_bytes(&pool);
        assert_eq!(of(u64::MAX), pool.door_quota_bytes() / 4);
        assert_eq!(of(1 << 20), 1 << 20);
        assert_eq!(of(1), CLIENT_MEMORY_BYTES_MIN);
    }
}
