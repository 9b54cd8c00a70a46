//! The numbers of a model that come nearest to a study's native rows.
//!
//! A search along one number after the other: up and down by a step, kept if the rows come nearer, and with a
//! smaller step when nothing helps. It has no chance in it, so anyone gets the same numbers from the same start.

use super::fit::{BASES, Base};
use super::procedure::Scale;
use models::{Parameters, Value};

/// The steps, in thousandths of a number.
const STEPS_PERMILLE: [u64; 5] = [200, 100, 50, 20, 10];

/// Which numbers of a model are searched. The others come from data sheets or are assumed, as the model's file says.
/// A number of a list is `name[index]`.
#[must_use]
pub fn free_parameters(model: &str) -> &'static [&'static str] {
    match model {
        "samsung-hd155ui" => &["seek_track_to_track_us", "seek_average_us"],
        "samsung-830" => &["read_us", "read_latency_us"],
        "enhanceio-2013-hdd" => {
            &["read_segments", "read_turn_requests", "write_turn_places", "seek_average_us"]
        }
        "enhanceio-2013-ssd" => &["command_ns", "write_command_ns", "read_latency_us", "write_latency_us"],
        "wd-re-4tb" => &["zone_mb_per_s[0]", "zone_mb_per_s[1]"],
        "samsung-850-pro" | "samsung-850-pro-freebsd" => &[
            "interface_mb_per_s",
            "command_ns",
            "write_command_ns",
            "read_us",
            "read_latency_us",
            "write_latency_us",
            "program_us",
            "spare_permille",
        ],
        "iozone-2014-hdd" => &[
            "seek_track_to_track_us",
            "age_limit_ms",
            "write_choices",
            "write_turn_places",
            "zone_mb_per_s[0]",
        ],
        "iozone-2014-ssd" => &["interface_mb_per_s", "read_us", "program_us", "read_latency_us"],
        _ => &[],
    }
}

/// Progress of the search.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The parameter it looks at.
    pub key: &'static str,
    /// The mean square of the relative errors.
    pub error: f64,
    /// The best parameters so far.
    pub parameters: Parameters,
}

/// Searches from the model's built-in numbers. `tell` hears of every improvement, and says whether to go on.
#[must_use]
pub fn search(model: &str, tell: &mut dyn FnMut(&Progress) -> bool) -> Option<Parameters> {
    let mut best = models::find(model)?;
    let mut error = error_of(model, &best);
    for permille in STEPS_PERMILLE {
        let mut is_better = true;
        while is_better {
            is_better = false;
            for key in free_parameters(model) {
                for is_up in [true, false] {
                    // As far in one direction as it helps.
                    while let Some(tried) = stepped(&best, key, permille, is_up) {
                        let tried_error = error_of(model, &tried);
                        if tried_error >= error * 0.999 {
                            break;
                        }
                        (best, error, is_better) = (tried, tried_error, true);
                        if !tell(&Progress { key, error, parameters: best.clone() }) {
                            return Some(best);
                        }
                    }
                }
            }
        }
    }
    Some(best)
}

/// The mean square of the relative errors over all fitted rows of all systems that are this model.
fn error_of(model: &str, parameters: &Parameters) -> f64 {
    let bases = BASES.iter().filter(|base| base.model.strip_suffix("-full").unwrap_or(base.model) == model);
    let (mut sum, mut count) = (0.0, 0.0);
    for base in bases {
        let fits = base.fits(&in_state_of(base, parameters), Scale::Short);
        for fit in fits.iter().filter(|fit| fit.is_fitted() && fit.exception().is_none()) {
            let ratio = (fit.model / fit.figure.value).ln();
            sum += ratio * ratio;
            count += 1.0;
        }
    }
    sum / f64::max(count, 1.0)
}

/// The parameters, full if the base is.
fn in_state_of(base: &Base, parameters: &Parameters) -> Parameters {
    let mut parameters = parameters.clone();
    for key in ["fill_permille", "fill_scattered"] {
        let state = base.parameters().describe().into_iter().find(|described| described.key == key);
        if let Some(state) = state {
            parameters.set(key, state.value).expect("a value of the same disk");
        }
    }
    parameters
}

/// The parameters with one number changed, if the model allows it.
fn stepped(parameters: &Parameters, key: &str, permille: u64, is_up: bool) -> Option<Parameters> {
    let (name, index) = match key.strip_suffix(']').and_then(|key| key.split_once('[')) {
        Some((name, index)) => (name, index.parse().ok()?),
        None => (key, 0usize),
    };
    let step = |number: u64| {
        let by = (number * permille / 1000).max(1);
        if is_up { number.checked_add(by) } else { number.checked_sub(by) }
    };
    let described = parameters.describe().into_iter().find(|described| described.key == name)?;
    let value = match described.value {
        Value::Number(number) => Value::Number(step(number)?),
        Value::Numbers(mut numbers) => {
            let number = numbers.get_mut(index)?;
            *number = step(*number)?;
            Value::Numbers(numbers)
        }
        Value::Flag(_) => return None,
    };
    let mut changed = parameters.clone();
    changed.set(name, value).ok()?;
    Some(changed)
}
