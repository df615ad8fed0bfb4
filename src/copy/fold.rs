//! Folding what several ranks have contributed, in one pass over all of it.
//!
//! The result is read and written once, whatever the number of contributions, and it can be published on the way: reading
//! lines of others and non-temporal stores go on at the same time.

use core::ops::Range;

use bytemuck::Pod;

use super::dispatch::{Work, widest};
use super::lines::{self, Level};
use super::publish::Batches;
use super::raw::{RawSource, RawTarget};
use super::relaxed;
use super::view::{Sink, Source, TERMS, Term};
use crate::tuning::PREFETCH_READ_BYTES;

/// The size of wide vectors in bytes. One that lies across two lines takes twice as long to store.
const VECTOR: usize = 32;

/// Folds the terms, one after the other in the order given, into `target`: to what is there, or, if `begin`, from the
/// first term on. Values that are this rank's own are in `own`, or, if that is none, in `target`. The result is put into
/// `staging` too, if there is any, as by [`Sink::put`].
///
/// # Panics
/// When a term or the staging is shorter than the target, or there are no terms, or more than [`TERMS`].
#[inline(always)]
pub fn fold<T: Pod>(
    target: &mut [T],
    own: Option<&[T]>,
    begin: bool,
    terms: &[Term<'_>],
    staging: Option<Sink<'_>>,
    combine: impl Fn(T, T) -> T,
) {
    let own = own.map(|own| own[..target.len()].as_ptr());
    // SAFETY: I8: both are slices, and `own` is as long as the target.
    unsafe {
        fold_at::<_, false>((target.as_mut_ptr(), target.len(), true), own, begin, terms, staging, combine)
    };
}

/// The same by an operation of the program's own. It is given copies, which nothing changes while it looks at them, so the compiler must
/// not read them again where they came from: they are loaded as if others might write there. And no step depends on addresses: all
/// ranks fold an element by the same instructions, or a NaN could have other bits on some.
///
/// # Panics
/// As [`fold`], and when the operation does.
#[inline(always)]
pub(crate) fn fold_with<T: Pod>(
    target: &mut [T],
    own: Option<&[T]>,
    begin: bool,
    terms: &[Term<'_>],
    staging: Option<Sink<'_>>,
    combine: impl Fn(T, T) -> T,
) {
    let own = own.map(|own| own[..target.len()].as_ptr());
    // SAFETY: I8, as in `fold`.
    unsafe {
        fold_at::<_, true>((target.as_mut_ptr(), target.len(), false), own, begin, terms, staging, combine)
    };
}

/// The same of buffers that other threads may write meanwhile.
///
/// # Panics
/// As [`fold`]; when `own` has another length than the target.
#[inline(always)]
pub fn fold_raw<T: Pod>(
    mut target: RawTarget<'_, T>,
    own: Option<RawSource<'_, T>>,
    begin: bool,
    terms: &[Term<'_>],
    staging: Option<Sink<'_>>,
    combine: impl Fn(T, T) -> T,
) {
    let len = target.len();
    let own = own.map(|own| {
        assert!(own.len() == len);
        own.start().cast()
    });
    // SAFETY: I8: the target can be read and written, and `own`, which is as long, can be read.
    unsafe { fold_at::<_, true>((target.start().cast(), len, true), own, begin, terms, staging, combine) };
}

/// Folds a term that is short to what is in `target`, without vectors wider than all processors have: to begin with those takes
/// longer.
///
/// # Panics
/// When the term is shorter than the target.
#[inline(always)]
pub fn fold_short<T: Pod>(target: &mut [T], term: Source<'_>, combine: impl Fn(T, T) -> T) {
    let values = term.range(0, size_of_val(target)).cast::<T>();
    for (index, value) in target.iter_mut().enumerate() {
        // SAFETY: I1 and I2: the value is inside the view, which nobody writes meanwhile. I4: any bytes are a `Pod`; no alignment is
        // assumed.
        let other = unsafe { values.wrapping_add(index).read_unaligned() };
        *value = combine(*value, other);
    }
}

/// [`fold_short`] for [`fold_with`]. Not inlined, which would be done twice: for this rank's own term, and for those of others.
///
/// # Panics
/// When the term is shorter than the target, and when the operation does.
#[inline(never)]
pub(crate) fn fold_short_with<T: Pod>(target: &mut [T], term: Source<'_>, combine: impl Fn(T, T) -> T) {
    let values = term.range(0, size_of_val(target)).cast::<T>();
    for (index, value) in target.iter_mut().enumerate() {
        // SAFETY: I1 and I2: the value is inside the view, which nobody writes meanwhile.
        let [other] = unsafe { relaxed::load(values.wrapping_add(index).cast(), false) };
        *value = combine(*value, other);
    }
}

/// [`fold`] and [`fold_raw`]. `RAW`: others may write this rank's values meanwhile. `aligned`: as for [`Fold`].
///
/// # Safety
/// The target, of this length, can be read and written, and as many values can be read at `own`. If not `RAW`, nobody else writes
/// them.
#[inline(always)]
unsafe fn fold_at<T: Pod, const RAW: bool>(
    (target, len, aligned): (*mut T, usize, bool),
    own: Option<*const T>,
    begin: bool,
    terms: &[Term<'_>],
    staging: Option<Sink<'_>>,
    combine: impl Fn(T, T) -> T,
) {
    assert!(terms.len() <= TERMS);
    let bytes = len * size_of::<T>();
    // What is in the target, to begin with or not.
    let mut sources = [target.cast_const(); 1 + TERMS];
    for (source, term) in sources[1..].iter_mut().zip(terms) {
        *source = match (term, own) {
            (Term::Own, None) => target,
            (Term::Own, Some(own)) => own,
            (Term::Staged(staging), _) => staging.range(0, bytes).cast(),
        };
    }
    let (first, rest) = sources[usize::from(begin)..1 + terms.len()].split_first().expect("there are terms");
    let (first, combine, targets) = (*first, &combine, [target; 2]);
    let only =
        |range| Fold::<_, _, _, false, RAW> { first, rest, combine, targets, range, until: len, aligned };
    let Some(staging) = staging else {
        let [second] = *rest else { return widest(bytes, only(0..len)) };
        // A loop over two terms, whose places stay in registers.
        let (rest, range) = ([second], 0..len);
        return widest(
            bytes,
            Fold::<_, _, _, false, RAW> { first, rest, combine, targets, range, until: len, aligned },
        );
    };
    assert!(bytes <= staging.len);
    let batches = Batches::of(bytes);
    let Some(step) = batches.step().map(|bytes| bytes / size_of::<T>().max(1)) else {
        let targets = [target, staging.start.cast()];
        return widest(
            bytes,
            Fold::<_, _, _, true, RAW> { first, rest, combine, targets, range: 0..len, until: len, aligned },
        );
    };
    let step = step.max(1);
    let publish = if RAW { Batches::publish_raw } else { Batches::publish };
    for start in (0..len).step_by(step) {
        let end = (start + step).min(len);
        let (offset, bytes) = (start * size_of::<T>(), (end - start) * size_of::<T>());
        widest(bytes, only(start..end));
        let (source, place) = (target.cast::<u8>().wrapping_add(offset), staging.start.wrapping_add(offset));
        // SAFETY: I1 and I2: the staging is as long as the result, and this rank's to write. I8: the caller's memory does not
        // overlap with it.
        unsafe { publish(&batches, source, place, bytes) };
    }
}

/// A part of what is folded, to be done with the widest vectors. Its terms and its targets have been checked. `rest`: the terms after
/// the first. `until`: the end of what is folded next, which is prefetched. `aligned`: wide vectors are stored to aligned places. If
/// `ALSO`, the result is written to the second target too. If `RAW`, others may write the terms and the target meanwhile.
struct Fold<'a, T, R, C, const ALSO: bool, const RAW: bool> {
    first: *const T,
    rest: R,
    combine: &'a C,
    targets: [*mut T; 2],
    range: Range<usize>,
    until: usize,
    aligned: bool,
}

impl<T: Pod, R: AsRef<[*const T]> + Copy, C: Fn(T, T) -> T, const ALSO: bool, const RAW: bool> Work
    for Fold<'_, T, R, C, ALSO, RAW>
{
    #[inline(always)]
    fn run(self, wide: bool) {
        let Range { start, end } = self.range;
        let mut done = start;
        if wide && self.aligned {
            let head = self.targets[0].wrapping_add(start).align_offset(VECTOR);
            // Of some sizes and places none is aligned.
            let head = if head < VECTOR { head.min(end - start) } else { 0 };
            // SAFETY: I1, I2 and I8: the values can be read at each of the terms, and nobody writes them meanwhile but
            // here; they can be written at the targets. The head is at most the range.
            done = unsafe { self.blocks::<1>(start..start + head, wide) };
        }
        if size_of::<T>() < 4 {
            // So that a block of small values is worth a vector.
            // SAFETY: I1, I2 and I8: as above, here and below.
            done = unsafe { self.most::<64>(done..end, wide) };
            // SAFETY: I1, I2 and I8: as above.
            done = unsafe { self.blocks::<16>(done..end, wide) };
        } else {
            // SAFETY: I1, I2 and I8: as above.
            done = unsafe { self.most::<16>(done..end, wide) };
        }
        // SAFETY: I1, I2 and I8: as above.
        done = unsafe { self.blocks::<4>(done..end, wide) };
        // SAFETY: I1, I2 and I8: as above.
        unsafe { self.blocks::<1>(done..end, wide) };
    }
}

impl<T: Pod, R: AsRef<[*const T]> + Copy, C: Fn(T, T) -> T, const ALSO: bool, const RAW: bool>
    Fold<'_, T, R, C, ALSO, RAW>
{
    /// [`blocks`](Self::blocks) of what may be long: it is prefetched, or read in [several places](lines::streams) at a time.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn most<const N: usize>(&self, range: Range<usize>, wide: bool) -> usize {
        let ahead = PREFETCH_READ_BYTES / size_of::<T>().max(1);
        let level = lines::prefetches_folds();
        let prefetched = |start| level.filter(|_| start + ahead + N <= self.until);
        // A second target has lines of others too, which take longer to store by turns.
        let streams = if ALSO || level.is_some() { 1 } else { lines::streams(size_of::<T>() * range.len()) };
        let mut start = range.start;
        if streams > 1 {
            let part = range.len() / N / streams * N;
            for at in (0..part / N).map(|index| range.start + index * N) {
                for start in (0..streams).map(|stream| at + stream * part) {
                    // SAFETY: the caller's promise: the block is in the range.
                    unsafe { self.block::<N>(start, None, wide) };
                }
            }
            start += streams * part;
        }
        while range.end - start >= N {
            // SAFETY: the caller's promise, as above.
            unsafe { self.block::<N>(start, prefetched(start), wide) };
            start += N;
        }
        start
    }

    /// Folds as many blocks of `N` values as the range has, and returns where the rest begins.
    ///
    /// # Safety
    /// The range can be read at each term and written at the targets, of which a term is all or nothing.
    #[inline(always)]
    unsafe fn blocks<const N: usize>(&self, range: Range<usize>, wide: bool) -> usize {
        let mut start = range.start;
        while range.end - start >= N {
            // SAFETY: the caller's promise: the block is in the range.
            unsafe { self.block::<N>(start, None, wide) };
            start += N;
        }
        start
    }

    /// Folds a block. It is written when it has been read from all terms, one of which may be the target: no term has to be told
    /// from it. A method, which is inlined always: a closure need not be, and would be compiled for the smallest vectors.
    ///
    /// # Safety
    /// The block can be read at each term and written at the targets.
    #[inline(always)]
    unsafe fn block<const N: usize>(&self, start: usize, prefetched: Option<Level>, wide: bool) {
        let Fold { first, rest, combine, .. } = *self;
        let block = |term: *const T| term.wrapping_add(start).cast::<[T; N]>();
        if let Some(level) = prefetched {
            lines::prefetch_read::<[T; N]>(block(first), level);
            for term in rest.as_ref() {
                lines::prefetch_read::<[T; N]>(block(*term), level);
            }
        }
        // SAFETY: the caller's promise.
        let mut values = unsafe { Self::load(block(first), wide) };
        for term in rest.as_ref() {
            // SAFETY: the caller's promise.
            let more = unsafe { Self::load(block(*term), wide) };
            for (value, other) in values.iter_mut().zip(&more) {
                *value = combine(*value, *other);
            }
        }
        let [target, also] = self.targets.map(|target| block(target).cast_mut());
        if RAW {
            // SAFETY: the caller's promise.
            unsafe { relaxed::store(&values, target.cast(), wide) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { target.write_unaligned(values) };
        }
        if ALSO {
            // SAFETY: the caller's promise.
            unsafe { also.write_unaligned(values) };
        }
    }

    /// # Safety
    /// The block can be read.
    #[inline(always)]
    unsafe fn load<const N: usize>(block: *const [T; N], wide: bool) -> [T; N] {
        if RAW {
            // SAFETY: the caller's promise.
            unsafe { relaxed::load(block.cast(), wide) }
        } else {
            // SAFETY: the caller's promise. I4: any bytes are a `Pod`; no alignment is assumed.
            unsafe { block.read_unaligned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::publish;
    use super::*;

    /// More than a batch of values that are published by non-temporal stores. Miri takes a millisecond for each value.
    const LONG: usize = if cfg!(miri) { 1100 } else { 5000 };

    /// Up to here every case is folded, of what is longer only one by Miri.
    const SHORT: usize = if cfg!(miri) { 200 } else { 10_000 };

    /// In which the order shows.
    fn combine(sum: u16, next: u16) -> u16 {
        sum.wrapping_mul(31).wrapping_add(next)
    }

    fn values(term: usize, len: usize) -> Vec<u16> {
        (0..len).map(|index| (1000 * (term + 1) + 7 * index) as u16).collect()
    }

    fn source(values: &[u16]) -> Source<'_> {
        // SAFETY: the slice can be read as long as it is borrowed.
        unsafe { Source::new(values.as_ptr().cast(), size_of_val(values)) }
    }

    /// What comes of folding all columns after `before`, index by index.
    fn expected(before: Option<&[u16]>, columns: &[Vec<u16>], len: usize) -> Vec<u16> {
        let fold = |index: usize| {
            let mut column = before.into_iter().chain(columns.iter().map(|column| &column[..]));
            let first = column.next().expect("something")[index];
            column.fold(first, |sum, column| combine(sum, column[index]))
        };
        (0..len).map(fold).collect()
    }

    #[test]
    fn any_number_of_terms_of_any_length_is_folded_in_order() {
        for len in [0, 1, 3, 4, 15, 16, 17, 64, 65, 200, 3000, 5000, 9001] {
            // One that is read in several places at a time is enough for Miri.
            for count in (1..=TERMS).filter(|count| len <= SHORT || (len, *count) == (5000, 2)) {
                let columns: Vec<_> = (0..count).map(|term| values(term, len)).collect();
                let terms: Vec<_> = columns.iter().map(|column| Term::Staged(source(column))).collect();
                let before = values(9, len);
                for begin in [true, false] {
                    let mut target = before.clone();
                    fold(&mut target, None, begin, &terms, None, combine);
                    assert_eq!(target, expected((!begin).then_some(&before[..]), &columns, len));
                }
            }
        }
    }

    #[test]
    fn a_short_term_is_folded_to_what_is_there() {
        for len in [0, 1, 4, 12, 48] {
            let (before, term) = (values(9, len), values(0, len));
            let mut target = before.clone();
            fold_short(&mut target, source(&term), combine);
            let mut same = before.clone();
            fold_short_with(&mut same, source(&term), combine);
            assert_eq!(target, expected(Some(&before), &[term], len));
            assert_eq!(same, target);
        }
    }

    #[test]
    fn an_operation_of_the_program_folds_elements_of_any_size_anywhere() {
        fn check<const N: usize>(len: usize)
        where
            [u16; N]: Pod,
        {
            let columns: Vec<_> = (0..3).map(|term| values(term, N * len)).collect();
            let mut terms: Vec<_> = columns.iter().map(|column| Term::Staged(source(column))).collect();
            terms[1] = Term::Own;
            let fold_all = |acc: [u16; N], x: [u16; N]| std::array::from_fn(|at| combine(acc[at], x[at]));
            for before in 0..3 {
                let own: &[[u16; N]] = bytemuck::cast_slice(&columns[1]);
                let mut target = vec![[7u16; N]; before + len + 1];
                fold_with(&mut target[before..][..len], Some(own), true, &terms, None, fold_all);
                let folded = target.drain(before..before + len).collect::<Vec<_>>();
                assert_eq!(bytemuck::cast_slice::<_, u16>(&folded), expected(None, &columns, N * len));
                assert!(target.iter().all(|element| *element == [7; N]));
            }
        }
        for len in [0, 1, 17, 70, 600].into_iter().filter(|len| *len <= SHORT / 8) {
            check::<1>(len);
            check::<3>(len);
            check::<8>(len);
            check::<32>(len);
        }
    }

    #[test]
    #[should_panic = "offset <= self.len"]
    fn a_short_term_that_is_shorter_than_the_target_is_not_read() {
        let short = values(0, 9);
        fold_short(&mut values(1, 10), source(&short), combine);
    }

    #[test]
    fn own_values_are_taken_from_where_they_are_and_the_result_is_published() {
        let len = LONG;
        let columns: Vec<_> = (0..3).map(|term| values(term, len)).collect();
        for own in 0..3 {
            let mut terms: Vec<_> = columns.iter().map(|column| Term::Staged(source(column))).collect();
            terms[own] = Term::Own;
            for (in_place, stream) in [(false, 0), (true, 0), (false, 1 << 20), (true, 1 << 20)] {
                publish::force_nontemporal(stream);
                let mut target = if in_place { columns[own].clone() } else { vec![0; len] };
                let mut staging = vec![0u16; len];
                // SAFETY: the vector can be written as long as it is borrowed.
                let sink = unsafe { Sink::new(staging.as_mut_ptr().cast(), 2 * len) };
                let apart = (!in_place).then_some(&columns[own][..]);
                fold(&mut target, apart, true, &terms, Some(sink), combine);
                assert_eq!(target, expected(None, &columns, len));
                assert_eq!(staging, target);
            }
        }
    }

    #[test]
    fn buffers_that_others_may_write_are_folded_alike() {
        for len in [0, 1, 3, 15, 17, 200, LONG + 1] {
            let columns: Vec<_> = (0..3).map(|term| values(term, len)).collect();
            for own in (0..3).filter(|own| len <= SHORT || *own == 1) {
                let mut terms: Vec<_> = columns.iter().map(|column| Term::Staged(source(column))).collect();
                terms[own] = Term::Own;
                // Miri may end where what was stored by bytes is loaded by words (rust-lang/miri#5185).
                let even = usize::from(cfg!(miri));
                for (in_place, stream, odd) in
                    [(false, 0, 0), (true, 0, 1), (false, 1 << 20, 1), (true, 1 << 20, even)]
                {
                    publish::force_nontemporal(stream);
                    // From a word on, or from an odd address.
                    let mut memory = vec![0u8; 2 * len + 8];
                    let odd = memory.as_ptr().align_offset(8) + odd;
                    if in_place {
                        memory[odd..][..2 * len].copy_from_slice(bytemuck::cast_slice(&columns[own]));
                    }
                    let mut staging = vec![0u16; len];
                    // SAFETY: the vector can be written as long as it is borrowed.
                    let sink = unsafe { Sink::new(staging.as_mut_ptr().cast(), 2 * len) };
                    // SAFETY: the vector has as many bytes behind the offset.
                    let target =
                        unsafe { RawTarget::new(memory.as_mut_ptr().wrapping_add(odd).cast::<u16>(), len) };
                    let apart = (!in_place).then(|| RawSource::from(&columns[own][..]));
                    fold_raw(target, apart, true, &terms, Some(sink), combine);
                    assert_eq!(staging, expected(None, &columns, len));
                    assert_eq!(memory[odd..][..2 * len], *bytemuck::cast_slice::<_, u8>(&staging));
                }
            }
        }
    }

    #[test]
    fn a_result_can_be_written_to_two_places_at_a_time() {
        for len in [0, 1, 15, 70, 3000].into_iter().filter(|len| *len <= SHORT) {
            let columns = [values(0, len), values(1, len)];
            let (first, rest) = (columns[0].as_ptr(), [columns[1].as_ptr()]);
            let mut results = [vec![0; len], vec![0; len]];
            let targets = results.each_mut().map(|target| target.as_mut_ptr());
            let (combine, range, aligned) = (&combine, 0..len, true);
            widest(
                2 * len,
                Fold::<_, _, _, true, false> { first, rest, combine, targets, range, until: len, aligned },
            );
            assert_eq!(results, [expected(None, &columns, len), expected(None, &columns, len)]);
        }
    }

    #[test]
    #[should_panic = "offset <= self.len"]
    fn a_term_that_is_too_short_is_not_read() {
        let short = values(0, 9);
        fold(&mut values(1, 10), None, true, &[Term::Staged(source(&short))], None, combine);
    }
}
