//! What a crash leaves, compared with what was promised.

use super::*;

impl World {
    /// The end of a life, and the beginning of the next one. The error tells what was promised and is not so.
    fn crash(&mut self, is_cut: bool) -> Result<(), String> {
        let promised = if is_cut { self.floor } else { self.acked };
        if is_cut {
            self.device.cut(&mut self.prng);
        } else {
            self.device.kill(&mut self.prng);
        }
        self.writes.clear();
        self.pages.clear();
        self.flushes.clear();
        self.record = None;
        self.is_record_written = false;
        let records = [0, 8].map(|at| CommitRecord::decode(&self.device.read_block(RECORDS_AT + at)).ok());
        let Some(record) = records.into_iter().flatten().max_by_key(|record| record.transaction) else {
            return Err(String::from("there is no record"));
        };
        let blocks: Vec<[Vec<u8>; 2]> = (0..self.page_count())
            .map(|page| {
                [0, 1].map(|place| self.device.read_block(PAGES_AT + (place * self.page_count() + page) * 8))
            })
            .collect();
        let transaction_of = |page: u32, bytes: &[u8]| match page.checked_sub(SLOT_PAGES) {
            None => CommitPage::decode(&SET, bytes).ok().map(|page| page.transaction),
            Some(_) => TreePage::decode(&SET, bytes).ok().map(|page| page.transaction),
        };
        let found = (0..)
            .zip(&blocks)
            .map(|(page, blocks)| [0, 1].map(|place: usize| transaction_of(page, &blocks[place])));
        let opened = Opened::find(record.transaction, found).map_err(|error| format!("{error}"))?;
        self.load(&opened, &blocks, promised)?;
        self.open(opened);
        Ok(())
    }

    /// Takes what was found for the state of the next life, and compares it with what was promised.
    fn load(
        &mut self,
        opened: &Opened,
        blocks: &[[Vec<u8>; 2]],
        promised: [u32; PIECES as usize],
    ) -> Result<(), String> {
        self.slots.clear();
        let block = |page: u32| &blocks[page as usize][usize::from(opened.places.get(page))];
        let mut planes = self.shape.map(TreePlanes::new);
        let mut found = self.origin;
        let doublings =
            self.shape.map_or(0, |shape| BitTree::new(shape, TUNING, u64::from(PIECES)).doublings());
        if opened.durable > 0 {
            if let Some(shape) = self.shape {
                let pages: Vec<TreePage> = (0..shape.pages())
                    .map(|page| TreePage::decode(&SET, block(SLOT_PAGES + page)).unwrap())
                    .collect();
                planes = Some(TreePlanes::from_pages(shape, &pages).unwrap());
            }
            for page in 0..SLOT_PAGES {
                let records = CommitPage::decode(&SET, block(page)).unwrap().records;
                for (slot, record) in (page * COMMIT_PAGE_RECORDS..).zip(records) {
                    let Some(record) = record else { continue };
                    let piece = record.piece.0 as u32;
                    let version = self.held_version(slot, piece)?;
                    let is_suspect = planes.as_ref().is_none_or(|planes| {
                        BitTree::is_suspect(planes, TUNING.leaf_pieces, doublings, u64::from(piece))
                    });
                    if !is_suspect && version != self.origin[piece as usize] {
                        return Err(format!("piece {piece} is dirty and below no mark"));
                    }
                    self.clean_found += u64::from(!is_suspect);
                    found[piece as usize] = version;
                    let state = State::Valid;
                    self.slots
                        .insert(slot, Held { piece, version, is_dirty: is_suspect, state, is_busy: false });
                }
            }
        }
        for (piece, &version) in found.iter().enumerate() {
            let (promised, written) = (promised[piece], self.issued[piece]);
            if !(promised..=written).contains(&version) {
                return Err(format!(
                    "piece {piece}: version {version}, promised {promised}, written {written}"
                ));
            }
        }
        let dirty = self.slots.values().filter(|held| held.is_dirty).map(|held| u64::from(held.piece));
        self.tree = match (planes, self.shape) {
            (Some(planes), _) if opened.durable > 0 => {
                Some(BitTree::recovered(TUNING, doublings, planes, dirty))
            }
            (_, shape) => shape.map(|shape| BitTree::new(shape, TUNING, u64::from(PIECES))),
        };
        self.found = found;
        self.acked = found;
        self.issued = found;
        Ok(())
    }

    fn held_version(&self, slot: u32, piece: u32) -> Result<u32, String> {
        match self.device.read(slot) {
            _ if self.slots.values().any(|held| held.piece == piece) => {
                Err(format!("piece {piece} is in two slots"))
            }
            Some(&Cell::Data { piece: held, version }) if held == piece => Ok(version),
            _ => Err(format!("slot {slot} is mapped to piece {piece} and does not hold it")),
        }
    }
}

/// Lives of one cache.
pub fn lives(seed: u64, has_tree: bool, bug: Bug) -> Result<World, String> {
    let mut world = World::new(seed, has_tree, bug);
    for _ in 0..5 {
        let steps_max = if world.prng.below(2) == 0 { 40 } else { 400 };
        for _ in 0..world.prng.below(steps_max) {
            world.step();
        }
        let is_cut = world.prng.below(3) > 0;
        world.crash(is_cut)?;
    }
    Ok(world)
}

/// Lives of one cache that end at the worst time: the process dies when a record is written and not flushed,
/// and the power fails soon after the start.
pub fn lives_of_a_record(seed: u64, bug: Bug) -> Result<(), String> {
    let mut world = World::new(seed, true, bug);
    for _ in 0..5 {
        for _ in 0..world.prng.below(200) {
            world.step();
        }
        while !world.is_record_written {
            world.step();
        }
        world.crash(false)?;
        for _ in 0..world.prng.below(40) {
            world.step();
        }
        world.crash(true)?;
    }
    Ok(())
}
