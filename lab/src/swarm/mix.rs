//! Troubles that come together: to what a seed draws, servers of origins that die, devices that fail, and an operator's jobs.

use super::knobs::Knob;
use super::options::Options;
use crate::random::Random;

impl Options {
    /// The same with more troubles at once than a seed draws by itself.
    #[must_use]
    pub fn with_mixed_troubles(mut self) -> Options {
        let mut random = Random::new(self.seed).fork(0x0_313c5);
        self.set(Knob::group_calls, *random.pick(&[1, 4, 8, 32, 64]));
        self.mix_servers(&mut random.fork(1));
        self.mix_device_faults(&mut random.fork(2));
        self.mix_modes(&mut random.fork(3));
        self.mix_discards(&mut random.fork(4));
        self.mix_jobs(&mut random.fork(5));
        self.mix_devices(&mut random.fork(6));
        self.within_what_is_judged()
    }

    fn mix_servers(&mut self, random: &mut Random) {
        if !random.one_in(4) {
            self.set(Knob::remote, *random.pick(&[1, 3, 5, 7]));
            self.set(Knob::server_losses, *random.pick(&[5000, 20_000, 60_000]));
            self.set(Knob::server_deaths, *random.pick(&[20, 40, 80, 100]));
        }
    }

    fn mix_device_faults(&mut self, random: &mut Random) {
        match random.below(4) {
            0 => self.set(Knob::origin_flush_error, *random.pick(&[5000, 30_000, 100_000])),
            1 => self.set(Knob::cache_rot, *random.pick(&[50_000, 300_000])),
            2 => {
                self.set(Knob::origin_write_error, *random.pick(&[3000, 30_000]));
                self.set(Knob::origin_read_error, *random.pick(&[3000, 30_000]));
            }
            _ => (),
        }
    }

    fn mix_modes(&mut self, random: &mut Random) {
        match random.below(4) {
            0 => self.set(Knob::mode_changes, 40),
            1 => [Knob::mode0, Knob::mode1].iter().for_each(|knob| self.set(*knob, random.below(4))),
            _ => (),
        }
    }

    fn mix_discards(&mut self, random: &mut Random) {
        match random.below(5) {
            0 => {
                self.set(Knob::discards, 5);
                self.set(Knob::zeroes, 5);
            }
            1 => {
                self.set(Knob::discards, 4);
                self.set(Knob::origin_discards, 0);
            }
            _ => (),
        }
    }

    /// An operator's jobs, and what others do while no engine runs.
    fn mix_jobs(&mut self, random: &mut Random) {
        let jobs: &[(Knob, u64)] = match random.below(5) {
            0 => &[(Knob::detaches, 40), (Knob::additions, 60)],
            1 => &[(Knob::scrubs, 60), (Knob::warms, 40)],
            2 => &[(Knob::silences, 60)],
            3 => &[(Knob::origin_changes, 40), (Knob::older_copies, 30)],
            _ => &[],
        };
        jobs.iter().for_each(|(knob, value)| self.set(*knob, *value));
    }

    /// A second cache device, or checkpoints as dense as can be: of our own profile.
    fn mix_devices(&mut self, random: &mut Random) {
        if !self.is_our_own() {
            return;
        }
        let devices: &[(Knob, u64)] = match random.below(4) {
            0 => &[(Knob::mirrored, 1), (Knob::half_losses, 60), (Knob::half_turns, 40)],
            1 => &[(Knob::checkpoint_blocks, 8), (Knob::checkpoint_interval, 64)],
            _ => &[],
        };
        devices.iter().for_each(|(knob, value)| self.set(*knob, *value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swarm::run;

    #[test]
    fn a_mixed_run_is_repeated_by_what_it_prints() {
        for seed in 0..100 {
            let mixed = Options::draw(seed).with_mixed_troubles();
            let command = mixed.replay_command();
            let changes = command.split('\'').nth(1).expect("it differs from what the seed draws");
            let mut again = Options::draw(seed);
            again.change(changes).expect("options");
            assert_eq!(again, mixed, "{command}");
        }
    }

    #[test]
    fn every_trouble_is_mixed_into_some_runs() {
        let mixed: Vec<Options> = (0..200).map(|seed| Options::draw(seed).with_mixed_troubles()).collect();
        let deaths: u64 = mixed[..10].iter().map(|options| run(options).counts.servers.deaths).sum();
        assert!(deaths > 20, "{deaths} servers died");
        for (knob, value) in [
            (Knob::origin_flush_error, 5000),
            (Knob::cache_rot, 50_000),
            (Knob::origin_write_error, 3000),
            (Knob::discards, 5),
            (Knob::detaches, 40),
            (Knob::scrubs, 60),
            (Knob::silences, 60),
            (Knob::origin_changes, 40),
            (Knob::mirrored, 1),
            (Knob::checkpoint_blocks, 8),
        ] {
            assert!(mixed.iter().any(|options| options.get(knob) == value), "{}={value}", knob.name());
        }
    }
}
