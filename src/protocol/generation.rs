//! The round counter, and the word that carries it.
//!
//! ```text
//!   31                              4   3      2   1        0
//!  +---------------------------------+----------+--------+--------+
//!  |  generation (28 bits, wrapping) | PROGRESS | POISON | WAITER |
//!  +---------------------------------+----------+--------+--------+
//! ```
//!
//! A rank has one such word for odd and one for even rounds. While it waits for round `g`, every word of that
//! parity holds `g` or `g − 2`: nobody can be further behind, because round `g − 1` needed all ranks, nor
//! further ahead, because round `g` needs all ranks. Equality is therefore enough, and it does not matter that
//! the counter wraps.

/// A rank sleeps on this word: the rank that changes it must wake.
pub const WAITER: u32 = 1;

/// The word is frozen: its owner will never arrive at a later round.
pub const POISON: u32 = 2;

/// How far the others have come, in the word of a rank that leads a group: see [`super::hierarchical`]. Cleared by its next
/// arrival.
pub const PROGRESS: u32 = 0b1100;

const FLAGS: u32 = 4;
const MASK: u32 = u32::MAX >> FLAGS;

/// The number of a round, modulo 2²⁸.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// The generation with this number, modulo 2²⁸.
    pub const fn new(number: u32) -> Self {
        Generation(number & MASK)
    }

    /// The generation in an arrival word.
    pub const fn of_word(word: u32) -> Self {
        Generation(word >> FLAGS)
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The arrival word of a rank that has reached this generation, without flags.
    pub const fn word(self) -> u32 {
        self.0 << FLAGS
    }

    /// The generation after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Generation::new(self.0.wrapping_add(1))
    }

    /// The generation before this one.
    #[must_use]
    pub const fn previous(self) -> Self {
        Generation::new(self.0.wrapping_sub(1))
    }

    /// Which of the two sets of words and buffers this generation uses.
    pub const fn parity(self) -> usize {
        (self.0 & 1) as usize
    }

    /// Whether a word of a rank that is waited for at this generation shows how that ends: all but the word of two
    /// generations before.
    #[inline]
    pub fn is_decided(self) -> impl Fn(u32) -> bool + Copy {
        let before = self.previous().previous().word();
        move |word| word & !(WAITER | PROGRESS) != before
    }

    /// What the words of the two parities hold before the first round after `self`.
    pub const fn initial_words(self) -> [u32; 2] {
        match self.parity() {
            0 => [self.word(), self.previous().word()],
            _ => [self.previous().word(), self.word()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_with_parity_kept() {
        let last = Generation::new(MASK);
        assert_eq!(last.next(), Generation::new(0));
        assert_eq!(Generation::new(0).previous(), last);
        assert_ne!(last.parity(), last.next().parity());
    }

    #[test]
    fn flags_do_not_touch_the_number() {
        for number in [0, 1, 7, MASK - 1, MASK] {
            let generation = Generation::new(number);
            assert_eq!(Generation::of_word(generation.word() | WAITER | POISON | PROGRESS), generation);
        }
    }

    #[test]
    fn before_the_first_round_each_word_is_two_behind() {
        for start in [0, 1, 5, MASK - 1, MASK] {
            let start = Generation::new(start);
            let first = start.next();
            let words = start.initial_words();
            assert_eq!(words[first.parity()], first.previous().previous().word());
            assert_eq!(words[first.next().parity()], start.word());
        }
    }
}
