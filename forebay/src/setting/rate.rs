//! Rates as people write them: `5000`, `200M`, `5000,burst=20000`, `none`.

use super::SettingError;
use live::devices::parse_size;
use live::limits::Rate;

/// A kind of rate.
pub(super) struct Kind {
    /// The setting's name.
    pub name: &'static str,
    /// An example of a value.
    example: &'static str,
    /// Whether it counts bytes.
    is_bytes: bool,
    /// The least rate.
    least: u64,
    /// The least burst where none is said.
    burst_least: u64,
}

/// Requests a second.
pub(super) const IOPS: Kind =
    Kind { name: "iops", example: "iops=5000,burst=20000", is_bytes: false, least: 1, burst_least: 1 };
/// Bytes a second.
pub(super) const BANDWIDTH: Kind = Kind {
    name: "bandwidth",
    example: "bandwidth=200M,burst=1G",
    is_bytes: true,
    least: 64 << 10,
    burst_least: 256 << 10,
};

/// The burst where none is said is what the rate lets through in a tenth of a second.
const BURSTS_PER_SECOND: u64 = 10;
/// The least burst is what the rate lets through in a hundredth of a second: the daemon does not wake up more often.
const BURSTS_PER_SECOND_MAX: u64 = 100;

impl Kind {
    fn number(&self, text: &str) -> Result<u64, SettingError> {
        let number = if self.is_bytes { parse_size(text).ok() } else { text.parse().ok() };
        number.filter(|number| *number > 0).ok_or(SettingError::Rate {
            text: text.to_owned(),
            example: self.example,
            name: self.name,
        })
    }

    /// The rate in a text; `None` for `none`.
    pub(super) fn parse(&self, text: &str) -> Result<Option<Rate>, SettingError> {
        if text == "none" {
            return Ok(None);
        }
        let (rate, burst) = match text.split_once(",burst=") {
            Some((rate, burst)) => (rate, Some(burst)),
            None => (text, None),
        };
        let per_second = self.number(rate)?;
        if per_second < self.least {
            return Err(SettingError::RateTooLow { name: self.name, least: self.print_number(self.least) });
        }
        let burst = match burst {
            Some(burst) => self.number(burst)?,
            None => (per_second / BURSTS_PER_SECOND).max(self.burst_least),
        };
        let least = (per_second / BURSTS_PER_SECOND_MAX).max(1);
        if burst < least {
            let (rate, least) = (self.print_number(per_second), self.print_number(least));
            return Err(SettingError::Burst { name: self.name, rate, least });
        }
        Ok(Some(Rate { per_second, burst }))
    }

    fn print_number(&self, number: u64) -> String {
        if self.is_bytes { print_bytes(number) } else { number.to_string() }
    }

    /// A rate as it is written.
    pub(super) fn print(&self, rate: Option<Rate>) -> String {
        rate.map_or_else(
            || "none".to_owned(),
            |Rate { per_second, burst }| {
                format!("{},burst={}", self.print_number(per_second), self.print_number(burst))
            },
        )
    }
}

/// Bytes with the largest suffix that says them exactly.
pub(super) fn print_bytes(bytes: u64) -> String {
    let suffixes = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let suffix = suffixes.iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    suffix.map_or_else(|| bytes.to_string(), |(shift, suffix)| format!("{}{suffix}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_with_and_without_a_burst() {
        let rate = |per_second, burst| Some(Rate { per_second, burst });
        assert_eq!(IOPS.parse("5000").expect("a rate"), rate(5000, 500));
        assert_eq!(IOPS.parse("5").expect("a rate"), rate(5, 1));
        assert_eq!(IOPS.parse("5000,burst=20000").expect("a rate"), rate(5000, 20_000));
        assert_eq!(BANDWIDTH.parse("200M,burst=1G").expect("a rate"), rate(200 << 20, 1 << 30));
        assert_eq!(BANDWIDTH.parse("1M").expect("a rate"), rate(1 << 20, 256 << 10));
        assert_eq!(IOPS.parse("none").expect("none"), None);
    }

    #[test]
    fn mistakes_are_one_line_that_says_what_to_write() {
        let wrong = |kind: &Kind, text: &str| kind.parse(text).expect_err(text).to_string();
        for text in ["", "fast", "0", "-1", "5000,burst=", "5000,burst=0", "5000;burst=1"] {
            assert!(wrong(&IOPS, text).contains("iops=5000,burst=20000"), "{}", wrong(&IOPS, text));
        }
        assert!(wrong(&BANDWIDTH, "1000").contains("at least 64K"), "{}", wrong(&BANDWIDTH, "1000"));
        assert!(wrong(&IOPS, "5000,burst=49").contains("at least 50"), "{}", wrong(&IOPS, "5000,burst=49"));
    }

    #[test]
    fn bytes_are_printed_exactly() {
        for (bytes, text) in [(0, "0"), (1, "1"), (1536, "1536"), (200 << 20, "200M"), (3 << 40, "3T")] {
            assert_eq!(print_bytes(bytes), text);
        }
    }
}
