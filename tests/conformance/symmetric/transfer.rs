//! Cases 20 to 29: put and get.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::ensure;
use intranode::bytemuck::{self, Pod, Zeroable};
use intranode::{Communicator, Error, Signal, Symmetric, Until};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::turns;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};
use crate::threads::hush_this_thread;

pub(crate) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(case_20_ring_of_puts),
        row!(case_21_length_0),
        row!(case_22_to_itself),
        row!(case_23_strided_leaves_gaps),
        row!(case_24_every_size_from_1_to_64),
        row!(case_25_64_mib_exact),
        row!(case_26_concurrent_puts_never_tear),
        row!(case_27_an_index_past_the_end_panics).ends(|rank, size| if rank == size - 1 { 101 } else { 0 }),
        row!(case_28_a_rank_that_does_not_exist),
        row!(case_29_a_forked_child),
    ];
    rows.into_iter().map(|row| row.ranks(&[2, 4])).collect()
}

/// This rank's own instance.
fn own<T: Pod>(object: &Symmetric<T>, comm: &Communicator) -> anyhow::Result<Vec<T>> {
    let mut values = vec![T::zeroed(); object.len()];
    object.at(comm.rank())?.get(0, &mut values);
    Ok(values)
}

fn case_20_ring_of_puts(comm: Communicator) -> Outcome {
    const LEN: usize = (1 << 20) / size_of::<u64>();
    let (rank, size) = (comm.rank(), comm.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let ring = comm.symmetric::<u64>(LEN)?;
    let value = |rank: usize, turn: usize, index: usize| (rank << 40 | turn << 20 | index) as u64;
    for turn in 1..=8 {
        let values: Vec<u64> = (0..LEN).map(|index| value(rank, turn, index)).collect();
        ring.at(next)?.put(0, &values);
        comm.barrier()?;
        let wrong =
            own(&ring, &comm)?.iter().enumerate().position(|(index, got)| *got != value(previous, turn, index));
        ensure!(wrong.is_none(), "in turn {turn} element {wrong:?} is wrong");
        // What this rank has written, from where it lies.
        let mut back = vec![0; LEN];
        ring.at(next)?.get(0, &mut back);
        ensure!(back == values, "in turn {turn}");
        comm.barrier()?;
    }
    Ok(())
}

fn case_21_length_0(comm: Communicator) -> Outcome {
    let next = (comm.rank() + 1) % comm.size();
    let (some, none) = (comm.symmetric::<u32>(3)?, comm.symmetric::<u32>(0)?);
    ensure!(none.is_empty() && none.at(next)?.is_empty());
    for (object, end) in [(&some, 3), (&none, 0)] {
        let remote = object.at(next)?;
        for index in [0, end] {
            remote.put(index, &[]);
            remote.get(index, &mut []);
            remote.put_strided(index, 2, &[]);
            remote.get_strided(index, 2, &mut []);
        }
    }
    ensure!(none.at(next)?.atomics().is_empty());
    comm.barrier()?;
    ensure!(own(&some, &comm)? == [0; 3]);
    Ok(())
}

fn case_22_to_itself(comm: Communicator) -> Outcome {
    let rank = comm.rank();
    let object = comm.symmetric::<u16>(1000)?;
    let remote = object.at(rank)?;
    ensure!(remote.rank() == rank && remote.len() == 1000);
    remote.put(1, &vec![rank as u16 + 7; 998]);
    remote.store(999, 1);
    // At once, without any synchronisation: program order.
    let values = own(&object, &comm)?;
    ensure!(values[0] == 0 && values[999] == 1 && remote.load(999) == 1);
    ensure!(values[1..999].iter().all(|value| *value == rank as u16 + 7), "{values:?}");
    let signals = comm.symmetric::<u64>(1)?;
    object.put_signal(rank, 0, &[5], &signals, 0, Signal::Set(3))?;
    ensure!(signals.wait_until(0, Until::Eq(3))? == 3 && remote.load(0) == 5);
    comm.barrier()?;
    Ok(())
}

fn case_23_strided_leaves_gaps(comm: Communicator) -> Outcome {
    fn of<T: Pod + PartialEq>(comm: &Communicator, untouched: T, value: impl Fn(usize) -> T) -> Outcome {
        const LEN: usize = 100;
        let next = (comm.rank() + 1) % comm.size();
        for (index, stride, count) in [(0, 1, LEN), (0, 2, 50), (1, 2, 50), (3, 7, 14), (99, 5, 1), (0, 99, 2)]
        {
            let object = comm.symmetric::<T>(LEN)?;
            object.at(comm.rank())?.put(0, &[untouched; LEN]);
            comm.barrier()?;
            let values: Vec<T> = (0..count).map(&value).collect();
            object.at(next)?.put_strided(index, stride, &values);
            comm.barrier()?;
            let mut expected = [untouched; LEN];
            for (number, value) in values.iter().enumerate() {
                expected[index + number * stride] = *value;
            }
            ensure!(own(&object, comm)? == expected, "{count} from {index} on, every {stride}");
            let mut back = vec![untouched; count];
            object.at(next)?.get_strided(index, stride, &mut back);
            ensure!(back == values, "{count} from {index} on, every {stride}");
            comm.barrier()?;
        }
        Ok(())
    }
    of(&comm, 0xEEu8, |number| number as u8)?;
    of(&comm, u64::MAX, |number| number as u64)?;
    // Elements of several units.
    of(&comm, [9u16; 3], |number| [number as u16; 3])?;
    of(&comm, [0.5f64; 2], |number| [number as f64, -1.0])
}

/// An element of any size.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Bytes<const N: usize>([u8; N]);

// SAFETY: an array of bytes, transparently.
unsafe impl<const N: usize> Zeroable for Bytes<N> {}
// SAFETY: as above; it has no padding.
unsafe impl<const N: usize> Pod for Bytes<N> {}

fn case_24_every_size_from_1_to_64(comm: Communicator) -> Outcome {
    fn of<T: Pod>(comm: &Communicator) -> Outcome {
        const LEN: usize = 21;
        let (rank, size) = (comm.rank(), comm.size());
        let next = (rank + 1) % size;
        let of_rank = |rank: usize| -> Vec<T> {
            let mut values = vec![T::zeroed(); LEN];
            let bytes = bytemuck::cast_slice_mut::<T, u8>(&mut values).iter_mut().enumerate();
            bytes.for_each(|(index, byte)| *byte = (index * 31 + rank * 101 + 1) as u8);
            values
        };
        let (values, expected) = (of_rank(rank), of_rank((rank + size - 1) % size));
        let object = comm.symmetric::<T>(LEN)?;
        let (remote, here) = (object.at(next)?, object.at(rank)?);
        // The first by a store, the last by strides, the rest by a put.
        remote.store(0, values[0]);
        remote.put(1, &values[1..LEN - 2]);
        remote.put_strided(LEN - 2, 1, &values[LEN - 2..]);
        comm.barrier()?;
        let (got, mut strided) = (own(&object, comm)?, [T::zeroed(); 2]);
        here.get_strided(0, LEN - 1, &mut strided);
        let bytes = bytemuck::cast_slice::<T, u8>;
        let loaded = [here.load(0), here.load(LEN - 1)];
        let right = bytes(&got) == bytes(&expected)
            && bytes(&strided) == bytes(&[expected[0], expected[LEN - 1]])
            && bytes(&loaded) == bytes(&strided);
        ensure!(right, "{} of {} bytes", std::any::type_name::<T>(), size_of::<T>());
        comm.barrier()?;
        Ok(())
    }
    macro_rules! sizes {
        ($($bytes:literal)*) => {$(of::<Bytes<$bytes>>(&comm)?;)*};
    }
    sizes! {
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
    }
    macro_rules! arrays {
        ($($element:ident: $($len:literal)*;)*) => {$($(of::<[$element; $len]>(&comm)?;)*)*};
    }
    arrays! {
        u16: 1 2 3 5 8 13 21 31 32;
        u32: 1 2 3 5 7 12 16;
        i64: 1 2 3 5 8;
        f64: 1 4 7;
        u128: 1 2 3 4;
    }
    Ok(())
}

fn case_25_64_mib_exact(comm: Communicator) -> Outcome {
    const LEN: usize = (64 << 20) / size_of::<u64>();
    let (rank, size) = (comm.rank(), comm.size());
    let value = |rank: usize, index: usize| (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ rank as u64;
    let object = comm.symmetric::<u64>(LEN + 2)?;
    let mut values: Vec<u64> = (0..LEN).map(|index| value(rank, index)).collect();
    // Not at the beginning of a line.
    object.at((rank + 1) % size)?.put(1, &values);
    comm.barrier()?;
    let here = object.at(rank)?;
    here.get(1, &mut values);
    let wrong =
        values.iter().enumerate().position(|(index, got)| *got != value((rank + size - 1) % size, index));
    ensure!(wrong.is_none(), "element {wrong:?} is wrong");
    ensure!((here.load(0), here.load(LEN + 1)) == (0, 0), "what is beside it was written");
    comm.barrier()?;
    Ok(())
}

/// Every rank puts, into one place, elements whose bytes are all equal, by the copy for each length.
fn case_26_concurrent_puts_never_tear(comm: Communicator) -> Outcome {
    const LEN: usize = 200;
    let object = comm.symmetric::<u64>(LEN)?;
    let remote = object.at(0)?;
    comm.barrier()?;
    for turn in 0..turns(2000) {
        let byte = (turn * comm.size() as u64 + comm.rank() as u64) as u8;
        let (index, len) = [(0, 1), (3, 1), (0, 8), (1, 70), (0, LEN)][turn as usize % 5];
        remote.put(index, &[u64::from_ne_bytes([byte; 8]); LEN][..len]);
        let mut seen = [0; LEN];
        remote.get(index, &mut seen[..len]);
        let torn = |value: &&u64| value.to_ne_bytes() != [value.to_ne_bytes()[0]; 8];
        ensure!(seen.iter().find(torn).is_none(), "in turn {turn}: {seen:x?}");
        ensure!(!torn(&&remote.load(3)), "in turn {turn}");
    }
    comm.barrier()?;
    Ok(())
}

fn case_27_an_index_past_the_end_panics(comm: Communicator) -> Outcome {
    const LEN: usize = 10;
    let last = comm.size() - 1;
    let object = comm.symmetric::<u64>(LEN)?;
    let remote = object.at(last)?;
    if comm.rank() == last {
        hush_this_thread();
        let got = RefCell::new([7; 3]);
        let calls: [(&str, &dyn Fn()); 13] = [
            ("store", &|| remote.store(LEN, 1)),
            ("load", &|| assert!(remote.load(LEN) < 2)),
            ("put", &|| remote.put(LEN - 1, &[1; 2])),
            ("put of nothing", &|| remote.put(LEN + 1, &[])),
            ("put at the end of all numbers", &|| remote.put(usize::MAX, &[1; 2])),
            ("get", &|| remote.get(0, &mut [0; LEN + 1])),
            ("put_strided", &|| remote.put_strided(1, 5, &[1; 3])),
            ("put_strided by 0", &|| remote.put_strided(0, 0, &[1; 2])),
            ("put_strided by nearly all numbers", &|| remote.put_strided(3, usize::MAX, &[1; 2])),
            ("get_strided", &|| remote.get_strided(0, usize::MAX, &mut got.borrow_mut()[..])),
            ("fetch_add", &|| assert!(remote.fetch_add(LEN, 1) < 2)),
            ("wait_until", &|| drop(object.wait_until(LEN, Until::Eq(0)))),
            ("put_signal", &|| drop(object.put_signal(last, 0, &[1], &object, LEN, Signal::Set(1)))),
        ];
        for (name, call) in calls {
            ensure!(catch_unwind(AssertUnwindSafe(call)).is_err(), "{name} past the end returned");
        }
        // A panic that is caught has no effect, neither there nor here.
        let values = own(&object, &comm)?;
        ensure!(values == [0; LEN] && got.into_inner() == [7; 3], "{values:?}");
    }
    still_works(&comm)?;
    if comm.rank() == last {
        remote.store(LEN, 1);
    }
    let error = comm.barrier().expect_err("a rank has panicked");
    ensure_matches!(error, Error::Poisoned { rank, reason, .. } if *rank == last && reason.contains("panicked"));
    // What is not collective works on.
    remote.store(0, 9);
    ensure!(remote.load(0) == 9);
    Ok(())
}

fn case_28_a_rank_that_does_not_exist(comm: Communicator) -> Outcome {
    let size = comm.size();
    let object = comm.symmetric::<i32>(4)?;
    for wrong in [size, size + 1, usize::MAX] {
        let results = [
            object.at(wrong).map(drop),
            object.put_signal(wrong, 0, &[1], &object, 1, Signal::Add(1)),
            comm.notify(wrong),
        ];
        for result in results {
            ensure_matches!(result, Err(Error::InvalidRank { rank, size: of, .. }) if (*rank, *of) == (wrong, size));
            let text = result.unwrap_err().to_string();
            ensure!(text.contains(&format!("rank {wrong} is not one of {size} ranks")), "{text}");
        }
    }
    comm.barrier()?;
    ensure!(own(&object, &comm)? == [0; 4]);
    still_works(&comm)
}

/// The exit status of a forked child after success.
const AS_EXPECTED: i32 = 42;

fn case_29_a_forked_child(comm: Communicator) -> Outcome {
    let object = comm.symmetric::<u64>(10)?;
    let lock = comm.lock()?;
    let rank = comm.rank();
    object.at(rank)?.store(0, 7);
    // SAFETY: the child calls the library, which returns before it allocates or locks, and ends at once.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let results = [
                object.at(rank).map(drop),
                object.put_signal(rank, 0, &[1], &object, 1, Signal::Set(1)),
                object.wait_until(0, Until::Eq(7)).map(drop),
                object.test(0, Until::Eq(7)).map(drop),
                object.wait_any(&[(0, Until::Eq(7))]).map(drop),
                comm.quiet(),
                comm.notify(rank),
                lock.lock().map(drop),
                lock.try_lock().map(drop),
                comm.symmetric::<u8>(1).map(drop),
                comm.lock().map(drop),
            ];
            let refused = results.iter().all(|result| matches!(result, Err(Error::Forked { .. })));
            comm.fence();
            // In a child this must not count as a drop of the rank's.
            drop(object);
            // SAFETY: ends the child, without running the parent's exit handlers.
            unsafe { nix::libc::_exit(if refused { AS_EXPECTED } else { 1 }) }
        }
    };
    ensure_matches!(waitpid(child, None)?, WaitStatus::Exited(_, AS_EXPECTED));
    ensure!(object.at(rank)?.load(0) == 7);
    drop(lock.lock()?);
    comm.barrier()?;
    object.free()?;
    still_works(&comm)
}
