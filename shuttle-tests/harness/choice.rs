//! Choices that belong to the schedule: a replay makes them again.

use shuttle::rand::{Rng, thread_rng};

/// A number below `end`.
pub fn below(end: usize) -> usize {
    thread_rng().gen_range(0..end)
}

/// A number below 2^`bits`, each length in bits equally likely.
pub fn below_power_of_two(bits: u32) -> u64 {
    let bits = thread_rng().gen_range(0..=bits);
    thread_rng().gen_range(0..1 << bits)
}

/// True once in `of` times.
pub fn once_in(of: usize) -> bool {
    below(of) == 0
}

/// One of the choices.
pub fn one_of<T: Copy>(choices: &[T]) -> T {
    choices[below(choices.len())]
}
