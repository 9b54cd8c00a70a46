//! Sizes as people write them: `512`, `64K`, `8G`, `1TiB`. Suffixes are powers of 1024.

use thiserror::Error;

/// Reason why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    /// There is nothing.
    #[error("a size is missing; write for example 512, 64K, 100M, 8G or 1T")]
    Empty,
    /// It does not begin with a whole number.
    #[error("`{text}` is not a size; write a whole number with a suffix, for example 64K, 100M, 8G or 1T")]
    NotANumber {
        /// The text as written.
        text: String,
    },
    /// A suffix that does not exist.
    #[error("`{suffix}` in `{text}` is not a size suffix; known are K, M, G, T (KiB, MiB, GiB, TiB)")]
    Suffix {
        /// The text as written.
        text: String,
        /// The part that is wrong.
        suffix: String,
    },
    /// More than 2^64 - 1 bytes.
    #[error("`{text}` is too large a size")]
    TooLarge {
        /// The text as written.
        text: String,
    },
}

/// The number of bytes in `text`. Suffixes are K, M, G, T, alone or as `KiB`, in any case.
///
/// # Errors
/// [`SizeError`] says what is wrong with it.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(SizeError::Empty);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    if number.is_empty() || suffix.starts_with('.') {
        return Err(SizeError::NotANumber { text: text.to_owned() });
    }
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(SizeError::Suffix { text: text.to_owned(), suffix: suffix.to_owned() }),
    };
    let too_large = || SizeError::TooLarge { text: text.to_owned() };
    let number: u64 = number.parse().map_err(|_| too_large())?;
    number.checked_mul(1 << shift).ok_or_else(too_large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_suffixes() {
        let cases = [
            ("512", 512),
            ("64K", 65536),
            ("64KiB", 65536),
            ("8g", 8 << 30),
            ("1TiB", 1 << 40),
            ("3M", 3 << 20),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn wrong_sizes_say_what_is_wrong() {
        assert_eq!(parse_size(""), Err(SizeError::Empty));
        assert!(matches!(parse_size("8X"), Err(SizeError::Suffix { .. })));
        assert!(matches!(parse_size("8GB"), Err(SizeError::Suffix { .. })));
        assert!(matches!(parse_size("G"), Err(SizeError::NotANumber { .. })));
        assert!(matches!(parse_size("-1G"), Err(SizeError::NotANumber { .. })));
        assert!(matches!(parse_size("1.5G"), Err(SizeError::NotANumber { .. })));
        assert!(matches!(parse_size("99999999999T"), Err(SizeError::TooLarge { .. })));
        assert!(matches!(parse_size("99999999999999999999"), Err(SizeError::TooLarge { .. })));
    }
}
