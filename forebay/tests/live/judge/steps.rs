//! Steps of a trial, drawn from its seed: what happens to devices and daemon, when, and how a life ends.

use super::layer::Weather;
use super::ledger::Place;
use crate::verifier::Load;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::time::Duration;

/// The modes in which clients may write.
pub const MODES: [&str; 4] = ["writeback", "writethrough", "writearound", "passthrough"];

/// Something that happens while clients are at work.
#[derive(Clone, Debug)]
pub enum Step {
    /// A device behaves so from now on.
    Weather(Place, Weather),
    /// A device answers nothing for a time that is shorter than the daemon's patience.
    Pause(Place, Duration),
    /// A device answers nothing for longer than the daemon's patience.
    Hang(Place),
    /// The server of a device is gone.
    Vanish(Place),
    /// There is no room for anything new on the cache.
    Fill,
    /// All devices behave again.
    Heal,
    /// The operator changes the mode of a volume.
    Mode(usize, &'static str),
    /// The operator has all of a volume written home.
    Flush(usize),
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Kill,
    Cut,
    Stop,
}

/// A life of the daemon.
#[derive(Clone, Debug)]
pub struct Life {
    pub load: Load,
    pub depth: usize,
    pub threads: u32,
    /// Steps, each after a pause.
    pub steps: Vec<(Duration, Step)>,
    /// The pause before its end.
    pub rest: Duration,
    pub end: End,
}

/// What happens between two lives.
#[derive(Clone, Debug)]
pub enum Between {
    /// A start is killed before or after its doors open.
    Stumble(Duration),
    /// Starts while a device behaves so, as a service manager repeats them.
    Starts(Place, Weather, u32),
    /// The cache is checked.
    Check,
    /// A volume goes home, and comes back in this mode.
    Homecoming(usize, &'static str),
}

/// What the drawing depends on.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    pub volumes: usize,
    /// All devices can lose their power, and the cache can fail as it is told.
    pub is_layered: bool,
    /// Lives may take some seconds more.
    pub is_long: bool,
}

impl Life {
    /// Draws a life.
    pub fn draw(draw: &mut Xoshiro256PlusPlus, scope: Scope) -> Life {
        let mut steps = Vec::new();
        for _ in 0..draw.random_range(0..5) {
            let pause = Duration::from_millis(draw.random_range(5..120));
            steps.push((pause, Step::draw(draw, scope)));
        }
        let end = match draw.random_range(0..10) {
            0..=3 => End::Kill,
            4..=7 if scope.is_layered => End::Cut,
            4..=7 => End::Kill,
            _ => End::Stop,
        };
        let load = Load {
            writes: draw.random_range(30..70),
            flushes: draw.random_range(1..8),
            fua: draw.random_range(0..25),
            hot: draw.random_range(20..90),
            ..Load::mixed(u64::MAX, 1)
        };
        Life {
            load,
            depth: draw.random_range(1..=8),
            threads: draw.random_range(1..=3),
            steps,
            rest: Duration::from_millis(draw.random_range(10..250)),
            end,
        }
    }
}

impl Step {
    fn draw(draw: &mut Xoshiro256PlusPlus, scope: Scope) -> Step {
        let volume = draw.random_range(0..scope.volumes);
        let place = draw_place(draw, scope);
        match draw.random_range(0..20) {
            0..=7 => Step::Weather(place, draw_weather(draw)),
            8 => Step::Pause(place, Duration::from_millis(draw.random_range(50..1500))),
            9 if scope.is_long => Step::Hang(place),
            9 | 10 => Step::Vanish(place),
            11 if !scope.is_layered => Step::Fill,
            11..=14 => Step::Heal,
            15 => Step::Flush(volume),
            // Writeback is where the danger is, so the way back to it is likelier.
            16 | 17 => Step::Mode(volume, MODES[draw.random_range(0..MODES.len())]),
            _ => Step::Mode(volume, "writeback"),
        }
    }
}

/// Draws what happens before the next life.
pub fn between(draw: &mut Xoshiro256PlusPlus, scope: Scope) -> Vec<Between> {
    let mut list = Vec::new();
    if draw.random_range(0..6) == 0 {
        list.push(Between::Check);
    }
    if draw.random_range(0..4) == 0 {
        list.push(Between::Stumble(Duration::from_micros(draw.random_range(0..60_000))));
    }
    if draw.random_range(0..4) == 0 {
        let place = draw_place(draw, scope);
        let rate = [20, 200, 1000][draw.random_range(0..3)];
        let weather = match draw.random_range(0..3) {
            0 => Weather { read_errors: rate, ..Weather::default() },
            1 => Weather { change_errors: rate, flush_errors: rate, ..Weather::default() },
            _ => Weather { read_errors: rate, change_errors: rate, flush_errors: rate, ..Weather::default() },
        };
        list.push(Between::Starts(place, weather, draw.random_range(1..=3)));
    }
    if draw.random_range(0..6) == 0 {
        let volume = draw.random_range(0..scope.volumes);
        list.push(Between::Homecoming(volume, MODES[draw.random_range(0..MODES.len())]));
    }
    list
}

fn draw_place(draw: &mut Xoshiro256PlusPlus, scope: Scope) -> Place {
    if scope.is_layered && draw.random_range(0..5) < 2 {
        Place::Cache
    } else {
        Place::Origin(draw.random_range(0..scope.volumes))
    }
}

fn draw_weather(draw: &mut Xoshiro256PlusPlus) -> Weather {
    let rate = [2, 20, 200, 1000][draw.random_range(0..4)];
    match draw.random_range(0..8) {
        0 | 1 => Weather { slow: [20, 200, 1000][draw.random_range(0..3)], ..Weather::default() },
        2 | 3 => Weather { read_errors: rate, ..Weather::default() },
        4 => Weather { change_errors: rate, ..Weather::default() },
        5 => Weather { change_errors: rate, is_full: true, ..Weather::default() },
        6 => Weather { flush_errors: rate, ..Weather::default() },
        _ => Weather {
            read_errors: rate,
            change_errors: rate,
            flush_errors: rate,
            slow: 20,
            ..Weather::default()
        },
    }
}
