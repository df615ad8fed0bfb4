//! What one call costs in exchanges between ranks, by their number: counted, not timed.
//!
//! ```text
//! cargo bench --bench growth
//! ```
//!
//! The unit is the 64-byte line that moves from the rank that wrote it to a rank that reads it. Each rank reads its
//! peers' words, what is published beside them, and staging; each published line is taken back from its readers once.
//! The first table is counted by running the protocols over a platform whose peers have always arrived already. The
//! second compares, by the same unit, other shapes of arrival that could be built.

use intranode::protocol::Failure;
use intranode::protocol::sequence::INLINE;
use mirror::{Data, Mirror, Operation, Shared, call};

#[allow(dead_code, reason = "instructions.rs uses more of it")]
mod mirror;

const LINE: usize = 64;
const RANKS: [usize; 6] = [2, 4, 8, 16, 32, 64];

/// What is called, with how many bytes in all (allgatherv) or of each rank.
const CASES: [(Operation, usize); 6] = [
    (Operation::Barrier, 0),
    (Operation::Allreduce, 32),
    (Operation::Allreduce, 8 << 10),
    (Operation::Allreduce, 1 << 20),
    (Operation::Allgatherv, 64 << 10),
    (Operation::Allgatherv, 1 << 20),
];

/// What one rank does in one call.
struct Cost {
    rounds: u64,
    /// Lines that come from other ranks.
    read: u64,
    /// Lines that other ranks will read.
    written: u64,
}

fn main() -> Result<(), Failure> {
    println!("Of one rank in one call: rounds / lines read from others / lines written for others.\n");
    print!("| operation | bytes |");
    RANKS.iter().for_each(|ranks| print!(" {ranks} ranks |"));
    println!("\n| --- | --: |{}", " --: |".repeat(RANKS.len()));
    for (operation, bytes) in CASES {
        print!("| {} | {bytes} |", format!("{operation:?}").to_lowercase());
        for ranks in RANKS {
            let Cost { rounds, read, written } = cost(operation, bytes, ranks)?;
            print!(" {rounds} / {read} / {written} |");
        }
        println!();
    }
    println!();
    shapes();
    Ok(())
}

fn cost(operation: Operation, bytes: usize, ranks: usize) -> Result<Cost, Failure> {
    let share = if matches!(operation, Operation::Allgatherv) { bytes / ranks } else { bytes };
    let (mirror, shared) =
        (Mirror::default(), Shared::new(ranks, intranode::layout::Layout::default_chunk(ranks)));
    let mut member = shared.member(&mirror);
    let mut data = Data::new(ranks, share / size_of::<f64>(), true);
    call(operation, &mut member, &mut data, intranode::protocol::allreduce::slices_from(ranks))?;
    // What is inline begins behind the word and the description, in the line that was read for them.
    let beside =
        |bytes: &usize| if *bytes <= INLINE { (bytes + 32).div_ceil(LINE) - 1 } else { bytes.div_ceil(LINE) };
    let lines = |pieces: &[usize]| pieces.iter().map(|bytes| beside(bytes) as u64).sum::<u64>();
    Ok(Cost {
        rounds: mirror.rounds.get(),
        read: mirror.looks.get() + lines(&data.taken),
        written: mirror.rounds.get() + lines(&data.published),
    })
}

/// How else ranks could meet. A step is a transfer that begins when the one before it has ended.
fn shapes() {
    println!("A barrier's lines in all, and the steps that follow each other, by the shape of arrival.\n");
    println!("| shape | what a rank does |{}", RANKS.map(|ranks| format!(" {ranks} ranks |")).concat());
    println!("| --- | --- |{}", " --: |".repeat(RANKS.len()));
    let row = |name: &str, what: &str, shape: &dyn Fn(u64) -> (u64, u64)| {
        let cells = RANKS.map(|ranks| {
            let (lines, steps) = shape(ranks as u64);
            format!(" {lines} in {steps} |")
        });
        println!("| {name} | {what} |{}", cells.concat());
    };
    let logarithm = |ranks: u64| u64::from(ranks.next_power_of_two().ilog2());
    row("flat", "reads all others", &|ranks| (ranks * (ranks - 1), 1));
    row("counter", "adds to one line, then reads it", &|ranks| (2 * ranks, ranks + 1));
    row("dissemination", "reads one other, log₂ R times", &|ranks| {
        (ranks * logarithm(ranks), logarithm(ranks))
    });
    let group = 8;
    row("groups of 8", "reads its group; one of them reads the other groups", &|ranks| {
        if ranks <= group {
            return (ranks * (ranks - 1), 1);
        }
        let groups = ranks / group;
        (groups * (group - 1) + groups * (groups - 1) + groups * (group - 1), 3)
    });
}
