//! Microbenchmarks of regions, with ranks that are threads, to judge a change by; and the effect of huge pages.
//!
//! `cargo bench --bench regions`

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use intranode::{Communicator, Error, RegionOptions};

/// The time that `run` returns on rank 0 of two.
fn timed(run: impl Fn(&Communicator) -> Result<Duration, Error> + Sync) -> Duration {
    let times = intranode::threads(2, |comm| run(&comm)).expect("two threads can be started");
    times.into_iter().next().expect("there is a rank 0").expect("both ranks do the same")
}

/// An exchange: one round, whatever the size.
fn exchange(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("exchange");
    for bytes in [8 << 10, 1 << 20, 64 << 20] {
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function(bytes.to_string(), |bencher| {
            bencher.iter_custom(|turns| {
                timed(|comm| {
                    let mut exchange = comm.exchange::<u8>(&[bytes as usize / 2; 2])?;
                    comm.barrier()?;
                    let start = Instant::now();
                    for turn in 0..turns {
                        exchange.own()[0] = turn as u8;
                        black_box(exchange.share()?);
                    }
                    Ok(start.elapsed())
                })
            });
        });
    }
}

/// A read epoch and a write epoch: two rounds, and two changes of the pages' protection.
fn epochs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("publish_and_reclaim");
    for bytes in [8 << 10, 1 << 20, 64 << 20] {
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function(bytes.to_string(), |bencher| {
            bencher.iter_custom(|turns| {
                timed(|comm| {
                    let mut region = comm.region::<u8>(bytes as usize)?;
                    region.as_mut_slice().fill(1);
                    comm.barrier()?;
                    let start = Instant::now();
                    for _ in 0..turns {
                        region = black_box(region.publish()?).reclaim()?;
                    }
                    Ok(start.elapsed())
                })
            });
        });
    }
}

/// Random reads of a large region: with base pages, and with huge pages.
fn pages(criterion: &mut Criterion) {
    const LEN: usize = 32 << 20;
    let mut group = criterion.benchmark_group("random_reads_of_256_mb");
    for huge in [false, true] {
        let id = BenchmarkId::from_parameter(if huge { "huge" } else { "usual" });
        group.bench_function(id, |bencher| {
            bencher.iter_custom(|reads| {
                timed(|comm| {
                    let options = RegionOptions::new().huge_pages(huge);
                    let mut region = comm.region_with::<u64>(LEN, &options)?;
                    region.as_mut_slice().iter_mut().zip(1..).for_each(|(value, index)| *value = index);
                    let shared = region.publish()?;
                    // Touches every page, so that it is mapped.
                    black_box(shared.iter().step_by(512).sum::<u64>());
                    let start = Instant::now();
                    let mut place = 0;
                    for _ in 0..reads {
                        // Each index depends on the value before it.
                        place = shared[place as usize].wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - 25);
                    }
                    black_box(place);
                    Ok(start.elapsed())
                })
            });
        });
    }
}

criterion_group!(benches, exchange, epochs, pages);
criterion_main!(benches);
