//! Which processors this process may use.

use std::fs;
use std::path::Path;

/// How many processors a mask can name.
pub(crate) const LIMIT: usize = 1024;

/// A set of processors: a bit each.
pub(crate) type Mask = [u64; LIMIT / 64];

/// What one rank knows about its processors. All ranks' together tell whether each rank can have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Processors {
    /// The affinity mask; empty if the system does not tell.
    mask: Mask,
    /// How many of them the quota of the control group allows at a time.
    quota: u64,
    /// A number of the cache that all of them share, which nobody else's has; 0 if they do not, or it is not known.
    pub(crate) cache: u64,
}

// SAFETY: I4: only integers, of one size, hence without padding; zeros are valid.
unsafe impl bytemuck::Zeroable for Processors {}
// SAFETY: I4: as above; any bytes are valid.
unsafe impl bytemuck::Pod for Processors {}

impl Processors {
    /// Those of the calling thread.
    pub(crate) fn available() -> Self {
        // The standard library looks at the affinity mask and at the quotas of cgroups v1 and v2.
        let usable = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        Processors { mask: affinity(), quota: usable, cache: 0 }
    }

    /// The same, with the cache that they share.
    pub(crate) fn with_cache(mut self) -> Self {
        self.cache = last_level_cache(Path::new("/sys/devices/system/cpu"), &self.mask);
        self
    }

    /// How many processors ranks with these have together.
    pub(crate) fn count(ranks: &[Processors]) -> usize {
        let mut union = [0u64; LIMIT / 64];
        let mut quota = u64::MAX;
        for rank in ranks {
            let own: u32 = rank.mask.iter().map(|word| word.count_ones()).sum();
            if own == 0 {
                // Nothing is known but the number.
                return ranks.iter().map(|rank| rank.quota).min().unwrap_or(1) as usize;
            }
            if rank.quota < u64::from(own) {
                quota = quota.min(rank.quota);
            }
            union.iter_mut().zip(rank.mask).for_each(|(all, mask)| *all |= mask);
        }
        let named: u32 = union.iter().map(|word| word.count_ones()).sum();
        u64::from(named).min(quota) as usize
    }
}

/// One more than the first processor of those that share the last-level cache with all in the mask; 0 if there is none.
fn last_level_cache(system: &Path, mask: &Mask) -> u64 {
    let Some(first) = (0..LIMIT).find(|processor| holds(mask, *processor)) else { return 0 };
    let caches = (0..).map(|index| system.join(format!("cpu{first}/cache/index{index}")));
    // The last of a processor's caches that the system lists is the one that the most processors share.
    let lists = caches.map_while(|cache| fs::read_to_string(cache.join("shared_cpu_list")).ok());
    let shared = super::numa::list(&lists.last().unwrap_or_default());
    let inside = |processor: usize| shared.iter().any(|other| *other as usize == processor);
    let all = (0..LIMIT).filter(|processor| holds(mask, *processor)).all(inside);
    if all { shared.iter().min().map_or(0, |least| u64::from(*least) + 1) } else { 0 }
}

fn holds(mask: &Mask, processor: usize) -> bool {
    mask[processor / 64] >> (processor % 64) & 1 == 1
}

/// The processors that the calling thread may use; none if the system does not tell.
#[cfg(target_os = "linux")]
pub(crate) fn affinity() -> Mask {
    let mut mask = [0u64; LIMIT / 64];
    // SAFETY: I7: the call writes at most the length that it is given.
    let status = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    if status == 0 { mask } else { [0; LIMIT / 64] }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn affinity() -> Mask {
    [0; LIMIT / 64]
}

/// A number for the processor that the calling thread is on, if the system tells.
#[cfg(target_os = "linux")]
#[inline]
pub(crate) fn current() -> Option<u8> {
    // SAFETY: I7: the call has no preconditions.
    let processor = unsafe { libc::sched_getcpu() };
    (processor >= 0).then_some(processor as u8)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn current() -> Option<u8> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(mask: u64, quota: u64) -> Processors {
        let mut processors = Processors { mask: [0; LIMIT / 64], quota, cache: 0 };
        processors.mask[1] = mask;
        processors
    }

    #[test]
    fn pinned_ranks_have_their_processors_together() {
        assert_eq!(Processors::count(&[rank(0b01, 1), rank(0b10, 1)]), 2);
        assert_eq!(Processors::count(&[rank(0b01, 1), rank(0b01, 1)]), 1);
        assert_eq!(Processors::count(&[rank(0b1111, 4), rank(0b1111, 4)]), 4);
    }

    #[test]
    fn a_quota_counts_less_than_the_mask() {
        assert_eq!(Processors::count(&[rank(0b1111, 2), rank(0b1111, 2)]), 2);
    }

    #[test]
    fn without_a_mask_the_number_counts() {
        assert_eq!(Processors::count(&[rank(0, 3), rank(0b1, 1)]), 1);
        assert_eq!(Processors::count(&[rank(0, 3), rank(0, 3)]), 3);
    }

    #[test]
    fn this_process_has_some() {
        assert!(Processors::count(&[Processors::available()]) > 0);
    }

    #[test]
    fn the_cache_that_all_processors_of_a_mask_share_is_found() {
        let system = tempfile::tempdir().unwrap();
        for (processor, lists) in [(0, ["0", "0-1,4"]), (1, ["1", "0-1,4"]), (2, ["2", "2-3"])] {
            for (index, list) in lists.iter().enumerate() {
                let cache = system.path().join(format!("cpu{processor}/cache/index{index}"));
                fs::create_dir_all(&cache).unwrap();
                fs::write(cache.join("shared_cpu_list"), format!("{list}\n")).unwrap();
            }
        }
        let cache = |bits: u64| {
            let mut mask = [0; LIMIT / 64];
            mask[0] = bits;
            last_level_cache(system.path(), &mask)
        };
        assert_eq!([0b1, 0b10, 0b1_0011].map(cache), [1; 3]);
        assert_eq!(cache(0b1100), 3);
        assert_eq!([0, 0b101, 0b1_0000].map(cache), [0; 3]);
    }
}
