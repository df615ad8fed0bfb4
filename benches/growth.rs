//! The cost of a call in rounds and cache lines, by the number of ranks: counted, not timed.
//!
//! ```text
//! cargo bench --bench growth
//! ```
//!
//! The unit is the transfer of a 64-byte line from its writer to a reader. Each rank reads its peers' words, inline
//! contributions and staging; each published line takes one RFO. The first table is counted by running the protocols over
//! a platform whose peers have always arrived. The second compares, by the same unit, the two shapes of the barrier with
//! two that are not implemented.

use intranode::protocol::call::INLINE;
use intranode::protocol::{Barrier, Failure, Group};
use mirror::{Data, Mirror, Operation, Shared, call};

#[allow(dead_code, reason = "instructions.rs uses more of it")]
mod mirror;

const LINE: usize = 64;
const RANKS: [usize; 6] = [2, 4, 8, 16, 32, 64];
const MANY: [u64; 6] = [8, 16, 32, 64, 128, 256];

/// The operations, with the total bytes (allgatherv) or the bytes of each rank.
const CASES: [(Operation, usize); 6] = [
    (Operation::Barrier, 0),
    (Operation::Allreduce, 32),
    (Operation::Allreduce, 8 << 10),
    (Operation::Allreduce, 1 << 20),
    (Operation::Allgatherv, 64 << 10),
    (Operation::Allgatherv, 1 << 20),
];

/// The cost of a call for one rank.
struct Cost {
    rounds: u64,
    /// Lines that other ranks have written.
    read: u64,
    /// Lines that other ranks will read.
    written: u64,
}

fn main() -> Result<(), Failure> {
    println!("Per rank and call: rounds / lines read from others / lines written for others.\n");
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
    shapes()
}

fn cost(operation: Operation, bytes: usize, ranks: usize) -> Result<Cost, Failure> {
    let share = if matches!(operation, Operation::Allgatherv) { bytes / ranks } else { bytes };
    let (mirror, shared) =
        (Mirror::default(), Shared::new(ranks, intranode::segment::layout::Layout::default_chunk(ranks)));
    let segment = shared.segment();
    let mut member = shared.member(&mirror, &segment);
    let mut data = Data::new(ranks, share / size_of::<f64>(), true);
    call(operation, &mut member, &Barrier::Flat, &mut data, intranode::tuning::fold_slices_from_bytes(ranks))?;
    // An inline contribution begins behind the word and the call, in a line that was read for them.
    let more_lines =
        |bytes: &usize| if *bytes <= INLINE { (bytes + 32).div_ceil(LINE) - 1 } else { bytes.div_ceil(LINE) };
    let lines = |pieces: &[usize]| pieces.iter().map(|bytes| more_lines(bytes) as u64).sum::<u64>();
    Ok(Cost {
        rounds: mirror.rounds.get(),
        read: mirror.polls.get() + lines(&data.taken),
        written: mirror.rounds.get() + lines(&data.published),
    })
}

/// Shapes of a barrier. A step is a transfer that begins when the one before it has ended.
fn shapes() -> Result<(), Failure> {
    println!("Barriers: total lines / lines of the busiest rank / sequential steps.\n");
    println!("| shape | what a rank does |{}", MANY.map(|ranks| format!(" {ranks} ranks |")).concat());
    println!("| --- | --- |{}", " --: |".repeat(MANY.len()));
    let row = |name: &str, what: &str, shape: &dyn Fn(u64) -> Result<[u64; 3], Failure>| {
        print!("| {name} | {what} |");
        for ranks in MANY {
            let [all, most, steps] = shape(ranks)?;
            print!(" {all} / {most} / {steps} |");
        }
        println!();
        Ok(())
    };
    row("flat, as built", "reads all others", &|ranks| Ok([ranks * (ranks - 1), ranks - 1, 1]))?;
    row("hierarchical, as built", "reads its group; leaders read the other leaders", &|ranks| {
        let [all, most] = in_groups(ranks as usize)?;
        Ok([all, most, 3])
    })?;
    row("counter", "adds to one line, then reads it", &|ranks| Ok([2 * ranks, 2, ranks + 1]))?;
    row("dissemination", "reads one other rank, log₂ R times", &|ranks| {
        let logarithm = u64::from(ranks.next_power_of_two().ilog2());
        Ok([ranks * logarithm, logarithm, logarithm])
    })
}

/// The lines that all ranks read in a barrier with about √n groups of √n ranks, and the maximum of one rank.
fn in_groups(ranks: usize) -> Result<[u64; 2], Failure> {
    let size = (ranks - 1).isqrt() + 1;
    let leaders: Vec<usize> = (0..ranks).map(|rank| rank - rank % size).collect();
    let mut reads = Vec::new();
    for rank in 0..ranks {
        let (mirror, shared) = (Mirror::default(), Shared::new(ranks, LINE));
        let barrier = Barrier::Hierarchical(Group::new(&leaders, rank));
        let segment = shared.segment();
        let mut member = shared.rank(&mirror, &segment, rank);
        call(Operation::Barrier, &mut member, &barrier, &mut Data::new(ranks, 0, false), 0)?;
        reads.push(mirror.polls.get());
    }
    Ok([reads.iter().sum(), reads.iter().copied().max().unwrap_or(0)])
}
