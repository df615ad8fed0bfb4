//! Defects that random programs have found, each as a small test, named after the property that must hold.

use std::cell::Cell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Communicator, Config, Error, Exchange};
use libtest_mimic::{Failed, Trial};

type Finding = (&'static str, fn() -> Result<()>);

pub(crate) fn trials() -> Vec<Trial> {
    let findings: [Finding; 8] = [
        ("findings::an_exchange_of_other_counts_is_a_mismatch", an_exchange_of_other_counts),
        ("findings::an_allgatherv_of_other_counts_is_a_mismatch", an_allgatherv_of_other_counts),
        ("findings::no_two_ranks_own_an_element_when_a_second_thread_calls", a_second_thread_calls),
        ("findings::a_rank_owns_nothing_of_a_region_after_a_fatal_set_ownership", a_fatal_set_ownership),
        ("findings::a_rank_owns_nothing_of_a_region_after_a_fatal_distribute", a_fatal_distribute),
        ("findings::a_rank_owns_nothing_of_an_exchange_after_a_fatal_share", a_fatal_share),
        ("findings::a_rank_owns_nothing_of_a_region_after_a_panic_in_set_ownership", a_panic_in_set_ownership),
        ("findings::a_rank_owns_nothing_of_an_exchange_after_a_panic_in_share", a_panic_in_share),
    ];
    let run = |test: fn() -> Result<()>| move || test().map_err(|error| Failed::from(format!("{error:#}")));
    findings.map(|(name, test)| Trial::test(name, run(test))).into()
}

/// Counts with the same sum, which once had the same 64-bit digest.
const COUNTS: [[usize; 3]; 2] = [[0, 14_478, 519_941], [1, 10_024, 524_394]];

fn counts_of(rank: usize) -> &'static [usize; 3] {
    &COUNTS[rank.min(1)]
}

/// Every rank gets a mismatch.
fn ensure_mismatch(results: &[Result<(), Error>]) -> Result<()> {
    let mismatch = |result: &Result<(), Error>| matches!(result, Err(Error::Mismatch { .. }));
    ensure!(results.iter().all(mismatch), "{results:?}");
    Ok(())
}

fn an_exchange_of_other_counts() -> Result<()> {
    let exchange = |comm: Communicator| {
        let created = comm.exchange::<u8>(counts_of(comm.rank())).map(drop);
        // So that no rank leaves before the others have their results.
        let _ = comm.barrier();
        created
    };
    ensure_mismatch(&intranode::threads_with(&brief(3), exchange)?)
}

fn an_allgatherv_of_other_counts() -> Result<()> {
    let gather = |comm: Communicator| {
        let counts = counts_of(comm.rank());
        let displs = [0, counts[0], counts[0] + counts[1]];
        let mut recv = vec![0; counts.iter().sum()];
        comm.allgatherv(&vec![7u8; counts[comm.rank()]], &mut recv, counts, &displs)
    };
    ensure_mismatch(&intranode::threads_with(&brief(3), gather)?)
}

fn brief(ranks: usize) -> Config {
    Config::new("/threads", 0, ranks).timeout(Duration::from_secs(2))
}

/// Both ranks claim all elements, repeatedly, so neither may get them. A second thread of rank 1 calls a barrier after the
/// first round of `set_ownership`.
fn a_second_thread_calls() -> Result<()> {
    const ATTEMPTS: u64 = 200;
    const LEN: usize = 64;
    // Empty ranges, which take time.
    const EMPTY: usize = 20_000;
    for attempt in 0..ATTEMPTS {
        let play = |comm: Communicator| -> Result<bool, Error> {
            let mut region = comm.region::<u64>(LEN)?;
            comm.barrier()?;
            let before = comm.state()?.ranks[1].round;
            comm.barrier()?;
            let ended = AtomicBool::new(false);
            thread::scope(|scope| {
                if comm.rank() == 1 {
                    scope.spawn(|| {
                        let is_over = |state: intranode::JobState| {
                            state.ranks.iter().all(|rank| rank.round.wrapping_sub(before) > 1)
                        };
                        while !ended.load(Ordering::Relaxed) && !comm.state().is_ok_and(is_over) {
                            thread::yield_now();
                        }
                        (0..attempt % 100 * 200).for_each(|_| std::hint::spin_loop());
                        // Its result does not matter.
                        let _ = comm.barrier();
                    });
                }
                let everything = || {
                    let empty = std::iter::repeat_n(0..0, if comm.rank() == 1 { EMPTY } else { 0 });
                    empty.chain(std::iter::once(0..LEN))
                };
                for _ in 0..3 {
                    match region.set_ownership(everything()) {
                        Err(error) if !error.is_fatal() => {}
                        _ => break,
                    }
                }
                ended.store(true, Ordering::Relaxed);
            });
            // Rank 0 owns all elements from the start.
            Ok(comm.rank() == 1 && !region.as_mut_slice().is_empty())
        };
        let results = intranode::threads_with(&brief(2).chunk_bytes(1 << 20), play)?;
        let owns = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        ensure!(owns == [false; 2], "attempt {attempt}: rank 1 got what rank 0 claims");
    }
    Ok(())
}

/// Rank 1 leaves, and rank 0 gets a fatal error from `call`. Returns what rank 0 owns then.
fn owned_after_rank_left<M, R: Send + Debug>(
    make: impl Fn(&Communicator) -> Result<M, Error> + Sync,
    call: impl Fn(&mut M) -> (Option<Error>, R) + Sync,
) -> Result<R> {
    let play = |comm: Communicator| {
        let mut created = make(&comm)?;
        Ok(if comm.rank() == 1 { None } else { Some(call(&mut created)) })
    };
    let results = intranode::threads_with(&brief(2), play)?;
    let results: Result<Vec<_>, Error> = results.into_iter().collect();
    let (error, owned) = results?.swap_remove(0).context("rank 0 has called")?;
    let is_left = matches!(error, Some(Error::RankLeft { rank: 1, .. }));
    ensure!(is_left, "{error:?}, {owned:?}");
    Ok(owned)
}

fn a_fatal_set_ownership() -> Result<()> {
    let owned = owned_after_rank_left(
        |comm| comm.region::<u64>(10),
        |region| {
            let error = region.set_ownership([0..2, 4..6]).err();
            (error, (region.parts().len(), region.parts_mut().count(), region.as_mut_slice().len()))
        },
    )?;
    ensure!(owned == (0, 0, 0), "parts, slices, and values of the first: {owned:?}");
    Ok(())
}

fn a_fatal_distribute() -> Result<()> {
    let owned = owned_after_rank_left(
        |comm| comm.region::<u64>(10),
        |region| {
            let error = region.distribute().err();
            (error, (region.parts().len(), region.parts_mut().count(), region.as_mut_slice().len()))
        },
    )?;
    ensure!(owned == (0, 0, 0), "parts, slices, and values of the first: {owned:?}");
    Ok(())
}

fn a_fatal_share() -> Result<()> {
    let share = |exchange: &mut Exchange<u64>| {
        let error = exchange.share().err();
        (error, exchange.own().len())
    };
    let owned = owned_after_rank_left(|comm| comm.exchange::<u64>(&[10, 10]), share)?;
    ensure!(owned == 0, "it owns {owned} values");
    Ok(())
}

/// What ranks and their hooks tell each other.
struct Told(AtomicBool);

impl Told {
    const fn nothing() -> Self {
        Told(AtomicBool::new(false))
    }

    fn tell(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn await_it(&self) {
        let begin = Instant::now();
        while !self.0.load(Ordering::Acquire) {
            assert!(begin.elapsed() < Duration::from_secs(10), "nobody tells");
            thread::yield_now();
        }
    }
}

thread_local! {
    static RANK: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Rank 0 completes the last round of the call while rank 1 is in its hook, which panics then. Returns what rank 1 owns.
fn owned_after_a_panic<R: Send + Debug>(
    hook: fn(),
    play: impl Fn(&Communicator) -> Result<R, Error> + Sync,
) -> Result<R> {
    let play = |comm: Communicator| {
        let owned = play(&comm);
        RANK.set(None);
        owned
    };
    let results = intranode::threads_with(&brief(2).timeout(Duration::from_secs(30)).long_wait(hook), play)?;
    let results: Result<Vec<_>, Error> = results.into_iter().collect();
    results?.pop().context("there are two ranks")
}

fn a_panic_in_set_ownership() -> Result<()> {
    static IS_FIRST: Told = Told::nothing();
    static WAITS: Told = Told::nothing();
    static COMPLETED: Told = Told::nothing();
    fn hook() {
        match RANK.get() {
            // In the first round, so that rank 1 has to wait in the last.
            Some(0) => {
                IS_FIRST.tell();
                WAITS.await_it();
            }
            Some(_) => {
                WAITS.tell();
                COMPLETED.await_it();
                panic!("a hook");
            }
            None => {}
        }
    }
    let owned = owned_after_a_panic(hook, |comm| {
        let mut region = comm.region::<u64>(10)?;
        region.set_ownership((comm.rank() == 1).then_some(0..10))?;
        RANK.set(Some(comm.rank()));
        if comm.rank() == 0 {
            region.set_ownership(Some(0..10))?;
            COMPLETED.tell();
        } else {
            IS_FIRST.await_it();
            assert!(catch_unwind(AssertUnwindSafe(|| region.set_ownership([]))).is_err());
        }
        Ok((region.parts().len(), region.as_mut_slice().len()))
    })?;
    ensure!(owned == (0, 0), "parts, and values of the first: {owned:?}");
    Ok(())
}

fn a_panic_in_share() -> Result<()> {
    static WAITS: Told = Told::nothing();
    static COMPLETED: Told = Told::nothing();
    fn hook() {
        if RANK.get() == Some(1) {
            WAITS.tell();
            COMPLETED.await_it();
            panic!("a hook");
        }
    }
    let owned = owned_after_a_panic(hook, |comm| {
        let mut exchange = comm.exchange::<u64>(&[10, 10])?;
        RANK.set(Some(comm.rank()));
        if comm.rank() == 0 {
            WAITS.await_it();
            exchange.share()?;
            COMPLETED.tell();
        } else {
            assert!(catch_unwind(AssertUnwindSafe(|| exchange.share().map(drop))).is_err());
        }
        Ok(exchange.own().len())
    })?;
    ensure!(owned == 0, "it owns {owned} values");
    Ok(())
}
