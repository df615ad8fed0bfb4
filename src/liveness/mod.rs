//! Who is alive: the watcher of other ranks' processes, and what a fatal signal in this one tells the others.

pub(crate) mod fatal;
#[cfg_attr(not(target_os = "linux"), path = "watcher/none.rs")]
pub(crate) mod watcher;

/// How a watcher notices that a rank has died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Detection {
    /// The kernel wakes it; it polls where the system does not allow that.
    #[default]
    Wake,
    /// It polls, so that this can be tested where both work.
    Scan,
    /// Not at all, so that what watching costs can be measured.
    None,
}
