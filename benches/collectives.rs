//! Microbenchmarks of the collectives, with ranks that are threads, to judge a change by. `intranode bench` measures
//! processes.
//!
//! `cargo bench --bench collectives`

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use intranode::{Communicator, ReduceOp};

/// The time of `calls` calls on rank 0 of two, after a barrier.
fn timed(calls: u64, call: impl Fn(&Communicator) + Sync) -> Duration {
    let times = intranode::threads(2, |comm| {
        comm.barrier().expect("both ranks are here");
        let start = Instant::now();
        (0..calls).for_each(|_| call(&comm));
        start.elapsed()
    });
    times.expect("two threads can be started")[0]
}

fn barrier(criterion: &mut Criterion) {
    criterion.bench_function("barrier", |bencher| {
        bencher.iter_custom(|calls| timed(calls, |comm| comm.barrier().expect("both ranks call it")));
    });
}

fn allreduce(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("allreduce");
    for bytes in [32, 8 << 10, 1 << 20] {
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function(bytes.to_string(), |bencher| {
            let send = vec![1.0f64; bytes as usize / size_of::<f64>()];
            bencher.iter_custom(|calls| {
                timed(calls, |comm| {
                    let mut recv = black_box(send.clone());
                    comm.allreduce_in_place(&mut recv, ReduceOp::Sum).expect("both ranks call it");
                    black_box(recv);
                })
            });
        });
    }
}

fn broadcast(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("broadcast");
    for bytes in [64, 10 << 10, 1 << 20] {
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function(bytes.to_string(), |bencher| {
            let data = vec![7u8; bytes as usize];
            bencher.iter_custom(|calls| {
                timed(calls, |comm| {
                    let mut buffer = black_box(data.clone());
                    comm.broadcast(&mut buffer, 0).expect("both ranks call it");
                    black_box(buffer);
                })
            });
        });
    }
}

criterion_group!(benches, barrier, allreduce, broadcast);
criterion_main!(benches);
