//! The number of threads of a rank. Results do not depend on it.

use std::num::NonZeroUsize;

use intranode::Blocks;

/// As requested, else RAYON_NUM_THREADS, else this rank's share of the processors.
pub(crate) fn of_a_rank(requested: Option<NonZeroUsize>, ranks: usize) -> usize {
    let from_env = || std::env::var("RAYON_NUM_THREADS").ok().and_then(|value| value.parse().ok());
    requested.or_else(from_env).map_or_else(
        || {
            let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
            (processors / ranks).max(1)
        },
        NonZeroUsize::get,
    )
}

/// The largest number of threads, up to `available`, with which every rank can train `passes` forward passes.
///
/// Cobre 0.18 distributes a rank's passes over its threads by the rank's own number of passes, but their starting bases by
/// the largest number of any rank. If a thread has a pass without its basis, Cobre panics.
pub(crate) fn for_training(passes: usize, ranks: usize, available: usize) -> usize {
    let [least, most] = [passes / ranks, passes.div_ceil(ranks)];
    let fits = |threads: &usize| {
        let [own, stored] = [least, most].map(|passes| Blocks::new(passes, *threads));
        (0..*threads).all(|thread| {
            let [own, stored] = [own.range(thread), stored.range(thread)];
            own.is_empty() || (stored.start <= own.start && own.end <= stored.end)
        })
    };
    (1..=available).rev().find(fits).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_bases_of_its_passes() {
        // Three ranks have 3, 2 and 2 passes. The second thread of the second rank would have pass 1 and
        // the bases from 2 on.
        assert_eq!(for_training(7, 3, 2), 1);
        assert_eq!(for_training(7, 2, 2), 2);
        assert_eq!(for_training(16, 3, 2), 2);
        // All ranks have the same number of passes, or none at all.
        assert_eq!(for_training(16, 4, 8), 8);
        assert_eq!(for_training(7, 1, 3), 3);
        assert_eq!(for_training(3, 8, 2), 2);
    }
}
