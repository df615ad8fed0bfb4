//! Failure detection: the watcher of other ranks' processes, and the handler of this process's fatal signals.

pub(crate) mod fatal;
#[cfg_attr(not(target_os = "linux"), path = "watcher/none.rs")]
pub(crate) mod watcher;

/// How a watcher notices that a rank has died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Detection {
    /// By robust futexes; by polling where the system does not allow that.
    #[default]
    Wake,
    /// By polling, to test it where robust futexes work.
    Scan,
    /// Not at all, to measure the cost of watching.
    None,
}
