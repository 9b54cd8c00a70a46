//! Parts of a cache as people write them: `20%`, `8G`, `none`.

use super::SettingError;
use super::rate::print_bytes;
use live::devices::parse_size;
use std::fmt;

/// A part of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// So many hundredths of its device.
    Percent(u8),
    /// So many bytes.
    Bytes(u64),
}

impl Portion {
    /// The portion in a text, as the value of that setting; `None` for `none`.
    pub(super) fn parse(name: &'static str, text: &str) -> Result<Option<Portion>, SettingError> {
        if text == "none" {
            return Ok(None);
        }
        let portion = match text.strip_suffix('%') {
            Some(number) => {
                let number = number.parse().ok().filter(|percent| (1..=100).contains(percent));
                number.map(Portion::Percent)
            }
            None => parse_size(text).ok().filter(|bytes| *bytes > 0).map(Portion::Bytes),
        };
        portion.map(Some).ok_or_else(|| SettingError::Portion { text: text.to_owned(), name })
    }

    /// The bytes that it is of a cache of so many.
    #[must_use]
    pub fn of(self, cache_bytes: u64) -> u64 {
        match self {
            Portion::Percent(percent) => cache_bytes / 100 * u64::from(percent),
            Portion::Bytes(bytes) => bytes,
        }
    }
}

impl fmt::Display for Portion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Portion::Percent(percent) => write!(f, "{percent}%"),
            Portion::Bytes(bytes) => f.write_str(&print_bytes(*bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_hundredths_or_bytes() {
        let parse = |text| Portion::parse("cache-min", text).expect("a portion").expect("not none");
        assert_eq!((parse("20%"), parse("8G")), (Portion::Percent(20), Portion::Bytes(8 << 30)));
        assert_eq!((parse("20%").of(1000), parse("8G").of(1000)), (200, 8 << 30));
        assert_eq!((parse("100%").to_string(), parse("1536M").to_string()), ("100%".into(), "1536M".into()));
        assert_eq!(parse("20"), Portion::Bytes(20), "bytes, as everywhere");
        for text in ["", "0%", "101%", "-1%", "x", "0", "20 %"] {
            let error = Portion::parse("cache-max", text).expect_err(text).to_string();
            assert!(error.contains("cache-max=20%"), "{error}");
        }
        assert_eq!(Portion::parse("cache-min", "none").expect("none"), None);
    }
}
