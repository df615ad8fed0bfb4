//! One-sided accesses beside what the machine itself takes for them, in one run: the goals of symmetric memory.
//!
//! ```text
//! cargo bench --bench symmetric [-- BLOCKS] [token]
//! ```
//!
//! Two processes, each bound to a processor. Each line is measured in blocks, in each of which ours and the reference follow
//! each other. Printed are the medians, and the ratio of each block: its median, least and greatest. Then a token goes round four
//! processes on two processors.

#[path = "symmetric/token.rs"]
mod token;

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::time::{Duration, Instant};

use intranode::{Communicator, ReduceOp, Signal, Symmetric, Until};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const BLOCKS: &str = "SYMMETRIC_BLOCKS";
/// Accesses in a loop.
const MANY: u64 = 1_000_000;
/// Round trips, and wake-ups, of a block.
const TRIPS: u64 = 20_000;
const WAKES: u64 = 200;
/// The largest transfer.
const LARGEST: usize = 64 << 20;

fn main() -> Outcome {
    if env::var_os(BLOCKS).is_some() {
        return be_a_rank();
    }
    if env::var_os(token::BLOCKS).is_some() {
        return token::be_a_rank();
    }
    // Cargo adds flags.
    let given = env::args().skip(1).find_map(|argument| argument.parse().ok());
    if !env::args().any(|argument| argument == "token") {
        job(2, BLOCKS, given.unwrap_or(9))?;
    }
    job(token::RANKS, token::BLOCKS, given.unwrap_or(51))
}

/// Runs processes that measure this number of blocks, and waits for them.
fn job(size: usize, variable: &str, blocks: u32) -> Outcome {
    let start = |rank: usize| {
        Command::new(env::current_exe()?)
            .env("INTRANODE_NAME", format!("/intranode-symmetric-{}-{size}", std::process::id()))
            .env("INTRANODE_RANK", rank.to_string())
            .env("INTRANODE_SIZE", size.to_string())
            .env(variable, blocks.to_string())
            .spawn()
    };
    let ranks = (0..size).map(start).collect::<Result<Vec<_>, _>>()?;
    for mut rank in ranks {
        let status = rank.wait()?;
        if !status.success() {
            return Err(format!("a rank has ended with {status}").into());
        }
    }
    Ok(())
}

fn be_a_rank() -> Outcome {
    let comm = Communicator::from_env()?;
    bind(comm.rank())?;
    let bench = Bench { blocks: env::var(BLOCKS)?.parse()?, comm: &comm };
    if comm.rank() == 0 {
        println!("{:<34} {:>12} {:>12}   ratio, least and greatest", "", "ours, ns", "reference");
    }
    bench.accesses()?;
    bench.contended()?;
    bench.transfers()?;
    bench.collectives()?;
    bench.signals()?;
    bench.wake_ups()?;
    comm.leave()?;
    Ok(())
}

/// Binds this process to a processor of its own, if there are two.
fn bind(rank: usize) -> Outcome {
    let available = sched_getaffinity(Pid::from_raw(0))?;
    let processors = (0..CpuSet::count()).filter(|processor| available.is_set(*processor).unwrap_or(false));
    let mut own = CpuSet::new();
    if let Some(processor) = processors.collect::<Vec<_>>().get(rank) {
        own.set(*processor)?;
        sched_setaffinity(Pid::from_raw(0), &own)?;
    }
    Ok(())
}

struct Bench<'a> {
    blocks: u32,
    comm: &'a Communicator,
}

impl Bench<'_> {
    /// Measures both in turns, on both ranks, and prints what rank 0 has measured, in nanoseconds.
    fn line(
        &self,
        name: &str,
        mut ours: impl FnMut() -> Outcome<f64>,
        mut reference: impl FnMut() -> Outcome<f64>,
    ) -> Outcome {
        let (mut own, mut other, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        // The first block warms up.
        for block in 0..=self.blocks {
            self.comm.barrier()?;
            let first = ours()?;
            self.comm.barrier()?;
            let second = reference()?;
            if block > 0 {
                own.push(first);
                other.push(second);
                ratios.push(first / second);
            }
        }
        for values in [&mut own, &mut other, &mut ratios] {
            values.sort_by(f64::total_cmp);
        }
        let median = |values: &[f64]| values[values.len() / 2];
        if self.comm.rank() == 0 {
            let (least, greatest) = (ratios[0], ratios[ratios.len() - 1]);
            println!(
                "{name:<34} {:>12.2} {:>12.2}   {:.2} ({least:.2}–{greatest:.2})",
                median(&own),
                median(&other),
                median(&ratios),
            );
        }
        Ok(())
    }

    /// Accesses of rank 0 to rank 1's memory, which nobody else uses.
    fn accesses(&self) -> Outcome {
        let object = self.comm.symmetric::<u64>(64)?;
        let remote = object.at(1)?;
        let plain = &remote.atomics()[0];
        let at = |number: u64| number as usize % 64;
        self.line(
            "store / plain store",
            || self.alone(|| each(MANY, |number| remote.store(at(number), number))),
            || self.alone(|| each(MANY, |number| remote.atomics()[at(number)].store(number, Release))),
        )?;
        self.line(
            "store and quiet / store and fence",
            || {
                self.alone(|| {
                    each(MANY, |number| (remote.store(at(number), number), self.comm.quiet().is_ok()))
                })
            },
            || self.alone(|| each(MANY, |number| (plain.store(number, Release), fence(SeqCst)))),
        )?;
        self.line(
            "load / plain load",
            || self.alone(|| each(MANY, |number| remote.load(at(number)))),
            || self.alone(|| each(MANY, |number| remote.atomics()[at(number)].load(Acquire))),
        )?;
        self.line(
            "fetch_add / plain fetch_add",
            || self.alone(|| each(MANY, |_| remote.fetch_add(0, 1))),
            || self.alone(|| each(MANY, |_| plain.fetch_add(1, AcqRel))),
        )
    }

    /// Both ranks add to one element.
    fn contended(&self) -> Outcome {
        let object = self.comm.symmetric::<u64>(1)?;
        let remote = object.at(1)?;
        let plain = &remote.atomics()[0];
        self.line(
            "fetch_add by both / plain",
            || Ok(each(MANY / 10, |_| remote.fetch_add(0, 1))),
            || Ok(each(MANY / 10, |_| plain.fetch_add(1, AcqRel))),
        )
    }

    /// Rank 0 copies to and from rank 1's memory.
    fn transfers(&self) -> Outcome {
        let object = self.comm.symmetric::<u64>(LARGEST / 8)?;
        let remote = object.at(1)?;
        let mut private = vec![1u64; LARGEST / 8];
        for bytes in [8, 4 << 10, 64 << 10, 1 << 20, LARGEST] {
            let (len, times) = (bytes / 8, (256 << 20) / bytes.max(4 << 10));
            let own = &private[..len];
            let put = || self.alone(|| each(times as u64, |_| remote.put(0, own)));
            self.line(&format!("put {bytes} / memcpy"), put, || {
                self.alone(|| each(times as u64, |_| copy(own.as_ptr(), remote.as_ptr(), len)))
            })?;
            self.line(&format!("put {bytes} / streaming copy"), put, || {
                self.alone(|| each(times as u64, |_| stream(own.as_ptr(), remote.as_ptr(), len)))
            })?;
            let own = &mut private[..len];
            let start = own.as_mut_ptr();
            self.line(
                &format!("get {bytes} / memcpy"),
                || self.alone(|| each(times as u64, |_| remote.get(0, own))),
                || self.alone(|| each(times as u64, |_| copy(remote.as_ptr(), start, len))),
            )?;
        }
        Ok(())
    }

    /// Collectives whose blocks lie in symmetric memory, beside the same with private buffers. All values are new each time.
    fn collectives(&self) -> Outcome {
        let size = self.comm.size();
        for bytes in [512 << 10, 1 << 20, 4 << 20, 16 << 20] {
            let (len, times) = (bytes / 8, ((64 << 20) / bytes).min(1000) as u64);
            let mut object = self.comm.symmetric::<u64>(len)?.into_own()?;
            let (mut private, mut recv, mut target) = (vec![0; len], vec![0; len * size], vec![0; len]);
            let mut turn = 0;
            let gather = |send: &mut [u64], recv: &mut [u64], turn: &mut u64| {
                let time = each(times, |_| {
                    *turn += 1;
                    send.fill(*turn);
                    self.comm.allgather(send, recv)
                });
                Ok(time)
            };
            let (mut other_turn, mut other_recv) = (0, recv.clone());
            self.line(
                &format!("allgather {bytes}: objects / private"),
                || gather(&mut object, &mut recv, &mut turn),
                || gather(&mut private, &mut other_recv, &mut other_turn),
            )?;
            let broadcast = |own: &mut [u64], target: &mut [u64]| {
                let time = each(times, |turn| match self.comm.rank() {
                    0 => {
                        own.fill(turn);
                        self.comm.broadcast(own, 0)
                    }
                    _ => self.comm.broadcast(target, 0),
                });
                Ok(time)
            };
            let mut other_target = target.clone();
            self.line(
                &format!("broadcast {bytes}: object / private"),
                || broadcast(&mut object, &mut target),
                || broadcast(&mut private, &mut other_target),
            )?;
            let reduce = |send: &mut [u64], recv: &mut [u64]| {
                let time = each(times, |turn| {
                    send.fill(turn);
                    self.comm.allreduce(send, recv, ReduceOp::Sum)
                });
                Ok(time)
            };
            self.line(
                &format!("allreduce {bytes}: objects / private"),
                || reduce(&mut object, &mut target),
                || reduce(&mut private, &mut other_target),
            )?;
            let reduce_in_place = |data: &mut [u64]| {
                let time = each(times, |turn| {
                    data.fill(turn);
                    self.comm.allreduce_in_place(data, ReduceOp::Sum)
                });
                Ok(time)
            };
            self.line(
                &format!("allreduce_in_place {bytes}: objects / private"),
                || reduce_in_place(&mut object),
                || reduce_in_place(&mut private),
            )?;
        }
        Ok(())
    }

    /// A message of 8 bytes and back, half of it: a signal with data, beside a bare line in each direction.
    fn signals(&self) -> Outcome {
        let (data, flags) = (self.comm.symmetric::<u64>(16)?, self.comm.symmetric::<u64>(16)?);
        let lines = self.comm.symmetric::<u64>(16)?;
        let other = 1 - self.comm.rank();
        let (own_line, other_line) =
            (&lines.at(self.comm.rank())?.atomics()[0], &lines.at(other)?.atomics()[0]);
        let mut turn = 0;
        let mut bare = 0;
        self.line(
            "put_signal 8, half trip / line",
            || {
                let begin = Instant::now();
                for _ in 0..TRIPS {
                    turn += 1;
                    self.signalled(other, &data, &flags, turn)?;
                }
                Ok(begin.elapsed().as_nanos() as f64 / (2 * TRIPS) as f64)
            },
            || {
                let begin = Instant::now();
                for _ in 0..TRIPS {
                    bare += 1;
                    alternate(self.comm.rank(), own_line, other_line, bare);
                }
                Ok(begin.elapsed().as_nanos() as f64 / (2 * TRIPS) as f64)
            },
        )
    }

    fn signalled(&self, other: usize, data: &Symmetric<u64>, flags: &Symmetric<u64>, turn: u64) -> Outcome {
        if self.comm.rank() == 0 {
            data.put_signal(other, 0, &[turn], flags, 0, Signal::Set(turn))?;
            flags.wait_until(0, Until::Eq(turn))?;
        } else {
            flags.wait_until(0, Until::Eq(turn))?;
            data.put_signal(other, 0, &[turn], flags, 0, Signal::Set(turn))?;
        }
        Ok(())
    }

    /// From a store until the rank that sleeps until it has seen it, beside a bare futex. Rank 1 sleeps.
    fn wake_ups(&self) -> Outcome {
        let flags = self.comm.symmetric::<u64>(16)?;
        let times = self.comm.symmetric::<u64>(2)?;
        let words = self.comm.symmetric::<u32>(32)?;
        let remote = flags.at(1)?;
        let word = &words.at(1)?.atomics()[0];
        let (mut turn, mut bare) = (0, 0);
        self.line(
            "wake-up by store / futex",
            || {
                self.sleepy(&times, |wakes| {
                    turn += 1;
                    if wakes {
                        remote.store(0, turn);
                    } else {
                        flags.wait_until(0, Until::Eq(turn)).map(drop)?;
                    }
                    Ok(())
                })
            },
            || {
                self.sleepy(&times, |wakes| {
                    bare += 1;
                    if wakes {
                        wake(word, bare)
                    } else {
                        sleep(word, bare)
                    }
                    Ok(())
                })
            },
        )
    }

    /// The mean time from when rank 0 acts until rank 1, which has slept, goes on.
    fn sleepy(&self, times: &Symmetric<u64>, mut act: impl FnMut(bool) -> Outcome) -> Outcome<f64> {
        let mut total = 0;
        for _ in 0..WAKES {
            self.comm.barrier()?;
            let own = times.at(0)?;
            if self.comm.rank() == 0 {
                // Longer than a rank spins.
                std::thread::sleep(Duration::from_millis(6));
                own.store(0, now()?);
                act(true)?;
            } else {
                act(false)?;
                own.store(1, now()?);
            }
            self.comm.barrier()?;
            total += own.load(1) - own.load(0);
        }
        Ok(total as f64 / WAKES as f64)
    }

    /// Rank 0 measures; the other one waits.
    fn alone(&self, measure: impl FnOnce() -> f64) -> Outcome<f64> {
        Ok(if self.comm.rank() == 0 { measure() } else { 1.0 })
    }
}

/// The time of each of `times` accesses, in nanoseconds.
fn each<R>(times: u64, mut access: impl FnMut(u64) -> R) -> f64 {
    let begin = Instant::now();
    for number in 0..times {
        black_box(access(number));
    }
    begin.elapsed().as_nanos() as f64 / times as f64
}

fn copy(source: *const u64, target: *mut u64, len: usize) {
    // SAFETY: both are valid for this length, and no other rank accesses them meanwhile.
    unsafe { std::ptr::copy_nonoverlapping(black_box(source), black_box(target), len) };
}

/// Non-temporal stores, where the machine has them.
fn stream(source: *const u64, target: *mut u64, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= 4 && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: both are valid for this length, which is a multiple of 32 bytes, and no other rank accesses them meanwhile.
        return unsafe { stream_vectors(source, target, len) };
    }
    copy(source, target, len);
}

/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`]; the target is aligned to 32 bytes, the length a multiple of 4.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn stream_vectors(source: *const u64, target: *mut u64, len: usize) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    for at in (0..len).step_by(4) {
        // SAFETY: the caller's promise, for these 32 bytes.
        let values = unsafe { _mm256_loadu_si256(source.wrapping_add(at).cast::<__m256i>()) };
        // SAFETY: the caller's promise, as above; it is aligned.
        unsafe { _mm256_stream_si256(target.wrapping_add(at).cast::<__m256i>(), values) };
    }
    _mm_sfence();
}

/// A round trip over a line in each direction.
fn alternate(rank: usize, own: &AtomicU64, other: &AtomicU64, turn: u64) {
    let wait = || {
        while own.load(Acquire) != turn {
            std::hint::spin_loop();
        }
    };
    if rank == 0 {
        other.store(turn, Release);
        wait();
    } else {
        wait();
        other.store(turn, Release);
    }
}

fn sleep(word: &AtomicU32, turn: u32) {
    while word.load(Acquire) != turn {
        // SAFETY: the word is a live atomic; there is no time-out.
        unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, turn - 1, std::ptr::null::<()>())
        };
    }
}

fn wake(word: &AtomicU32, turn: u32) {
    word.store(turn, Relaxed);
    fence(SeqCst);
    // SAFETY: the word is a live atomic.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

fn now() -> Outcome<u64> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?).as_nanos() as u64)
}
