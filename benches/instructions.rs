//! The number of instructions of small collectives, counted by callgrind. Unlike times, it is reproducible.
//!
//! ```text
//! cargo bench --bench instructions
//! ```
//!
//! It fails if a collective exceeds its limit. The simulated peers have always arrived, so only the protocol's own
//! instructions count, without waiting and without system calls. Needs valgrind.

use std::env;
use std::process::{Command, ExitCode};

use intranode::protocol::{Barrier, Failure};
use mirror::{Data, Mirror, Operation, Shared, call};

#[allow(dead_code, reason = "growth.rs uses more of it")]
mod mirror;

const RANKS: usize = 8;
const CHUNK: usize = 1 << 16;

/// The operations, with the elements of a rank, and the limit of instructions a call on x86-64: a tenth more than when the
/// limit was set, since compilers differ.
const CASES: [(Operation, usize, u64); 6] = [
    (Operation::Barrier, 0, 520),
    (Operation::Allreduce, 4, 1510),
    (Operation::Allgatherv, 4, 1450),
    (Operation::Scan, 4, 1560),
    (Operation::ReduceScatter, RANKS, 1550),
    (Operation::StartBarrier, 0, 690),
];

/// The number of calls. The cost of a call follows from the difference to half of them.
const CALLS: u64 = 2000;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    match &arguments[..] {
        [case, calls] => {
            let (operation, elements, _) = CASES[case.parse::<usize>().expect("a case")];
            run(operation, elements, calls.parse().expect("a number of calls")).expect("the peers are fine");
            ExitCode::SUCCESS
        }
        _ => check_calls(),
    }
}

/// Under callgrind.
fn run(operation: Operation, elements: usize, calls: u64) -> Result<(), Failure> {
    let (mirror, shared) = (Mirror::default(), Shared::new(RANKS, CHUNK));
    let mut member = shared.member(&mirror);
    let mut data = Data::new(RANKS, elements, false);
    for _ in 0..calls {
        call(operation, &mut member, &Barrier::Flat, &mut data, usize::MAX)?;
    }
    match operation {
        Operation::Barrier | Operation::StartBarrier => assert_eq!(mirror.rounds.get(), calls),
        // The measured rank is the last, whose scan is the sum of all.
        Operation::Allreduce | Operation::Scan => assert!(data.holds_the_sum()),
        Operation::ReduceScatter => assert!(data.holds_its_sum()),
        Operation::Allgatherv => assert!(data.holds_all_blocks()),
    }
    Ok(())
}

fn check_calls() -> ExitCode {
    println!("instructions per call at {RANKS} ranks");
    let mut all_well = true;
    for (case, (operation, elements, limit)) in CASES.iter().enumerate() {
        let each = (count(case, CALLS) - count(case, CALLS / 2)) / (CALLS / 2);
        // The limits are for x86-64.
        let well = each <= *limit || cfg!(not(target_arch = "x86_64"));
        all_well &= well;
        let name = format!("{operation:?}").to_lowercase();
        let verdict = if well { "" } else { "  TOO MANY" };
        println!("{name:<12}{:>5} bytes a rank {each:>6}, limit {limit}{verdict}", elements * size_of::<f64>());
    }
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The number of instructions of a process that makes `calls` calls.
fn count(case: usize, calls: u64) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe().expect("this program's path"))
        .args([case.to_string(), calls.to_string()])
        .output()
        .expect("valgrind can be started; please install it");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let collected = log.lines().find_map(|line| line.split_once("Collected : ")).expect("callgrind's sum").1;
    collected.trim().parse().expect("a number")
}
