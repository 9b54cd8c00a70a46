//! A violation: an error of the engine or of the lab, as a value.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// The broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A read returned content that it may not return.
    Content,
    /// A request was not answered, dirty data did not go home, or the engine never comes to rest.
    Liveness,
    /// The cache device, the memory or the origin is not in the state it must be in.
    Physical,
    /// An error that no fault explains, or a success where there must be an error.
    Contract,
    /// The engine asked for something that it may not ask for.
    Effect,
    /// An assertion of the engine failed.
    Assertion,
}

impl Kind {
    /// The kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Content => "content",
            Kind::Liveness => "liveness",
            Kind::Physical => "physical",
            Kind::Contract => "contract",
            Kind::Effect => "effect",
            Kind::Assertion => "assertion",
        }
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub kind: Kind,
    /// The event, in words.
    pub what: String,
}

impl Violation {
    /// A violation of this kind.
    pub fn new(kind: Kind, what: impl Into<String>) -> Violation {
        Violation { kind, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.what)
    }
}

impl std::error::Error for Violation {}

thread_local! {
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `body`; a panic on the way is a violation of kind [`Kind::Assertion`] with the panic's place and
/// message. Where panics abort, it is not caught: see the panic hook of `forebay lab verify`.
///
/// # Errors
/// The violation that `body` returns, or its panic as one.
pub fn catch<T>(body: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IS_CATCHING.get() && cfg!(panic = "unwind") {
                CAUGHT.set(Some(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
    let outer = IS_CATCHING.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    IS_CATCHING.set(outer);
    result.unwrap_or_else(|_| {
        let what = CAUGHT.take().unwrap_or_else(|| "a panic".into());
        Err(Violation::new(Kind::Assertion, what))
    })
}
