//! The processors that this process may use.

use std::fs;
use std::path::Path;

/// The largest number of processors that a mask has bits for.
const LIMIT: usize = 1024;

/// A set of processors: a bit each.
type Mask = [u64; LIMIT / 64];

/// One rank's processors. From those of all ranks follows whether the job is oversubscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Processors {
    /// The affinity mask; empty where it is unknown.
    mask: Mask,
    /// The number of processors that affinity and the CPU quota of the control group allow together.
    quota: u64,
    /// Identifies the last-level cache that all of them share; 0 if they share none, or it is unknown.
    pub(crate) cache: u64,
}

// SAFETY: I4: only integers, of one size, hence without padding; zeros are valid.
unsafe impl bytemuck::Zeroable for Processors {}
// SAFETY: I4: as above; any bytes are valid.
unsafe impl bytemuck::Pod for Processors {}

impl Processors {
    /// Those of the calling thread.
    pub(crate) fn available() -> Self {
        // The standard library reads the affinity mask and the quotas of cgroups v1 and v2.
        let usable = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        Processors { mask: affinity(), quota: usable, cache: 0 }
    }

    /// The same, with the last-level cache that they share.
    pub(crate) fn with_cache(mut self) -> Self {
        self.cache = last_level_cache(Path::new("/sys/devices/system/cpu"), &self.mask);
        self
    }

    /// Whether two ranks are bound to the same processor, and to no other.
    pub(crate) fn is_one(&self, other: &Processors) -> bool {
        number_in(&self.mask) == 1 && self.mask == other.mask
    }

    /// The number of processors that these ranks have together.
    pub(crate) fn count(ranks: &[Processors]) -> usize {
        let mut union = [0u64; LIMIT / 64];
        let mut quota = u64::MAX;
        for rank in ranks {
            let own = number_in(&rank.mask);
            if own == 0 {
                // Without a mask there is no union to form.
                return ranks.iter().map(|rank| rank.quota).min().unwrap_or(1) as usize;
            }
            if rank.quota < u64::from(own) {
                quota = quota.min(rank.quota);
            }
            union.iter_mut().zip(rank.mask).for_each(|(all, mask)| *all |= mask);
        }
        u64::from(number_in(&union)).min(quota) as usize
    }
}

/// Identifies the last-level cache by one more than the lowest processor that shares it; 0 if the mask spans several.
fn last_level_cache(system: &Path, mask: &Mask) -> u64 {
    let Some(first) = (0..LIMIT).find(|processor| is_set(mask, *processor)) else { return 0 };
    let caches = (0..).map(|index| system.join(format!("cpu{first}/cache/index{index}")));
    // Linux lists a processor's caches by level: the last is shared by the most processors.
    let lists = caches.map_while(|cache| fs::read_to_string(cache.join("shared_cpu_list")).ok());
    let shared = super::numa::parse_list(&lists.last().unwrap_or_default());
    let shares = |processor: usize| shared.iter().any(|other| *other as usize == processor);
    let all_share = (0..LIMIT).filter(|processor| is_set(mask, *processor)).all(shares);
    if all_share { shared.iter().min().map_or(0, |lowest| u64::from(*lowest) + 1) } else { 0 }
}

/// The number of processors in a set.
fn number_in(mask: &Mask) -> u32 {
    mask.iter().map(|word| word.count_ones()).sum()
}

fn is_set(mask: &Mask, processor: usize) -> bool {
    mask[processor / 64] >> (processor % 64) & 1 == 1
}

/// The affinity mask of the calling thread; empty where the system does not provide it.
#[cfg(target_os = "linux")]
fn affinity() -> Mask {
    let mut mask = [0u64; LIMIT / 64];
    // SAFETY: I7: the call writes at most the length that it is given.
    let status = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    if status == 0 { mask } else { [0; LIMIT / 64] }
}

#[cfg(not(target_os = "linux"))]
fn affinity() -> Mask {
    [0; LIMIT / 64]
}

/// The low 8 bits of the number of the processor that the calling thread runs on.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline]
pub(crate) fn current() -> Option<u8> {
    // SAFETY: I7: the call has no preconditions.
    let processor = unsafe { libc::sched_getcpu() };
    (processor >= 0).then_some(processor as u8)
}

#[cfg(any(not(target_os = "linux"), miri))]
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
    fn only_ranks_that_are_bound_to_the_same_processor_share_one() {
        let is_one = |mask, other| rank(mask, 1).is_one(&rank(other, 1));
        assert!(is_one(0b10, 0b10));
        assert!(!is_one(0b10, 0b01) && !is_one(0b10, 0b11));
        // Unbound, and unknown.
        assert!(!is_one(0b11, 0b11) && !is_one(0, 0));
    }

    #[test]
    fn the_masks_of_pinned_ranks_are_united() {
        assert_eq!(Processors::count(&[rank(0b01, 1), rank(0b10, 1)]), 2);
        assert_eq!(Processors::count(&[rank(0b01, 1), rank(0b01, 1)]), 1);
        assert_eq!(Processors::count(&[rank(0b1111, 4), rank(0b1111, 4)]), 4);
    }

    #[test]
    fn a_quota_below_the_mask_counts() {
        assert_eq!(Processors::count(&[rank(0b1111, 2), rank(0b1111, 2)]), 2);
    }

    #[test]
    fn without_a_mask_the_smallest_quota_counts() {
        assert_eq!(Processors::count(&[rank(0, 3), rank(0b1, 1)]), 1);
        assert_eq!(Processors::count(&[rank(0, 3), rank(0, 3)]), 3);
    }

    #[test]
    fn this_process_has_processors() {
        assert!(Processors::count(&[Processors::available()]) > 0);
    }

    #[test]
    fn a_cache_counts_only_if_all_processors_of_the_mask_share_it() {
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
