//! From a run that found something to a simpler one that finds it, too.

use super::knobs::Knob;
use super::report::Failure;
use super::run_with;
use engine::mutation::Mutations;

/// Tries simpler options as long as a violation of the same kind is found, with `attempts` runs at the most.
#[must_use]
pub fn shrink(failure: &Failure, mutations: Mutations, attempts: u32) -> Failure {
    let mut best = failure.clone();
    let mut left = attempts;
    let mut is_better = true;
    while is_better {
        is_better = false;
        for &knob in Knob::ALL {
            if best.options.is_idle(knob) {
                continue;
            }
            let value = best.options.get(knob);
            let (off, toward) = (knob.off(), value.midpoint(knob.off()));
            let smaller = [off, toward, value.saturating_sub(1).max(off.min(value))];
            for (at, candidate) in smaller.into_iter().enumerate() {
                if left == 0 {
                    return best;
                }
                if candidate == value || smaller[..at].contains(&candidate) {
                    continue;
                }
                let mut options = best.options.clone();
                options.set(knob, candidate);
                left -= 1;
                if let Some(found) = run_with(&options, mutations, false).failure
                    && found.violation.kind == best.violation.kind
                {
                    best = found;
                    is_better = true;
                    break;
                }
            }
        }
    }
    best
}
