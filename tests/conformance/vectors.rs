//! broadcast_vec, allgather_vec and gather_vec, and, with the feature `serde`, the same for values.

use anyhow::{Context, ensure};
use intranode::{Communicator, Error, Operation};

use crate::errors::wrong_on_one_or_all;
use crate::model::{elements, ensure_same};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    #[allow(unused_mut, reason = "there are more with the feature")]
    let mut rows = vec![
        row!(vec_of_every_length_from_every_root),
        row!(vec_through_tiny_staging).staging(64),
        row!(vec_around_the_inline_size),
        row!(vec_where_one_rank_has_much),
        row!(vec_of_elements_without_size),
        row!(vec_at_a_root_that_does_not_exist),
        row!(vec_mismatches).ranks(&[2, 3, 4, 8]),
        row!(vec_many_times),
    ];
    #[cfg(feature = "serde")]
    rows.extend(values::rows());
    rows
}

fn broadcast(comm: &Communicator, len: usize, root: usize) -> Outcome {
    // Whatever the others have is replaced.
    let mut data = if comm.rank() == root { elements(root, len) } else { elements(99, comm.rank() * 5) };
    comm.broadcast_vec(&mut data, root)?;
    ensure_same(&data, &elements(root, len)).with_context(|| format!("{len} elements from {root}"))
}

/// `len(rank)` elements of each rank.
fn gathers(comm: &Communicator, root: usize, len: impl Fn(usize) -> usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let own = elements(rank, len(rank));
    let expected: Vec<f64> = (0..size).flat_map(|rank| elements(rank, len(rank))).collect();
    let expected_counts: Vec<usize> = (0..size).map(&len).collect();
    let (all, counts) = comm.allgather_vec(&own)?;
    ensure_same(&all, &expected)?;
    ensure!(counts == expected_counts, "{counts:?}");
    match comm.gather_vec(&own, root)? {
        Some((all, counts)) => {
            ensure!(rank == root && counts == expected_counts, "{counts:?} on rank {rank}");
            ensure_same(&all, &expected)
        }
        None => {
            ensure!(rank != root, "the root got nothing");
            Ok(())
        }
    }
}

fn vec_of_every_length_from_every_root(comm: Communicator) -> Outcome {
    for root in 0..comm.size() {
        for len in [0, 1, 11, 12, 13, 1000, 70_000] {
            broadcast(&comm, len, root)?;
            gathers(&comm, root, |_| len)?;
            gathers(&comm, root, |rank| (rank + root) % 3 * len)?;
        }
    }
    Ok(())
}

fn vec_through_tiny_staging(comm: Communicator) -> Outcome {
    for root in 0..comm.size() {
        for len in [1, 11, 12, 333] {
            broadcast(&comm, len, root)?;
            gathers(&comm, root, |rank| (rank + root) % 3 * len)?;
        }
    }
    Ok(())
}

/// In bytes: 88 fit with the length, and of a broadcast 4,088.
fn vec_around_the_inline_size(comm: Communicator) -> Outcome {
    for len in (86..=98).chain(4086..=4098) {
        let bytes = |rank: usize| (0..len).map(|index| (rank * 31 + index) as u8).collect::<Vec<u8>>();
        let mut data = if comm.rank() == 0 { bytes(7) } else { Vec::new() };
        comm.broadcast_vec(&mut data, 0)?;
        ensure_same(&data, &bytes(7))?;
        let (all, _) = comm.allgather_vec(&bytes(comm.rank()))?;
        ensure_same(&all, &(0..comm.size()).flat_map(bytes).collect::<Vec<u8>>())?;
    }
    Ok(())
}

fn vec_where_one_rank_has_much(comm: Communicator) -> Outcome {
    (0..comm.size()).try_for_each(|much| gathers(&comm, 0, |rank| if rank == much { 100_000 } else { rank }))
}

fn vec_of_elements_without_size(comm: Communicator) -> Outcome {
    let mut data = vec![(); if comm.rank() == 0 { 5 } else { 0 }];
    comm.broadcast_vec(&mut data, 0)?;
    let (all, counts) = comm.allgather_vec(&vec![(); comm.rank()])?;
    ensure!(
        data.len() == 5 && all.len() == (0..comm.size()).sum::<usize>(),
        "{} and {}",
        data.len(),
        all.len()
    );
    ensure!(counts == (0..comm.size()).collect::<Vec<_>>(), "{counts:?}");
    // As many as a vector has.
    let mut data = vec![(); if comm.rank() == 0 { usize::MAX } else { 0 }];
    comm.broadcast_vec(&mut data, 0)?;
    let own = if comm.rank() == 0 { usize::MAX } else { 0 };
    let (all, _) = comm.allgather_vec(&vec![(); own])?;
    ensure!((data.len(), all.len()) == (usize::MAX, usize::MAX), "{} and {}", data.len(), all.len());
    // More than that is an error on every rank.
    let own = [(); usize::MAX - 1];
    for too_many in [comm.allgather_vec(&own).map(drop), comm.gather_vec(&own, 0).map(drop)] {
        ensure!(comm.size() == 1 || matches!(too_many, Err(Error::AllocationFailed { .. })), "{too_many:?}");
    }
    comm.barrier()?;
    Ok(())
}

fn vec_at_a_root_that_does_not_exist(comm: Communicator) -> Outcome {
    let size = comm.size();
    for bad in [size, usize::MAX] {
        let root = |wrong| if wrong { bad } else { 0 };
        let own = |error: &Error| matches!(error, Error::InvalidRoot { root, .. } if *root == bad);
        let call = |wrong| {
            let mut data = vec![-1.5; 3];
            (comm.broadcast_vec(&mut data, root(wrong)), vec![])
        };
        wrong_on_one_or_all(&comm, Operation::BroadcastVec, call, own)?;
        let call = |wrong| (comm.gather_vec(&[1.0], root(wrong)).map(drop), vec![]);
        wrong_on_one_or_all(&comm, Operation::GatherVec, call, own)?;
    }
    Ok(())
}

/// Other types, roots and operations are a mismatch; lengths are not.
fn vec_mismatches(comm: Communicator) -> Outcome {
    let odd = comm.rank() == comm.size() - 1;
    for len in [1, 1000] {
        let types = match odd {
            true => comm.allgather_vec(&vec![1u32; len]).map(drop),
            false => comm.allgather_vec(&vec![1f32; len]).map(drop),
        };
        let roots = comm.gather_vec(&vec![1u8; len], usize::from(odd)).map(drop);
        let operations = match odd {
            true => comm.broadcast_vec(&mut vec![1u8; len], 0),
            false => comm.broadcast(&mut vec![1u8; len], 0),
        };
        for (what, result) in [("types", types), ("roots", roots), ("operations", operations)] {
            ensure_matches!(&result, Err(Error::Mismatch { calls, .. }) if calls.len() == comm.size());
            ensure!(result.is_err_and(|error| !error.is_fatal()), "{what}");
        }
        still_works(&comm)?;
    }
    Ok(())
}

fn vec_many_times(comm: Communicator) -> Outcome {
    for turn in 0..300 {
        let len = [1, 40, 0, 3000][turn % 4];
        broadcast(&comm, len, turn % comm.size())?;
        gathers(&comm, turn % comm.size(), |rank| (rank + turn) % 2 * len)?;
    }
    Ok(())
}

#[cfg(feature = "serde")]
mod values {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize, Serializer};

    use super::*;

    pub(super) fn rows() -> Vec<Scenario> {
        vec![
            row!(values_of_every_size),
            row!(values_through_tiny_staging).staging(64),
            row!(values_that_cannot_be_encoded),
            row!(values_that_cannot_be_decoded).ranks(&[2, 3, 4, 8]),
            row!(values_at_a_root_that_does_not_exist),
            row!(values_that_make_calls_when_they_are_dropped).ranks(&[2, 3]),
        ]
    }

    type Value = BTreeMap<String, Vec<Option<f64>>>;

    fn value(rank: usize, len: usize) -> Value {
        let numbers = |key| (0..key).map(|index| (index % 3 > 0).then_some((rank * index) as f64)).collect();
        (0..len).map(|key| (format!("key {key} of {rank}"), numbers(key % 50))).collect()
    }

    fn check(comm: &Communicator, len: usize, root: usize) -> Outcome {
        let mut data = if comm.rank() == root { value(root, len) } else { value(99, 1) };
        comm.broadcast_value(&mut data, root)?;
        ensure!(data == value(root, len), "a broadcast of {len}");
        let own = value(comm.rank(), len * comm.rank());
        let expected: Vec<Value> = (0..comm.size()).map(|rank| value(rank, len * rank)).collect();
        ensure!(comm.allgather_values(&own)? == expected, "an allgather of {len}");
        let gathered = comm.gather_values(&own, root)?;
        ensure!(gathered == (comm.rank() == root).then_some(expected), "a gather of {len}");
        Ok(())
    }

    fn values_of_every_size(comm: Communicator) -> Outcome {
        (0..comm.size())
            .try_for_each(|root| [0, 1, 7, 700].into_iter().try_for_each(|len| check(&comm, len, root)))
    }

    fn values_through_tiny_staging(comm: Communicator) -> Outcome {
        [1, 30].into_iter().try_for_each(|len| check(&comm, len, comm.size() - 1))
    }

    /// Refuses to be encoded, if it says so.
    #[derive(Debug, Deserialize)]
    struct Stubborn(bool);

    impl Serialize for Stubborn {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            match self.0 {
                true => Err(serde::ser::Error::custom("it is stubborn")),
                false => serializer.serialize_bool(false),
            }
        }
    }

    fn values_that_cannot_be_encoded(comm: Communicator) -> Outcome {
        let rank = comm.rank();
        let own = |error: &Error| matches!(error, Error::InvalidValue { from, .. } if *from == rank);
        let call = |wrong| (comm.allgather_values(&Stubborn(wrong)).map(drop), vec![]);
        wrong_on_one_or_all(&comm, Operation::AllgatherValues, call, own)?;
        let call = |wrong| (comm.gather_values(&Stubborn(wrong), 0).map(drop), vec![]);
        wrong_on_one_or_all(&comm, Operation::GatherValues, call, own)?;
        // Only the root encodes.
        let error = comm.broadcast_value(&mut Stubborn(true), 0).expect_err("the root is stubborn");
        let expected = match rank {
            0 => own(&error),
            _ => matches!(error, Error::Refused { rank: 0, .. }),
        };
        ensure!(expected && !error.is_fatal(), "{error:?}");
        still_works(&comm)
    }

    /// One rank names another type, which all ranks are told.
    fn values_that_cannot_be_decoded(comm: Communicator) -> Outcome {
        for odd in 0..comm.size() {
            let other = (odd + 1) % comm.size();
            let result = match comm.rank() == odd {
                true => comm.broadcast_value(&mut 7u8, other),
                false => comm.broadcast_value(&mut "a text".to_owned(), other),
            };
            let error = result.expect_err("a text is no number");
            ensure!(!error.is_fatal(), "{error}");
            if comm.rank() == odd {
                ensure_matches!(&error, Error::InvalidValue { from, .. } if *from == other);
                ensure!(error.to_string().contains("left over"), "{error}");
            } else {
                ensure_matches!(error, Error::Refused { rank, .. } if *rank == odd);
            }
            still_works(&comm)?;
        }
        Ok(())
    }

    /// One that was not received makes a call when it is dropped, and panics if that fails.
    struct Caller<'c>(Option<&'c Communicator>);

    impl Drop for Caller<'_> {
        fn drop(&mut self) {
            if let Some(comm) = self.0 {
                comm.barrier().expect("no call is under way");
            }
        }
    }

    impl Serialize for Caller<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_unit()
        }
    }

    impl<'d> Deserialize<'d> for Caller<'_> {
        fn deserialize<D: serde::Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
            <()>::deserialize(deserializer).map(|()| Caller(None))
        }
    }

    fn values_that_make_calls_when_they_are_dropped(comm: Communicator) -> Outcome {
        let mut value = Caller(Some(&comm));
        comm.broadcast_value(&mut value, 0)?;
        ensure!(value.0.is_some() == (comm.rank() == 0));
        drop(value);
        still_works(&comm)
    }

    fn values_at_a_root_that_does_not_exist(comm: Communicator) -> Outcome {
        let root = |wrong| if wrong { comm.size() } else { 0 };
        let own = |error: &Error| matches!(error, Error::InvalidRoot { .. });
        let call = |wrong| (comm.broadcast_value(&mut 1, root(wrong)), vec![]);
        wrong_on_one_or_all(&comm, Operation::BroadcastValue, call, own)?;
        let call = |wrong| (comm.gather_values(&1, root(wrong)).map(drop), vec![]);
        wrong_on_one_or_all(&comm, Operation::GatherValues, call, own)
    }
}
