//! Sleeping on several words at once: what a watcher needs from the machine beyond a [`Platform`].

use super::Platform;

/// A thread that can sleep on several words.
pub trait Sleeper<P: Platform> {
    /// Sleeps while each word holds what was seen in it.
    ///
    /// May return at any time, and gives no happens-before: the caller looks again. What must hold is that no wake-up is
    /// lost: a wake-up of any of the words that follows a change of it ends the sleep.
    #[track_caller]
    fn wait_any(&mut self, site: &'static str, words: &[(&P::Word, u32)]);
}
