//! What a volume may answer: for every sector the versions that a read may return now, and
//! those that it may return after a power cut.

/// Content of a sector, as a number: 0 is zeroes, others are versions.
pub type Version = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    /// `None`: any version so far, or zeroes (a discard).
    version: Option<Version>,
    submitted: u64,
    acknowledged: Option<u64>,
}

#[derive(Clone)]
struct Sector {
    /// Oldest first; those that a read may return.
    now: Vec<Candidate>,
    /// Those that may be there after a power cut.
    after_cut: Vec<Candidate>,
    written: Vec<Version>,
}

/// The oracle of one volume. Time is a counter of its own.
pub struct Oracle {
    sectors: Vec<Sector>,
    time: u64,
}

impl Oracle {
    pub fn new(content: impl Iterator<Item = Version>) -> Oracle {
        let sectors = content
            .map(|version| {
                let first = Candidate { version: Some(version), submitted: 0, acknowledged: Some(0) };
                Sector { now: vec![first], after_cut: vec![first], written: vec![version] }
            })
            .collect();
        Oracle { sectors, time: 1 }
    }

    pub fn time(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    /// A change of the sectors was submitted: `version` of each, `None` for a discard.
    pub fn submit(&mut self, first: u64, versions: &[Option<Version>]) -> u64 {
        let submitted = self.time();
        for (step, &version) in versions.iter().enumerate() {
            let sector = &mut self.sectors[first as usize + step];
            let candidate = Candidate { version, submitted, acknowledged: None };
            sector.now.push(candidate);
            sector.after_cut.push(candidate);
            sector.written.extend(version);
        }
        submitted
    }

    /// The change submitted at `submitted` was acknowledged; `is_durable` if it was FUA.
    pub fn acknowledge(&mut self, first: u64, count: u64, submitted: u64, is_durable: bool) {
        let time = self.time();
        for sector in &mut self.sectors[first as usize..(first + count) as usize] {
            for list in [&mut sector.now, &mut sector.after_cut] {
                for candidate in list.iter_mut().filter(|candidate| candidate.submitted == submitted) {
                    candidate.acknowledged = Some(time);
                }
            }
            let is_older = |candidate: &Candidate| {
                candidate.acknowledged.is_some_and(|acknowledged| acknowledged < submitted)
            };
            sector.now.retain(|candidate| !is_older(candidate));
            if is_durable {
                sector.after_cut.retain(|candidate| !is_older(candidate));
            }
        }
    }

    /// A FLUSH submitted at `submitted` was acknowledged.
    pub fn flushed(&mut self, submitted: u64) {
        for sector in &mut self.sectors {
            let newest = sector
                .after_cut
                .iter()
                .filter(|candidate| candidate.acknowledged.is_some_and(|time| time < submitted))
                .map(|candidate| candidate.submitted)
                .max();
            if let Some(newest) = newest {
                sector.after_cut.retain(|candidate| {
                    candidate.acknowledged.is_none_or(|acknowledged| acknowledged >= newest)
                });
            }
        }
    }

    /// Candidates of now, to be compared when a read that is submitted now returns.
    pub fn read_begins(&self, first: u64, count: u64) -> Vec<Vec<Option<Version>>> {
        self.sectors[first as usize..(first + count) as usize]
            .iter()
            .map(|sector| sector.now.iter().map(|candidate| candidate.version).collect())
            .collect()
    }

    /// A read returned; `began` is what [`Oracle::read_begins`] gave.
    pub fn read(&self, first: u64, began: &[Vec<Option<Version>>], found: &[Version]) -> Result<(), String> {
        for (step, (&version, began)) in found.iter().zip(began).enumerate() {
            let sector = &self.sectors[first as usize + step];
            let may = |candidate: Option<Version>| match candidate {
                Some(candidate) => candidate == version,
                None => version == 0 || sector.written.contains(&version),
            };
            let is_known = began.iter().any(|&candidate| may(candidate))
                || sector.now.iter().any(|candidate| may(candidate.version));
            if !is_known {
                let allowed: Vec<_> = sector.now.iter().map(|candidate| candidate.version).collect();
                return Err(format!(
                    "sector {}: read {version}, allowed {allowed:?}, ever written {:?}",
                    first + step as u64,
                    sector.written
                ));
            }
        }
        Ok(())
    }

    /// The power was cut: any of what may be there after it is there now, and nobody knows which.
    pub fn power_cut(&mut self) {
        let time = self.time();
        for sector in &mut self.sectors {
            for candidate in &mut sector.after_cut {
                (candidate.submitted, candidate.acknowledged) = (time, Some(time));
            }
            sector.now = sector.after_cut.clone();
        }
    }

    /// The process ended; the devices go on. What was under way may have landed.
    pub fn process_crash(&mut self) {
        let time = self.time();
        for sector in &mut self.sectors {
            let now: Vec<_> = sector.now.iter().map(|candidate| candidate.version).collect();
            for list in [&mut sector.now, &mut sector.after_cut] {
                for candidate in list.iter_mut().filter(|candidate| now.contains(&candidate.version)) {
                    (candidate.submitted, candidate.acknowledged) = (time, Some(time));
                }
            }
        }
    }

    /// After a crash this version was read: it stays. `is_after_cut` if that holds for a later power cut, too.
    pub fn pin(&mut self, first: u64, found: &[Version], is_after_cut: bool) {
        let time = self.time();
        for (step, &version) in found.iter().enumerate() {
            let sector = &mut self.sectors[first as usize + step];
            let pinned = Candidate { version: Some(version), submitted: time, acknowledged: Some(time) };
            let before = std::mem::replace(&mut sector.now, vec![pinned]);
            // Of what might have been there one was, the others never were.
            sector
                .after_cut
                .retain(|old| !is_after_cut && before.iter().all(|now| now.version != old.version));
            sector.after_cut.push(pinned);
        }
    }
}
