//! Settings of a run of these tests, from environment variables.

/// The number in a variable, or the default.
pub fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text}")),
        Err(_) => default,
    }
}

/// The profiles named in `FOREBAY_PROFILES`, with commas between them, or the default.
pub fn profiles(default: &[&'static str]) -> Vec<&'static str> {
    match std::env::var("FOREBAY_PROFILES") {
        Ok(names) => names.leak().split(',').collect(),
        Err(_) => default.to_vec(),
    }
}
