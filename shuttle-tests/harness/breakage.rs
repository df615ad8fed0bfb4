//! Machines that are wrong in one way each. The suite runs on one of them if `INTRANODE_SHUTTLE_BREAK` names it,
//! and must then fail: see `replay.rs`.

/// The variable that names a breakage, as `drop:SITE`, `weaken:SITE`, …
pub const VARIABLE: &str = "INTRANODE_SHUTTLE_BREAK";

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// Wake-ups at the site are not made.
    Drop(String),
    /// Wake-ups at the site are made only where the word has its waiter's bit.
    Timid(String),
    /// Operations at the site are `Relaxed`.
    Weaken(String),
    /// The compare-exchange at the site stores whatever the word holds.
    Swap(String),
    /// Setting bits at the site reports them as before, and does nothing.
    Skip(String),
    /// Reading at the site finds the word as it was a round of the same parity before.
    Stale(String),
    /// Sleeping at the site does not compare the word.
    Blind(String),
    /// Both parities share one staging buffer.
    OneBuffer,
}

impl Breakage {
    /// The breakage that the environment asks for.
    pub fn from_env() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        let (verb, site) = text.split_once(':').unwrap_or((&text, ""));
        let site = site.to_owned();
        Some(match verb {
            "drop" => Breakage::Drop(site),
            "timid" => Breakage::Timid(site),
            "weaken" => Breakage::Weaken(site),
            "swap" => Breakage::Swap(site),
            "skip" => Breakage::Skip(site),
            "stale" => Breakage::Stale(site),
            "blind" => Breakage::Blind(site),
            "one-buffer" => Breakage::OneBuffer,
            _ => panic!("{VARIABLE}: no breakage is called {text}"),
        })
    }
}
