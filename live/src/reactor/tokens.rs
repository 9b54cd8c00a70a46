//! Owners of operations that a backend carries out, packed into its tokens.

use super::backend::Token;

/// Bit at which the kind of owner begins.
const KIND_SHIFT: u32 = 56;
/// Bit at which the door's place begins.
const DOOR_SHIFT: u32 = 48;
const FLIGHT: u64 = 0;
const WAKE_UP: u64 = 1;
const DOOR: u64 = 2;

/// Part of a reactor that gave an operation to the backend, and gets its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// An operation at a device, by its key in [`crate::devices::flights::Flights`].
    Flight(u64),
    /// The eventfd by which other threads wake this reactor.
    WakeUp,
    /// A door, by its place, and the door's own name for the operation.
    Door { door: u8, event: u64 },
}

impl Owner {
    /// The token of its operation.
    pub(crate) fn token(self) -> Token {
        match self {
            Owner::Flight(key) => {
                assert!(key < 1 << KIND_SHIFT, "the key of a flight leaves room for the kind");
                Token(FLIGHT << KIND_SHIFT | key)
            }
            Owner::WakeUp => Token(WAKE_UP << KIND_SHIFT),
            Owner::Door { door, event } => {
                assert!(event < 1 << DOOR_SHIFT, "a door's event leaves room for kind and door");
                Token(DOOR << KIND_SHIFT | u64::from(door) << DOOR_SHIFT | event)
            }
        }
    }

    /// The owner of the operation with this token.
    pub(crate) fn of(token: Token) -> Owner {
        let below = |shift: u32| token.0 & ((1 << shift) - 1);
        match token.0 >> KIND_SHIFT {
            FLIGHT => Owner::Flight(below(KIND_SHIFT)),
            WAKE_UP => Owner::WakeUp,
            DOOR => {
                let door = u8::try_from(below(KIND_SHIFT) >> DOOR_SHIFT).expect("eight bits");
                Owner::Door { door, event: below(DOOR_SHIFT) }
            }
            kind => unreachable!("there are no tokens of kind {kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_owner() {
        let door = |door, event| Owner::Door { door, event };
        for owner in
            [Owner::Flight(0), Owner::Flight(1 << 55), Owner::WakeUp, door(0, 0), door(255, (1 << 48) - 1)]
        {
            assert_eq!(Owner::of(owner.token()), owner);
        }
    }
}
