//! The time of collectives over mpi-rs: the counterpart of `benches/race/mpi_bench.c`, with the same definitions and arguments.
//!
//! ```text
//! intranode-bench-mpi-rs SECONDS OPERATION:BYTES[:unchanged]...    one JSON object a line
//! intranode-bench-mpi-rs start-up                                  each rank prints its clock after the first barrier
//! ```

mod case;

use std::time::Instant;

use case::{Case, PAGE};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

const MOST_CALLS: i64 = 1000;
const FEWEST_REPETITIONS: usize = 5;
const MOST_REPETITIONS: usize = 10_000;
/// In seconds.
const LONG_ENOUGH: f64 = 1e-3;
/// In bytes.
const LARGE: usize = 256 << 10;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let universe = mpi::initialize().expect("the launcher has started this program");
    let world = universe.world();
    if arguments.first().is_some_and(|first| first == "start-up") {
        world.barrier();
        println!("{:.9}", monotonic());
        return;
    }
    let seconds: f64 =
        arguments.first().and_then(|first| first.parse().ok()).expect("the seconds of each line");
    for argument in &arguments[1..] {
        let words: Vec<&str> = argument.split(':').collect();
        let bytes = words.get(1).and_then(|bytes| bytes.parse().ok()).expect("OPERATION:BYTES");
        let unchanged = words.get(2) == Some(&"unchanged");
        measure(&mut Case::new(words[0], bytes / size_of::<f64>(), &world), bytes, seconds, unchanged, &world);
    }
}

/// The clock that all processes share, in seconds: the standard library has no name for it.
fn monotonic() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the system writes one value there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as f64 + 1e-9 * now.tv_nsec as f64
}

fn measure(case: &mut Case, bytes: usize, seconds: f64, unchanged: bool, world: &SimpleCommunicator) {
    let mut turn = 0;
    let mut repeat = |calls: i64| repetition(case, &mut turn, calls, unchanged, world);
    repeat(1);
    let mut calls = 1;
    let whole = loop {
        let begin = Instant::now();
        let each = repeat(calls);
        let whole = begin.elapsed().as_secs_f64();
        if bytes >= LARGE || calls == MOST_CALLS || each * calls as f64 >= LONG_ENOUGH {
            break whole;
        }
        calls = (2 * calls).min(MOST_CALLS);
    };
    let mut repetitions = ((seconds / whole) as usize).clamp(FEWEST_REPETITIONS, MOST_REPETITIONS) as u64;
    world.process_at_rank(0).broadcast_into(&mut repetitions);
    let mut times: Vec<f64> = (0..repetitions).map(|_| 1e6 * repeat(calls)).collect();
    times.sort_by(f64::total_cmp);
    if world.rank() == 0 {
        let median = times[(times.len() - 1) / 2].midpoint(times[times.len() / 2]);
        let buffers = if unchanged { "unchanged" } else { "renewed" };
        let (op, ranks, least, most) = (case.name(), world.size(), times[0], times[times.len() - 1]);
        println!(
            "{{\"op\":\"{op}\",\"bytes\":{bytes},\"ranks\":{ranks},\"buffers\":\"{buffers}\",\"median_us\":{median:.6},\
             \"min_us\":{least:.6},\"max_us\":{most:.6},\"repetitions\":{repetitions}}}"
        );
    }
}

/// The slowest rank's time per call, in seconds.
fn repetition(case: &mut Case, turn: &mut i64, calls: i64, unchanged: bool, world: &SimpleCommunicator) -> f64 {
    let first = if unchanged { 1 } else { *turn + 1 };
    let written = unchanged && *turn > 0;
    *turn = if unchanged { 1 } else { *turn + calls };
    if written {
        case.call(world);
    } else {
        case.prepare(first, 1);
    }
    world.barrier();
    let (mut begin, mut together) = (Instant::now(), 0.0);
    for call in 0..calls {
        if call > 0 && !unchanged {
            case.prepare(first + call, PAGE);
        }
        if case.has_common_start() {
            world.barrier();
            begin = Instant::now();
        }
        case.call(world);
        if case.has_common_start() {
            together += begin.elapsed().as_secs_f64();
        }
    }
    let time = if case.has_common_start() { together } else { begin.elapsed().as_secs_f64() };
    // On a processor that ranks share, the check would be in the time of those that have not learnt yet that the call has ended.
    world.barrier();
    if !case.is_right(first, *turn) {
        eprintln!("rank {}: the result of {} is wrong", world.rank(), case.name());
        world.abort(1);
    }
    let mut slowest = 0.0;
    world.all_reduce_into(&(time / calls as f64), &mut slowest, SystemOperation::max());
    slowest
}
