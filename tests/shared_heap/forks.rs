//! Children: by fork, by programs that are started, and by the bare system call.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use super::Program;
use super::blocks::{MIB, is_shared, memory, play};

pub(super) const PROGRAMS: &[Program] = &[
    ("a_child_has_a_copy_and_so_has_its_child", 0, copies),
    ("a_child_that_writes_changes_nothing_in_its_parent", 0, writers),
    ("a_child_frees_and_allocates", 0, allocating_child),
    ("a_fork_copies_no_more_than_what_was_written", 0, lazy_copies),
    ("forks_among_threads_that_allocate", 0, busy_forks),
    ("what_is_freed_during_a_fork_is_its_next_owner_s", 0, freed_during_a_fork),
    ("programs_are_started_with_and_without_fork", 0, programs),
    ("a_child_of_the_bare_system_call_does_not_have_the_heap", 0, bare_child),
    ("a_child_without_memory_for_its_copy_is_told", 0, no_memory),
    ("a_fork_after_the_descriptors_were_closed", 0, closed_descriptors),
    (LARGE, 0, large_fork),
];

/// What takes some GiB.
pub(super) const LARGE: &str = "a_fork_of_a_gib";

/// The exit code of a child whose check holds: unlike that of any accidental end.
const AS_EXPECTED: i32 = 42;

/// Forks a child that checks something, and returns its number.
fn start(check: impl FnOnce() -> bool) -> Result<Pid> {
    // SAFETY: the only other threads are those of the tests about it; what the child does needs none of their locks.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let status = if check() { AS_EXPECTED } else { 1 };
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(status) }
        }
    }
}

fn ensure_holds(child: Pid) -> Result<()> {
    let status = waitpid(child, None)?;
    ensure!(matches!(status, WaitStatus::Exited(_, AS_EXPECTED)), "{status:?}");
    Ok(())
}

pub(super) fn in_child(check: impl FnOnce() -> bool) -> Result<()> {
    ensure_holds(start(check)?)
}

fn all(values: &[u64], expected: u64) -> bool {
    values.iter().all(|value| *value == expected)
}

fn is_private(values: &[u64]) -> bool {
    is_shared(values.as_ptr()).is_ok_and(|shared| !shared)
}

fn copies() -> Result<()> {
    let blocks: Vec<Vec<u64>> = (0..30).map(|number| vec![number; 10_000 * (1 + number as usize)]).collect();
    let right = |blocks: &[Vec<u64>]| blocks.iter().zip(0..).all(|(block, number)| all(block, number));
    ensure!(is_shared(blocks[7].as_ptr())?);
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count());
    let before = descriptors();
    in_child(|| {
        let grandchild = in_child(|| right(&blocks) && is_private(&blocks[7]));
        right(&blocks) && is_private(&blocks[7]) && grandchild.is_ok() && descriptors() < before
    })?;
    ensure!(right(&blocks) && is_shared(blocks[7].as_ptr())?);
    Ok(())
}

fn writers() -> Result<()> {
    let mut values = vec![1u64; 500_000];
    let (done, write) = std::io::pipe()?;
    let child = start(|| {
        // Only when the parent has written too.
        let waited = (&done).read_exact(&mut [0]).is_ok();
        let own = all(&values, 1);
        values.fill(2);
        waited && own && all(&values, 2)
    })?;
    values.fill(3);
    (&write).write_all(&[1])?;
    ensure_holds(child)?;
    ensure!(all(&values, 3), "the child has written here");
    Ok(())
}

/// What the parent had, and blocks of its own; also many children, so that nothing is left of them.
fn allocating_child() -> Result<()> {
    let mut kept: Vec<Vec<u64>> = (0..20).map(|number| vec![number; 50_000]).collect();
    kept.retain(|block| block[0] % 3 != 1);
    let [before, _] = memory()?;
    for turn in 0..50 {
        in_child(|| {
            let mut own: Vec<Vec<u64>> = std::mem::take(&mut kept);
            own.truncate(7);
            let zeros = vec![0u64; 10_000_000];
            own.extend((100..110).map(|number| vec![number; 30_000]));
            let played = play(&mut fastrand::Rng::with_seed(turn), 50).is_ok();
            let first = own[3][0];
            own[3].resize(1_000_000, first);
            let right = own.iter().all(|block| all(block, block[0]));
            played && right && all(&zeros, 0) && is_private(&zeros) && own[0][0] == 0 && own[16][0] == 109
        })?;
    }
    let [after, _] = memory()?;
    ensure!(after <= before + MIB, "{before} bytes, then {after}");
    ensure!(kept.len() == 13 && kept.iter().all(|block| all(block, block[0])));
    Ok(())
}

fn lazy_copies() -> Result<()> {
    let mut block = vec![0u8; 2000 * MIB];
    block[MIB] = 1;
    in_child(|| {
        let sparse = memory().is_ok_and(|[_, all]| all < 100 * MIB);
        sparse && block[MIB] == 1 && block[1999 * MIB] == 0
    })
}

/// Allocations of other threads go on during a fork, and none is lost.
fn busy_forks() -> Result<()> {
    let (done, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    let own = vec![7u64; 200_000];
    std::thread::scope(|scope| {
        let busy = |seed: u64| {
            let (done, turns) = (&done, &turns);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !done.load(Ordering::Relaxed) {
                    play(&mut random, 20)?;
                    turns.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            })
        };
        let threads: Vec<_> = (0..3).map(busy).collect();
        // The child does not allocate: another thread may have held the C library's locks.
        let forks = (0..60).try_for_each(|_| in_child(|| all(&own, 7)));
        done.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))?;
        forks
    })?;
    ensure!(turns.into_inner() > 0);
    Ok(())
}

/// A child does not free a block in the memory of its parent, where it may have been given out again.
fn freed_during_a_fork() -> Result<()> {
    // More than what keeps its pages when it is freed.
    const LEN: usize = 9 << 20;
    // Before the first large block, so that they run between the functions of the heap.
    // SAFETY: they do not unwind, and in the child one makes a system call only.
    ensure!(unsafe { libc::pthread_atfork(Some(free_meanwhile), None, Some(await_parent)) } == 0);
    let (reader, mut writer) = std::io::pipe()?;
    PARENT.store(reader.as_raw_fd(), Ordering::Relaxed);
    let first = vec![1u64; LEN];
    let place = first.as_ptr();
    ensure!(is_shared(place)?);
    FREED.lock().expect("no panic").replace(first);
    let child = start(|| true)?;
    ensure!(CLOSED.load(Ordering::Relaxed), "the heap was not closed when the block was freed");
    let next = vec![2u64; LEN];
    ensure!(next.as_ptr() == place, "the block was not given out again");
    writer.write_all(&[1])?;
    ensure_holds(child)?;
    ensure!(all(&next, 2), "the child has taken its memory");
    Ok(())
}

/// What is freed during the fork, as by another thread; whether the heap was closed then; and where the child waits.
static FREED: Mutex<Option<Vec<u64>>> = Mutex::new(None);
static CLOSED: AtomicBool = AtomicBool::new(false);
static PARENT: AtomicI32 = AtomicI32::new(-1);

extern "C" fn free_meanwhile() {
    let freed = FREED.lock().map(|mut freed| freed.take());
    CLOSED.store(is_shared(vec![1u8; MIB].as_ptr()).is_ok_and(|shared| !shared), Ordering::Relaxed);
    drop(freed);
}

extern "C" fn await_parent() {
    let mut byte = 0u8;
    // SAFETY: one byte into a live buffer of that size.
    unsafe { libc::read(PARENT.load(Ordering::Relaxed), (&raw mut byte).cast(), 1) };
}

fn programs() -> Result<()> {
    let values = vec![5u64; 4_000_000];
    for _ in 0..20 {
        let output = Command::new("/bin/echo").arg("spawned").output()?;
        ensure!(output.stdout == b"spawned\n");
    }
    for _ in 0..5 {
        let mut command = Command::new("/bin/echo");
        let seen = AtomicPtr::new(values.as_ptr().cast_mut());
        let check = move || {
            // SAFETY: the child has a copy of it.
            let first = unsafe { seen.load(Ordering::Relaxed).read_volatile() };
            if first == 5 { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
        };
        // SAFETY: it reads a number.
        unsafe { command.pre_exec(check) };
        let output = command.arg("forked").output()?;
        ensure!(output.stdout == b"forked\n");
    }
    ensure!(all(&values, 5) && is_shared(values.as_ptr())?);
    Ok(())
}

/// It ends by a fault in place of writing into its parent's memory.
fn bare_child() -> Result<()> {
    let values = vec![5u64; 100_000];
    // SAFETY: fork by its own system call; the child reads one number and ends.
    let child = match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        0 => {
            // SAFETY: none: this is the fault to be tested. It ends the process.
            let value = unsafe { values.as_ptr().read_volatile() };
            // SAFETY: ends the child.
            unsafe { libc::_exit(value as i32) }
        }
        child => Pid::from_raw(i32::try_from(child)?),
    };
    let status = waitpid(child, None)?;
    ensure!(matches!(status, WaitStatus::Signaled(_, Signal::SIGSEGV, _)), "{status:?}");
    ensure!(all(&values, 5));
    Ok(())
}

/// Forks where no memory can be mapped, and returns what children say on standard error.
pub(super) fn complaints(values: &[u64]) -> Result<String> {
    let (mut reader, writer) = std::io::pipe()?;
    let own = nix::unistd::dup(std::io::stderr())?;
    nix::unistd::dup2_stderr(&writer)?;
    // A child that does not use the heap goes on.
    let untouched = in_child(|| true);
    let child = start(|| std::hint::black_box(values)[0] == 5)?;
    let status = waitpid(child, None)?;
    nix::unistd::dup2_stderr(&own)?;
    drop(writer);
    untouched?;
    ensure!(matches!(status, WaitStatus::Signaled(_, Signal::SIGSEGV, _)), "{status:?}");
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    Ok(text)
}

fn no_memory() -> Result<()> {
    let values = vec![5u64; 4_000_000];
    let limit = getrlimit(Resource::RLIMIT_AS)?;
    // What is mapped now is more.
    setrlimit(Resource::RLIMIT_AS, 1 << 30, limit.1)?;
    let text = complaints(&values);
    setrlimit(Resource::RLIMIT_AS, limit.0, limit.1)?;
    ensure!(text?.contains("does not exist in this child"));
    ensure!(all(&values, 5));
    in_child(|| all(&values, 5))
}

/// The number of the heap's descriptor.
fn number_of_heap() -> Result<i32> {
    let all = std::fs::read_dir("/proc/self/fd")?.flatten().map(|entry| entry.path());
    let mut heaps = all.filter(|path| {
        std::fs::read_link(path).is_ok_and(|name| name.to_string_lossy().contains("intranode_heap"))
    });
    let number = heaps.next().and_then(|path| path.file_name()?.to_str()?.parse().ok());
    number.context("the heap has a descriptor")
}

/// What a program closes is not used again: the number may be another file's by then.
fn closed_descriptors() -> Result<()> {
    let mut values = vec![5u64; 4_000_000];
    let number = number_of_heap()?;
    // SAFETY: the heap checks that its descriptor is the one that it has opened.
    ensure!(unsafe { libc::close_range(3, 1000, 0) } == 0);
    let path = std::env::temp_dir().join(format!("shared-heap-{}", std::process::id()));
    std::fs::write(&path, [7; 100_000])?;
    let file = std::fs::File::options().read(true).write(true).open(&path)?;
    std::fs::remove_file(&path)?;
    // SAFETY: the number is free, or the file's own.
    ensure!(unsafe { libc::dup2(file.as_raw_fd(), number) } == number);
    let text = complaints(&values)?;
    ensure!(text.contains("does not exist in this child"), "{text}");
    // SAFETY: touches no memory.
    in_child(|| unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0)?;
    // It grows no more, but is freed, and what is there is given out again.
    let more: Vec<Vec<u8>> = (0..200).map(|_| vec![1; MIB]).collect();
    ensure!(more.iter().all(|block| block.iter().all(|byte| *byte == 1)));
    drop(more);
    values.truncate(10_000);
    values.shrink_to_fit();
    let mut content = Vec::new();
    (&file).read_to_end(&mut content)?;
    ensure!(content == [7; 100_000], "another file was changed");
    Ok(())
}

fn large_fork() -> Result<()> {
    let mut values: Vec<u64> = (0..1 << 27).collect();
    let right = |values: &[u64]| values.iter().zip(0..).all(|(value, index)| *value == index);
    let start_of_fork = Instant::now();
    let (done, write) = std::io::pipe()?;
    let child = start(|| (&done).read_exact(&mut [0]).is_ok() && right(&values))?;
    eprintln!("a fork with {} bytes takes {:?}", size_of_val(&values[..]), start_of_fork.elapsed());
    values.fill(1);
    (&write).write_all(&[1])?;
    ensure_holds(child)?;
    ensure!(all(&values, 1));
    Ok(())
}
