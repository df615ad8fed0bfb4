//! The bodies of the fuzz targets on stable Rust: over the corpora of `fuzz/`, over mutations of them that are the same
//! in every run, and over all numbers where they can be counted.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

#[expect(unreachable_pub, reason = "in fuzz/ it is a library")]
#[path = "../fuzz/src/lib.rs"]
mod targets;

/// A joining that never comes back is a failure, not a test that hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// The corpus of a target, in an order that does not change.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("an entry of the corpus").path();
        (path.display().to_string(), fs::read(&path).expect("a file of the corpus"))
    };
    let mut inputs: Vec<_> = entries.map(read).collect();
    inputs.sort();
    inputs
}

/// Numbers that look random and are the same in every run (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % limit.max(1) as u64) as usize
    }

    /// One of the inputs, changed in a few places.
    fn mutation(&mut self, inputs: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut data = inputs[self.below(inputs.len())].1.clone();
        for _ in 0..=self.below(4) {
            let at = self.below(data.len() + 1);
            match self.below(5) {
                0 => data.truncate(at),
                1 => data.insert(at, self.below(256) as u8),
                2 => {
                    // The start of one with the end of another.
                    let other = &inputs[self.below(inputs.len())].1;
                    data.truncate(at);
                    data.extend(&other[self.below(other.len())..]);
                }
                3 => data.get_mut(at).into_iter().for_each(|byte| *byte = self.below(256) as u8),
                _ => data.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << self.below(8)),
            }
        }
        data
    }
}

/// An input, shown if it makes a body panic.
struct Input {
    name: String,
    data: Vec<u8>,
}

impl Drop for Input {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{}: {:?}", self.name, self.data);
        }
    }
}

/// Replays a corpus and `mutations` mutations. Some inputs must be accepted and some not, or nothing was tested.
fn replay(target: &'static str, run: fn(&[u8]) -> bool, mutations: usize) {
    let (report, done) = channel();
    let work = thread::spawn(move || {
        let inputs = corpus(target);
        let (mut accepted, mut refused) = (0, 0);
        let mut numbers = Numbers(1);
        let mutated = (0..mutations).map(|number| (format!("mutation {number}"), numbers.mutation(&inputs)));
        for (name, data) in inputs.iter().cloned().chain(mutated) {
            let input = Input { name, data };
            *(if run(&input.data) { &mut accepted } else { &mut refused }) += 1;
        }
        // If nobody listens, the test has failed.
        let _ = report.send((accepted, refused));
    });
    let counts = done.recv_timeout(LIMIT);
    assert_ne!(counts, Err(RecvTimeoutError::Timeout), "it hangs");
    work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let (accepted, refused) = counts.expect("the work is done");
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
}

#[test]
#[cfg(target_os = "linux")]
fn address() {
    replay("address", targets::address::run, 100_000);
}

#[test]
fn layout() {
    replay("layout", targets::layout::run, 20_000);
}

#[test]
fn blocks() {
    replay("blocks", targets::blocks::run, 20_000);
}

#[test]
fn environment() {
    replay("environment", targets::environment::run, 20_000);
}

#[test]
fn header() {
    replay("header", targets::header::run, 5_000);
}

#[test]
#[cfg(target_os = "linux")]
fn join() {
    replay("join", targets::join::run, 1_500);
}

#[test]
#[cfg(target_os = "linux")]
fn endpoint() {
    replay("endpoint", targets::endpoint::run, 1_500);
    let inputs = corpus("endpoint");
    assert!(inputs.iter().any(|(_, data)| targets::endpoint::writes(data)), "no input puts anything");
}

/// The largest mapping of a process of 32 and of 64 bits.
const SPACES: [u64; 2] = [i32::MAX as u64, i64::MAX as u64];

#[test]
fn every_number_of_ranks_has_a_right_layout() {
    for ranks in 0..=65_537 {
        targets::layout::check_default(ranks);
        for chunk in [64, 4096, 16_320, 256 << 10, 1 << 30] {
            for most in SPACES {
                targets::layout::check(ranks, chunk, most, (ranks / 2, 1));
            }
        }
    }
}

#[test]
fn every_chunk_has_a_right_layout() {
    // Beside the multiples of 64, the numbers around each power of two.
    let around = (0..usize::BITS)
        .flat_map(|bit| (0..130).map(move |n| (1usize << bit).wrapping_add(n).wrapping_sub(65)));
    for chunk in (0..=1 << 24).map(|step| 64 * step).chain(around) {
        for most in SPACES {
            targets::layout::check_length(2, chunk, most);
        }
    }
}
