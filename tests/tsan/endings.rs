//! The end of a communicator: in order, by a time-out, by a panic, by misuse.

use std::panic::{catch_unwind, panic_any};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use intranode::{Config, Error, threads, threads_with};

use crate::Program;

pub(crate) const PROGRAMS: &[Program] = &[
    ("a rank leaves", a_rank_leaves),
    ("a rank panics", a_rank_panics),
    ("a rank does not come", a_rank_does_not_come),
    ("two threads of a rank call at once", two_threads_call_at_once),
];

const SIZES: [usize; 3] = [2, 3, 8];

/// The last collective is complete on all ranks, no matter which leaves first.
fn a_rank_leaves() {
    for size in SIZES {
        for _ in 0..50 {
            let ends = threads(size, |comm| {
                let mut all = vec![0; size];
                comm.allgather(&[comm.rank()], &mut all).expect("all come");
                assert!(all.iter().copied().eq(0..size));
                if comm.rank() == 0 { comm.leave() } else { comm.barrier() }
            });
            let ends = ends.expect("a job");
            assert!(
                ends[1..].iter().all(|end| matches!(end, Err(Error::RankLeft { rank: 0, .. }))),
                "{ends:?}"
            );
        }
    }
}

/// The message of the intended panic.
const DELIBERATE: &str = "a deliberate panic";

fn a_rank_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref() != Some(&DELIBERATE) {
            usual(info);
        }
    }));
    for size in SIZES {
        let told = AtomicUsize::new(0);
        let job = catch_unwind(|| {
            threads(size, |comm| {
                if comm.rank() == 1 {
                    panic_any(DELIBERATE);
                }
                let error = comm.barrier().expect_err("a rank has panicked");
                assert!(matches!(error, Error::Poisoned { rank: 1, .. }), "{error}");
                told.fetch_add(1, Ordering::Relaxed);
            })
        });
        assert!(job.is_err() && told.into_inner() == size - 1);
    }
}

fn a_rank_does_not_come() {
    for size in SIZES {
        let config = Config::new("/tsan", 0, size).timeout(Duration::from_millis(500));
        let told = AtomicUsize::new(0);
        let job = threads_with(&config, |comm| {
            // So that the others arrive at about the same time.
            comm.barrier().expect("all come");
            while comm.rank() == 0 && told.load(Ordering::Relaxed) < size - 1 {
                std::thread::yield_now();
            }
            let error = comm.barrier().expect_err("a rank has not come");
            assert!(matches!(&error, Error::TimedOut { late, .. } if **late == [0]), "{error}");
            told.fetch_add(1, Ordering::Relaxed);
        });
        job.expect("a job");
    }
}

fn two_threads_call_at_once() {
    for size in SIZES {
        let told = AtomicUsize::new(0);
        let job = threads(size, |comm| {
            if comm.rank() > 0 {
                // Until then rank 0's calls cannot succeed.
                while told.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                let error = comm.barrier().expect_err("rank 0 calls twice");
                assert!(matches!(error, Error::Poisoned { rank: 0, .. }), "{error}");
                return;
            }
            let call = || {
                let error = comm.barrier().expect_err("two at once");
                told.fetch_add(1, Ordering::Relaxed);
                matches!(error, Error::ConcurrentUse { .. })
            };
            let both =
                std::thread::scope(|scope| [scope.spawn(call), scope.spawn(call)].map(|call| call.join()));
            let refused = both.map(|refused| refused.expect("no panic"));
            assert!(refused.contains(&true) && refused.contains(&false), "{refused:?}");
        });
        job.expect("a job");
    }
}
