//! The wear budget: set, or else said at the start; and what of it was spent, noted for the next daemon.

use super::Running;
use crate::report::now_seconds;
use crate::setting::Kept;
use anyhow::Result;
use engine::effect::WearBudget;
use engine::status::Status;
use live::server::ControlOp;

/// Seconds of a day.
const DAY_SECONDS: u64 = 24 * 3600;

/// Bytes that still count as spent, when some were noted a while ago: seven eighths of a budget flow off in a day, as in
/// the engine. A clock that went back counts as no time.
fn still_spent_bytes(day_bytes: u64, (noted_bytes, noted_at): (u64, u64), now: u64) -> u64 {
    let elapsed = now.saturating_sub(noted_at).min(2 * DAY_SECONDS);
    let flown_off = u128::from(day_bytes / 8 * 7) * u128::from(elapsed) / u128::from(DAY_SECONDS);
    noted_bytes.saturating_sub(u64::try_from(flown_off).unwrap_or(u64::MAX))
}

impl Running {
    /// Keeps a setting of the whole cache, and works by it from now on.
    pub(super) fn keep_of_cache(&self, kept: Kept) -> Result<()> {
        self.note_wear(&self.picture()?)?;
        self.record.change(|record| record.keep("", kept))?;
        self.apply_wear_budget()
    }

    /// Works by the wear budget from now on.
    pub(super) fn apply_wear_budget(&self) -> Result<()> {
        let (settings, noted) = self.record.of_cache();
        let set = settings.iter().find_map(|kept| match kept {
            Kept::WearBudget(day_bytes) => Some(*day_bytes),
            _ => None,
        });
        let day_bytes = set.unwrap_or(self.watching.wear_budget_bytes);
        let budget = day_bytes.map(|day_bytes| WearBudget {
            day_bytes,
            spent_bytes: still_spent_bytes(day_bytes, noted, now_seconds()),
        });
        // The request needs one, and any will do. Without volumes nothing is cached.
        let Some(served) = self.volumes.all().into_iter().next() else { return Ok(()) };
        self.request(&served, ControlOp::SetWearBudget(budget), "cannot set the wear budget of the cache")
    }

    /// Notes what of the wear budget was spent.
    pub(super) fn note_wear(&self, status: &Status) -> Result<()> {
        let Some(wear) = status.cache.wear else { return Ok(()) };
        self.record.change(|record| record.wear = (wear.spent_bytes, now_seconds()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_flows_off_while_no_daemon_runs() {
        let spent = |seconds| still_spent_bytes(8000, (1000, 100), 100 + seconds);
        assert_eq!((spent(0), spent(DAY_SECONDS / 10), spent(DAY_SECONDS / 5)), (1000, 300, 0));
        assert_eq!(still_spent_bytes(8000, (1000, 100), 50), 1000, "the clock went back");
        assert_eq!(still_spent_bytes(u64::MAX, (u64::MAX, 0), u64::MAX), 0);
    }
}
