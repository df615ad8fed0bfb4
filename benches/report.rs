//! What `intranode run --report` and `--trace` cost a barrier of two ranks, and of twice as many ranks as processors.
//!
//! ```text
//! cargo bench --bench report [-- BLOCKS]
//! ```
//!
//! The processes are the ranks of three jobs: two that count nothing, and one that counts. They call barriers in blocks, of one
//! job after the other, so that all see the same machine. The two jobs that count nothing differ by chance only.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use intranode::job::recorded::RankRecord;
use intranode::segment::record::RecordLayout;
use intranode::{Communicator, Config};

const BARRIERS: u32 = 2000;
const RANK: &str = "REPORT_BENCH_RANK";
const NAME: &str = "REPORT_BENCH_NAME";
const RANKS: &str = "REPORT_BENCH_RANKS";
const BLOCKS: &str = "REPORT_BENCH_BLOCKS";
const JOBS: [&str; 3] = ["off", "off again", "on"];

fn main() -> Result<(), Box<dyn Error>> {
    if let Ok(rank) = env::var(RANK) {
        return be_a_rank(rank.parse()?);
    }
    // Cargo adds flags.
    let blocks: usize = env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(300);
    println!("a barrier, ns; blocks of {BARRIERS}, {blocks} of each job in turns");
    let processors = std::thread::available_parallelism()?.get();
    for ranks in [2, 2 * processors] {
        let head = format!("{ranks} ranks, {processors} processors");
        println!("{head:<24} {:>8} {:>8} {:>8} {:>26}", "5 %", "median", "95 %", "to `off` of the same turn");
        for (option, slices) in [("--report", 0), ("--trace", 1 << 16)] {
            measure(option, slices, ranks, blocks)?;
        }
    }
    Ok(())
}

fn measure(option: &str, slices: usize, size: usize, blocks: usize) -> Result<(), Box<dyn Error>> {
    let name = format!("/intranode-report-{}", std::process::id());
    let path = env::temp_dir().join(&name[1..]);
    let layout = RecordLayout::new(size, slices);
    let mut file = File::create_new(&path)?;
    file.write_all(&layout.header(&job(&name, "on")))?;
    file.set_len(layout.len() as u64)?;
    let start = |rank: usize| {
        Command::new(env::current_exe()?)
            .env(RANK, rank.to_string())
            .env(NAME, &name)
            .env(RANKS, size.to_string())
            .env(BLOCKS, blocks.to_string())
            .env("INTRANODE_REPORT", &path)
            .stdout(Stdio::piped())
            .spawn()
    };
    let ranks = (0..size).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut outputs = Vec::new();
    for rank in ranks {
        outputs.push(String::from_utf8(rank.wait_with_output()?.stdout)?);
    }
    let counted = RankRecord::read_all(&File::open(&path)?)?;
    fs::remove_file(&path)?;
    let calls = (blocks as u64 + 1) * u64::from(BARRIERS);
    assert!(counted.iter().all(|rank| rank.operations[0].calls == calls), "{counted:?}");

    let times: Vec<f64> = outputs[0].split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    assert_eq!(times.len(), blocks * JOBS.len());
    let of = |index: usize| times.chunks_exact(JOBS.len()).map(move |turn| turn[index]);
    for (index, job) in JOBS.iter().enumerate() {
        let [low, median, high] = spread(of(index).collect());
        let [less, ratio, more] = spread(of(index).zip(of(0)).map(|(own, off)| own / off).collect());
        let name = if *job == "on" { option } else { job };
        println!("{name:<24} {low:>8.1} {median:>8.1} {high:>8.1}    {ratio:>6.3} ({less:.3}–{more:.3})");
    }
    Ok(())
}

/// The twentieth part from below, the median, and the twentieth part from above.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [5, 50, 95].map(|percent| values[values.len() * percent / 100])
}

fn job(name: &str, job: &str) -> String {
    format!("{name}-{}", job.replace(' ', "-"))
}

/// Prints the nanoseconds of a barrier, for each block.
fn be_a_rank(rank: usize) -> Result<(), Box<dyn Error>> {
    let (name, size, blocks) = (env::var(NAME)?, env::var(RANKS)?.parse()?, env::var(BLOCKS)?.parse()?);
    let join = |which: &&str| Config::new(job(&name, which), rank, size).join();
    let jobs = JOBS.iter().map(join).collect::<Result<Vec<_>, _>>()?;
    let block = |comm: &Communicator| {
        let start = Instant::now();
        for _ in 0..BARRIERS {
            comm.barrier()?;
        }
        Ok::<f64, intranode::Error>(start.elapsed().as_nanos() as f64 / f64::from(BARRIERS))
    };
    for comm in &jobs {
        block(comm)?;
    }
    for turn in 0..blocks {
        let mut times = [0.0; JOBS.len()];
        // Each is the first as often as the others.
        for index in (0..JOBS.len()).map(|index| (index + turn) % JOBS.len()) {
            times[index] = block(&jobs[index])?;
        }
        println!("{} {} {}", times[0], times[1], times[2]);
    }
    Ok(())
}
