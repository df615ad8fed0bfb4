//! Litmus tests of symmetric memory: what OpenSHMEM and NVSHMEM promise about the order of operations, one promise a model,
//! and the outcome that it forbids. Those of causality through other ranks are in [`chains`](super::chains).
//!
//! Nobody sleeps here, so that nothing but the orderings of the accesses connects the ranks: not even the fence by which a
//! write looks for sleepers. Where a rank does not wait, it looks once, and what it must see follows from what it has seen.

use intranode::protocol::symmetric::access::Signalling::{Add, Set};

use crate::harness::actor::At;
use crate::harness::one_sided::{OneSidedModel, Role, Seen};
use crate::harness::waiting::Waiting::Spinning;

/// Two elements and a flag of rank 1's.
pub(crate) const X: At = At(1, 0);
pub(crate) const Y: At = At(1, 1);
pub(crate) const FLAG: At = At(1, 2);

/// A flag of the last of three ranks.
pub(crate) const FAR: At = At(2, 0);

/// Two ranks, or three, and what must hold of the values that they have seen.
pub(crate) fn litmus(
    name: &str,
    ranks: &[Role],
    allowed: impl Fn(&[Vec<u64>]) -> bool + Send + Sync + 'static,
) -> OneSidedModel {
    let model = OneSidedModel::new(format!("litmus_{name}"), Spinning);
    let model = ranks.iter().enumerate().fold(model, |model, (rank, role)| model.rank(rank, *role));
    model.check(move |seen: &[Seen]| {
        assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}");
        let values: Vec<Vec<u64>> = seen.iter().map(|seen| seen.values.clone()).collect();
        assert!(allowed(&values), "a forbidden outcome: {values:?}");
    })
}

/// Message passing: a rank that loads what was stored sees what was put before. A store is complete "in the order in which the
/// operations are performed".
fn store_then_load() -> OneSidedModel {
    litmus(
        "store_then_load",
        &[
            |rank| {
                rank.put(X, &[1])?;
                rank.store(FLAG, 1)
            },
            |rank| {
                rank.sees(rank.load(FLAG));
                rank.sees(rank.get(X));
                Ok(())
            },
        ],
        |seen| seen[1] != [1, 0],
    )
}

/// `nvshmem_fence`: what was put before is seen before what is put behind, whatever reads it, cell by cell or not.
fn put_fence_put() -> OneSidedModel {
    litmus(
        "put_fence_put",
        &[
            |rank| {
                rank.put_strided(X, &[1, 1])?;
                rank.fence();
                rank.put(FLAG, &[1])
            },
            |rank| {
                rank.sees(rank.load(FLAG));
                rank.sees(rank.get(X));
                rank.sees(rank.get(Y));
                Ok(())
            },
        ],
        |seen| seen[1][0] == 0 || seen[1] == [1, 1, 1],
    )
}

/// `nvshmem_fence` and `nvshmem_wait_until`: put, fence, store; who has waited for the flag has the data.
fn put_fence_store_wait() -> OneSidedModel {
    litmus(
        "put_fence_store_wait",
        &[
            |rank| {
                rank.put(X, &[1, 1])?;
                rank.fence();
                rank.store(FLAG, 1)
            },
            |rank| {
                rank.wait_until(FLAG, 1)?;
                rank.sees(rank.get(X));
                rank.sees(rank.get(Y));
                Ok(())
            },
        ],
        |seen| seen[1] == [1, 1],
    )
}

/// `nvshmem_put_signal` with `NVSHMEM_SIGNAL_SET`: the signal is seen after the data.
fn put_signal_set() -> OneSidedModel {
    litmus(
        "put_signal_set",
        &[
            |rank| rank.put_signal(X, &[1, 1], FLAG, Set),
            |rank| {
                rank.wait_until(FLAG, 1)?;
                rank.sees(rank.get(X));
                rank.sees(rank.get(Y));
                Ok(())
            },
        ],
        |seen| seen[1] == [1, 1],
    )
}

/// `nvshmem_put_signal` with `NVSHMEM_SIGNAL_ADD`: two ranks signal a third, which sees the data of both once both have. It
/// looks once.
fn put_signal_add() -> OneSidedModel {
    const A: At = At(2, 1);
    const B: At = At(2, 2);
    litmus(
        "put_signal_add",
        &[
            |rank| rank.put_signal(A, &[1], FAR, Add),
            |rank| rank.put_signal(B, &[1], FAR, Add),
            |rank| {
                rank.sees(rank.test(FAR));
                rank.sees(rank.get(A));
                rank.sees(rank.get(B));
                Ok(())
            },
        ],
        |seen| match seen[2][0] {
            2 => seen[2] == [2, 1, 1],
            1 => seen[2] != [1, 0, 0],
            _ => true,
        },
    )
}

/// The same, and the one that is signalled waits.
fn put_signal_add_wait() -> OneSidedModel {
    litmus(
        "put_signal_add_wait",
        &[
            |rank| {
                rank.put_signal(X, &[1], FLAG, Add)?;
                rank.put_signal(Y, &[1], FLAG, Add)
            },
            |rank| {
                rank.wait_until(FLAG, 2)?;
                rank.sees(rank.get(X));
                rank.sees(rank.get(Y));
                Ok(())
            },
        ],
        |seen| seen[1] == [1, 1],
    )
}

/// "Blocking operations that read data are expected to return data according to the order in which the operations are
/// performed": two gets, of what was stored one after the other.
fn gets_in_order() -> OneSidedModel {
    litmus(
        "gets_in_order",
        &[
            |rank| {
                rank.store(X, 1)?;
                rank.store(FLAG, 1)
            },
            |rank| {
                rank.sees(rank.get(FLAG));
                rank.sees(rank.get(X));
                Ok(())
            },
        ],
        |seen| seen[1] != [1, 0],
    )
}

/// The same for gets of cells that are apart.
fn strided_gets_in_order() -> OneSidedModel {
    litmus(
        "strided_gets_in_order",
        &[
            |rank| {
                rank.store(X, 1)?;
                rank.store(FLAG, 1)
            },
            |rank| {
                rank.sees(rank.get_strided(FLAG));
                rank.sees(rank.get_strided(X));
                Ok(())
            },
        ],
        |seen| seen[1] != [1, 0],
    )
}

/// The same for one cell, which never goes back to an older value.
fn gets_of_one_cell_in_order() -> OneSidedModel {
    litmus(
        "gets_of_one_cell_in_order",
        &[
            |rank| {
                rank.put(X, &[1])?;
                rank.put(X, &[2])
            },
            |rank| {
                rank.sees(rank.get(X));
                rank.sees(rank.get(X));
                Ok(())
            },
        ],
        |seen| seen[1][0] <= seen[1][1],
    )
}

/// OpenSHMEM's `b > a`, which NVSHMEM does not promise: two fetching operations on one cell, in program order, while another
/// rank makes one. They are exclusive: none sees what another has seen.
fn b_above_a() -> OneSidedModel {
    litmus(
        "b_above_a",
        &[
            |rank| {
                rank.sees(rank.fetch_add(X, 1)?);
                rank.sees(rank.fetch_add(X, 1)?);
                Ok(())
            },
            |rank| {
                rank.sees(rank.fetch_add(X, 1)?);
                rank.sees(rank.load(X));
                Ok(())
            },
        ],
        |seen| {
            let (a, b, other, after) = (seen[0][0], seen[0][1], seen[1][0], seen[1][1]);
            b > a && other < after && [[0, 1, 2], [0, 2, 1], [1, 2, 0]].contains(&[a, b, other])
        },
    )
}

/// "The atomic routines guarantee that concurrent accesses … will be exclusive": of two ranks that replace the same value,
/// one does.
fn one_compare_swap() -> OneSidedModel {
    litmus(
        "one_compare_swap",
        &[
            |rank| {
                rank.sees(u64::from(rank.compare_swap(FLAG, 0, 1)?.is_ok()));
                Ok(())
            },
            |rank| {
                rank.sees(u64::from(rank.compare_swap(FLAG, 0, 2)?.is_ok()));
                rank.sees(rank.load(FLAG));
                Ok(())
            },
        ],
        |seen| matches!((&seen[0][..], &seen[1][..]), ([1], [0, 1]) | ([0], [1, 2])),
    )
}

/// `nvshmem_quiet`: what was put before is complete, and every rank sees it. Two ranks put, are quiet, and look at what the
/// other has put: at least one sees it (store buffering).
fn put_quiet_get() -> OneSidedModel {
    const MINE: At = At(0, 0);
    litmus(
        "put_quiet_get",
        &[
            |rank| {
                rank.put(X, &[1])?;
                rank.quiet();
                rank.sees(rank.get(MINE));
                Ok(())
            },
            |rank| {
                rank.put(MINE, &[1])?;
                rank.quiet();
                rank.sees(rank.get(X));
                Ok(())
            },
        ],
        |seen| seen[0] != [0] || seen[1] != [0],
    )
}

/// A barrier completes puts: behind it, every rank has what each has put before it.
fn put_barrier_get() -> OneSidedModel {
    litmus(
        "put_barrier_get",
        &[
            |rank| {
                rank.put(X, &[1])?;
                rank.barrier()
            },
            |rank| {
                rank.barrier()?;
                rank.sees(rank.get(X));
                Ok(())
            },
        ],
        |seen| seen[1] == [1],
    )
    .with_calls()
}

pub(crate) fn models() -> Vec<OneSidedModel> {
    vec![
        store_then_load(),
        put_fence_put(),
        put_fence_store_wait(),
        put_signal_set(),
        put_signal_add(),
        put_signal_add_wait(),
        gets_in_order(),
        strided_gets_in_order(),
        gets_of_one_cell_in_order(),
        b_above_a(),
        one_compare_swap(),
        put_quiet_get(),
        put_barrier_get(),
    ]
}
