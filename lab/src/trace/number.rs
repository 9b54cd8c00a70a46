//! Numbers in text: decimal, never negative, never beyond 64 bits.

use super::Reason;

/// Length to which a field that is no number is shown, in characters.
const SHOWN: usize = 24;

/// A field as an error shows it: on one line, whatever the field holds.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_default).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    if shown.is_empty() { "(empty)".to_owned() } else { shown }
}

fn wrong(field: &'static str, text: &str) -> Reason {
    Reason::Number { field, text: shown(text) }
}

/// A whole number.
pub(super) fn whole(field: &'static str, text: &str) -> Result<u64, Reason> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or_else(|| wrong(field, text))
}

/// Seconds with at most nine digits behind the point that count, in nanoseconds.
pub(super) fn seconds(field: &'static str, text: &str) -> Result<u64, Reason> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong(field, text));
    }
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let fraction_ns = digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let ns = whole(field, seconds)?.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(fraction_ns));
    ns.ok_or_else(|| wrong(field, text))
}

/// A whole number of something that has `scale` nanoseconds, or bytes.
pub(super) fn scaled(field: &'static str, text: &str, scale: u64) -> Result<u64, Reason> {
    whole(field, text)?.checked_mul(scale).ok_or_else(|| wrong(field, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_and_bounded() {
        assert_eq!(whole("x", "007").ok(), Some(7));
        assert_eq!(whole("x", "18446744073709551615").ok(), Some(u64::MAX));
        for text in ["", "+1", "-1", "1 ", "0x1", "18446744073709551616", "\u{661}"] {
            assert!(whole("x", text).is_err(), "{text:?}");
        }
        assert!(scaled("x", "36893488147419103", 512).is_err());
    }

    #[test]
    fn seconds_are_read_to_the_nanosecond() {
        assert_eq!(seconds("x", "0.026214").ok(), Some(26_214_000));
        assert_eq!(seconds("x", "1456088400.123456789123").ok(), Some(1_456_088_400_123_456_789));
        assert_eq!(seconds("x", "12").ok(), Some(12_000_000_000));
        for text in ["1e5", ".5", "1.-5", "18446744073.8", "1.2.3"] {
            assert!(seconds("x", text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_shown_of_a_field_stays_on_its_line() {
        assert_eq!(shown("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(shown(""), "(empty)");
        assert_eq!(shown(&"x".repeat(1000)).len(), SHOWN + 3);
    }
}
