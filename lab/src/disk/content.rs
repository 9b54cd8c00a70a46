//! The content of a write, sector by sector.

use crate::content::Sector;
use std::rc::Rc;

/// Content of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These sectors.
    Data(Rc<[Sector]>),
    /// That many sectors of zeroes.
    Zeroes(u64),
}

impl Content {
    /// How many sectors.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        match self {
            Content::Data(sectors) => sectors.len() as u64,
            Content::Zeroes(sectors) => *sectors,
        }
    }

    /// The content of a sector, if this begins at `first` and reaches it.
    #[must_use]
    pub fn at(&self, first: u64, sector: u64) -> Option<Sector> {
        let step = sector.checked_sub(first).filter(|step| *step < self.sectors())?;
        Some(match self {
            Content::Data(sectors) => sectors[step as usize].clone(),
            Content::Zeroes(_) => Sector::default(),
        })
    }

    pub(super) fn copy_to(&self, cells: &mut [Sector], first: u64) {
        let cells = &mut cells[first as usize..(first + self.sectors()) as usize];
        match self {
            Content::Data(sectors) => cells.clone_from_slice(sectors),
            Content::Zeroes(_) => cells.fill(Sector::default()),
        }
    }

    pub(super) fn is_at(&self, cells: &[Sector], first: u64) -> bool {
        let cells = &cells[first as usize..(first + self.sectors()) as usize];
        match self {
            Content::Data(sectors) => cells == &sectors[..],
            Content::Zeroes(_) => cells.iter().all(|cell| *cell == Sector::default()),
        }
    }

    pub(super) fn copy_one(&self, cells: &mut [Sector], first: u64, step: usize) {
        cells[first as usize + step] = match self {
            Content::Data(sectors) => sectors[step].clone(),
            Content::Zeroes(_) => Sector::default(),
        };
    }
}
