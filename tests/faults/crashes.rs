//! Rows 5 and 6: crashes and panics of a rank.

use std::hint::black_box;
use std::panic::{catch_unwind, panic_any};
use std::time::Duration;

use anyhow::{Result, ensure};
use intranode::Config;
use libtest_mimic::Completion;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction, signal};

use super::job::{BOUND, Job};
use super::report::now;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[
    ("row_05_aborts", || crashes("aborts", 6)),
    ("row_05_segmentation_fault", || crashes("faults", 11)),
    ("row_05_stack_overflow", || crashes("overflows", 6)),
    ("row_05_aborts_with_the_handler", || crashes("aborts, with the handler", 6)),
    ("row_05_segmentation_fault_with_the_handler", || crashes("faults, with the handler", 11)),
    ("row_05_stack_overflow_with_the_handler", || crashes("overflows, with the handler", 6)),
    ("row_05_segmentation_fault_with_the_programs_handler_once", || {
        crashes("faults, with a handler for once", 11)
    }),
    ("row_05_a_fatal_signal_is_sent_with_the_handler", || crashes("is sent a signal, with the handler", 8)),
    ("row_05_an_ignored_signal_with_the_handler", an_ignored_signal),
    ("row_05_the_programs_handler_can_abort", || crashes("faults, with a handler that aborts", 6)),
    ("row_05_a_core_dump_is_under_way", a_core_dump_is_under_way),
    ("row_06_a_panic_unwinds_out_of_the_rank", a_panic_unwinds),
    ("row_06_a_panic_is_caught_inside_the_rank", a_panic_is_caught),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("aborts", || crash(false, || std::process::abort())),
    ("faults", || crash(false, fault)),
    ("overflows", || crash(false, overflow)),
    ("aborts, with the handler", || crash(true, || std::process::abort())),
    ("faults, with the handler", || crash(true, fault)),
    ("overflows, with the handler", || crash(true, overflow)),
    ("faults, with a handler for once", faults_with_a_handler_for_once),
    ("is sent a signal, with the handler", || crash(true, is_sent_a_signal)),
    ("ignores a signal, with the handler", ignores_a_signal),
    ("faults, with a handler that aborts", faults_with_a_handler_that_aborts),
    ("dumps core, with the handler", dumps_core),
    ("panics", panics),
    ("catches its panic", catches_its_panic),
];

fn crashes(program: &str, signal: i32) -> Result<Completion> {
    let mut job = Job::joined_with(3, |rank| if rank == 1 { program } else { "barriers" }, |_| ())?;
    let since = now();
    job.send(1, "crash")?;
    job.all_report_death(&[0, 2], &[1], since)?;
    job.finish_with(|rank| if rank == 1 { -signal } else { 0 })?;
    Ok(Completion::Completed)
}

fn crash(with_handler: bool, crash: fn()) -> Result<()> {
    // Without a core dump.
    setrlimit(Resource::RLIMIT_CORE, 0, getrlimit(Resource::RLIMIT_CORE)?.1)?;
    let _comm = Config::from_env()?.fatal_signals(with_handler).join()?;
    rank::send("joined")?;
    rank::receive()?;
    crash();
    Ok(())
}

fn fault() {
    let unmapped = black_box(std::ptr::without_provenance::<u8>(8));
    // SAFETY: none: the fault is what the test needs.
    black_box(unsafe { unmapped.read_volatile() });
}

/// The program's own handler returns, as it is called once only: then the system ends the process.
fn faults_with_a_handler_for_once() -> Result<()> {
    extern "C" fn returns(_: i32) {}
    let action = SigAction::new(SigHandler::Handler(returns), SaFlags::SA_RESETHAND, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGSEGV, &action) }?;
    crash(true, fault)
}

/// By another process: there is no instruction that would be executed again.
fn is_sent_a_signal() {
    raise(Signal::SIGFPE).expect("a signal");
}

/// A signal that the program ignores is not fatal.
fn an_ignored_signal() -> Result<Completion> {
    let program = |rank| if rank == 1 { "ignores a signal, with the handler" } else { "works" };
    let mut job = Job::joined_with(3, program, |_| ())?;
    for rank in 0..3 {
        job.await_line(rank, "works")?;
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn ignores_a_signal() -> Result<()> {
    // SAFETY: there is no handler.
    unsafe { signal(Signal::SIGFPE, SigHandler::SigIgn) }?;
    let comm = Config::from_env()?.fatal_signals(true).join()?;
    raise(Signal::SIGFPE)?;
    rank::send("joined")?;
    super::processes::works(&comm)
}

/// Such a handler may have no stack for another handler of SIGABRT: that has its default action again.
fn faults_with_a_handler_that_aborts() -> Result<()> {
    extern "C" fn aborts(_: i32) {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default action runs no code.
        match unsafe { sigaction(Signal::SIGABRT, &default) } {
            Ok(found) if matches!(found.handler(), SigHandler::SigDfl) => std::process::abort(),
            // SAFETY: ends the process.
            _ => unsafe { nix::libc::_exit(77) },
        }
    }
    // SAFETY: the handler makes system calls only.
    unsafe { signal(Signal::SIGSEGV, SigHandler::Handler(aborts)) }?;
    crash(true, fault)
}

fn overflow() {
    #[expect(unconditional_recursion, reason = "until the stack is full")]
    fn deeper(depth: u64) -> u64 {
        black_box([depth; 64]);
        deeper(black_box(depth + 1)) + 1
    }
    black_box(deeper(1));
}

/// The survivors must report the death before the core is written.
fn a_core_dump_is_under_way() -> Result<Completion> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern")?;
    if pattern.starts_with('|') {
        return Ok(Completion::ignored_with("core dumps go to another program here"));
    }
    if getrlimit(Resource::RLIMIT_CORE)?.1 < CORE {
        return Ok(Completion::ignored_with("the limit on core dumps is too low"));
    }
    let directory = tempfile::tempdir()?;
    let program = |rank| if rank == 1 { "dumps core, with the handler" } else { "barriers" };
    let mut job = Job::joined_with(3, program, |command| {
        command.current_dir(&directory);
    })?;
    job.await_line(1, "is large")?;
    let since = now();
    job.send(1, "crash")?;
    let named = job.all_report_death(&[0, 2], &[1], since)?;
    job.status(1)?;
    let ended = now() - since;
    ensure!(named < ended, "reported after {named:?}, when the process had ended after {ended:?}");
    job.finish_with(|rank| if rank == 1 { -6 } else { 0 })?;
    let size: u64 =
        std::fs::read_dir(directory.path())?.map(|core| Ok(core?.metadata()?.len())).sum::<Result<_>>()?;
    if size < CORE {
        return Ok(Completion::ignored_with("the system has written no core"));
    }
    Ok(Completion::Completed)
}

/// Large enough that writing it takes a while.
const CORE: u64 = 256 << 20;

fn dumps_core() -> Result<()> {
    let hard = getrlimit(Resource::RLIMIT_CORE)?.1;
    setrlimit(Resource::RLIMIT_CORE, hard, hard)?;
    let _comm = Config::from_env()?.fatal_signals(true).join()?;
    rank::send("joined")?;
    let memory = black_box(vec![1u8; CORE as usize]);
    rank::send("is large")?;
    rank::receive()?;
    black_box(memory.len());
    std::process::abort()
}

fn a_panic_unwinds() -> Result<Completion> {
    let mut job = Job::joined_with(3, |rank| if rank == 1 { "panics" } else { "barriers" }, |_| ())?;
    let since = now();
    job.send(1, "panic")?;
    for rank in [0, 2] {
        let report = job.report(rank)?;
        ensure!(report.kind == "poisoned" && report.ranks == [1], "{report:?}");
        ensure!(report.text.contains("panicked"), "{report:?}");
        ensure!(report.at.saturating_sub(since) < BOUND, "{report:?}");
    }
    ensure!(!job.has_ended(1)?, "it is alive");
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// A panic that ends the rank, but not the process.
fn panics() -> Result<()> {
    let comm = rank::join()?;
    rank::receive()?;
    let ended = catch_unwind(move || {
        let _comm = comm;
        panic_any("for the test");
    });
    ensure!(ended.is_err());
    rank::receive()?;
    Ok(())
}

fn a_panic_is_caught() -> Result<Completion> {
    let mut job = Job::joined(3, "catches its panic")?;
    for rank in 0..3 {
        job.await_line(rank, "works")?;
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn catches_its_panic() -> Result<()> {
    let comm = rank::join()?;
    rank::ensure_works(&comm, 10)?;
    if comm.rank() == 1 {
        // Without AssertUnwindSafe: a communicator is unwind-safe.
        let caught = catch_unwind(|| {
            let _kept = &comm;
            std::thread::sleep(Duration::from_millis(1));
            panic_any("for the test");
        });
        ensure!(caught.is_err());
    }
    rank::ensure_works(&comm, 1000)?;
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}
