//! Published and modelled values side by side.

use super::exceptions::{Exception, exception};
use super::procedure::{Scale, measure};
use models::Parameters;

/// A native system of a study, and the model of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// The study.
    pub study: &'static str,
    /// The system, as in the study.
    pub system: &'static str,
    /// The model; `forebay models` lists it.
    pub model: &'static str,
}

const fn base(study: &'static str, system: &'static str, model: &'static str) -> Base {
    Base { study, system, model }
}

/// All native systems that a study has figures of.
pub const BASES: [Base; 13] = [
    base("dm-devel-2016", "hdd", "samsung-hd155ui"),
    base("dm-devel-2016", "ssd", "samsung-830"),
    base("enhanceio-2013", "hdd", "enhanceio-2013-hdd"),
    base("enhanceio-2013", "ssd", "enhanceio-2013-ssd"),
    base("geomflash-2015", "hdd", "wd-re-4tb"),
    base("geomflash-2015", "ssd-linux", "samsung-850-pro"),
    base("geomflash-2015", "ssd-linux-clean", "samsung-850-pro"),
    base("geomflash-2015", "ssd-linux-full", "samsung-850-pro-full"),
    base("geomflash-2015", "ssd-freebsd", "samsung-850-pro-freebsd"),
    base("geomflash-2015", "ssd-freebsd-clean", "samsung-850-pro-freebsd"),
    base("geomflash-2015", "ssd-freebsd-full", "samsung-850-pro-freebsd-full"),
    base("iozone-2014", "hdd", "iozone-2014-hdd"),
    base("iozone-2014", "ssd", "iozone-2014-ssd"),
];

/// The studies' figures.
const RESULTS: [&str; 4] = [
    include_str!("../../studies/dm-devel-2016/results.csv"),
    include_str!("../../studies/enhanceio-2013/results.csv"),
    include_str!("../../studies/geomflash-2015/results.csv"),
    include_str!("../../studies/iozone-2014/results.csv"),
];

/// Values of the models when they were fitted: the columns of the studies, and the model's value. Written by
/// `forebay lab fit --csv`; a test holds it to the models.
const FITS: &str = include_str!("fits.csv");

/// A published native figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its line in the study's table.
    row: &'static str,
    /// Its test.
    pub test: String,
    /// Its iteration, if it has one.
    pub iteration: String,
    /// Its jobs.
    pub numjobs: u32,
    /// Its metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// The value as printed.
    pub value: f64,
}

/// A published native figure beside the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The native system.
    pub base: Base,
    /// The published figure.
    pub figure: Figure,
    /// The model's value.
    pub model: f64,
}

impl Fit {
    /// The published figure's line in the study's table.
    #[must_use]
    pub fn row(&self) -> &'static str {
        self.figure.row
    }

    /// By how much of the native value the model's is above it.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.model / self.figure.value - 1.0
    }

    /// Why the model does not meet this row, if that is known and stated.
    #[must_use]
    pub fn exception(&self) -> Option<&'static Exception> {
        exception(self.base.study, self.base.system, &self.figure.test, &self.figure.metric)
    }

    /// Whether the search looks at it. What iozone prints besides its summary says how processes shared the disk,
    /// or says the same once more.
    #[must_use]
    pub fn is_fitted(&self) -> bool {
        self.base.study != "iozone-2014" || self.figure.metric == "summary_avg_per_process"
    }
}

impl Base {
    /// The model.
    ///
    /// # Panics
    /// If it is not built in; a test looks at each.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        models::find(self.model).expect("a disk that is built in")
    }

    /// The published figures of this system.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let lines = RESULTS.iter().flat_map(|text| text.lines().skip(1));
        lines.filter_map(|line| self.figure(line)).collect()
    }

    fn figure(&self, line: &'static str) -> Option<Figure> {
        let [study, test, iteration, numjobs, system, metric, unit, value] =
            line.split(',').collect::<Vec<_>>().try_into().ok()?;
        (study == self.study && system == self.system).then(|| Figure {
            row: line,
            test: test.to_owned(),
            iteration: iteration.to_owned(),
            numjobs: numjobs.parse().unwrap_or(1),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            value: value.parse().unwrap_or(f64::NAN),
        })
    }

    /// The published figures of this system beside those of `parameters`.
    #[must_use]
    pub fn fits(&self, parameters: &Parameters, scale: Scale) -> Vec<Fit> {
        let measured = measure(self.study, self.system, parameters, scale);
        let of = |figure: &Figure| {
            let same = measured.iter().find(|one| {
                one.test == figure.test && one.numjobs == figure.numjobs && one.metric == figure.metric
            });
            // Three digits behind the point, as they are stored.
            same.map(|one| (one.value * 1000.0).round() / 1000.0)
        };
        let figures = self.figures().into_iter();
        figures.filter_map(|figure| Some(Fit { base: *self, model: of(&figure)?, figure })).collect()
    }
}

/// Every published native figure beside its model's value, as it was when the models were fitted; in the order of
/// [`BASES`]. Takes no time: the values are stored.
#[must_use]
pub fn published_fits() -> Vec<Fit> {
    let rows: Vec<&'static str> = FITS.lines().skip(1).collect();
    let of = |base: &Base| {
        let rows = rows.iter().filter_map(|row| {
            let (figure, model) = row.rsplit_once(',')?;
            Some(Fit { base: *base, figure: base.figure(figure)?, model: model.parse().ok()? })
        });
        rows.collect::<Vec<_>>()
    };
    BASES.iter().flat_map(of).collect()
}
