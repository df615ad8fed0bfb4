//! Loops over long slices, compiled for wider vectors than every processor of an architecture has.

#[cfg(target_arch = "x86_64")]
use crate::tuning::WIDE_FROM_BYTES;

/// What can be compiled for several kinds of vectors.
pub(crate) trait Work {
    /// Does it. `wide`: this is compiled for vectors of 32 bytes. To be inlined always: what is not inlined is compiled for
    /// the smallest vectors only.
    fn run(self, wide: bool);
}

/// Runs `work` on `bytes` bytes with the vectors that this processor has. The result is the same.
#[inline(always)]
pub(crate) fn widest(bytes: usize, work: impl Work) {
    #[cfg(target_arch = "x86_64")]
    if is_for_avx2(bytes) {
        // SAFETY: I7: the processor has just said that it has AVX2.
        return unsafe { avx2(work) };
    }
    let _ = bytes;
    work.run(false);
}

/// Whether this processor has AVX2, and work on `bytes` bytes is worth asking: shorter work is done before the answer.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn is_for_avx2(bytes: usize) -> bool {
    bytes >= WIDE_FROM_BYTES && !super::cpu::WATCHED && std::arch::is_x86_feature_detected!("avx2")
}

/// What is inlined here is compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(work: impl Work) {
    work.run(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Add<'a>(&'a mut [f64], &'a [f64]);

    impl Work for Add<'_> {
        #[inline(always)]
        fn run(self, _: bool) {
            self.0.iter_mut().zip(self.1).for_each(|(sum, value)| *sum += value);
        }
    }

    #[test]
    fn it_is_done_once_whatever_the_length() {
        for len in [0, 1, 63, 64, 65, 1000] {
            let (mut sums, other): (Vec<f64>, Vec<f64>) = (0..len).map(|i| (f64::from(i), 0.1)).unzip();
            widest(size_of_val(&other[..]), Add(&mut sums, &other));
            assert!((0..len).all(|i| sums[i as usize] == f64::from(i) + 0.1));
        }
    }
}
