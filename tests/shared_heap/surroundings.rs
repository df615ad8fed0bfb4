//! What surrounds a process: its control group, the system's settings, programs that it becomes, descriptors and limits that change later.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result, ensure};
use intranode::{Config, Error};
use libtest_mimic::Completion;
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::blocks::{MIB, is_shared, play};
use super::collectives::{collectives, foreign, gather, number};
use super::control_group::{self, Group};
use super::forks::{complaints, in_child};
use super::job::{self, NotAllowed};
use super::limits::ensure_of_the_system;
use super::{Program, Test};

pub(super) const PROGRAMS: &[Program] = &[
    ("what_was_freed_makes_room_for_other_lengths", 0, lengths_by_turns),
    ("where_the_system_promises_only_what_it_has_it_allocates", 0, strict_overcommit),
    ("a_program_that_a_child_becomes_has_a_heap_of_its_own", 0, becomes_another),
    ("limits_that_come_later_cost_the_heap_nothing", 0, later_limits),
    ("a_rank_that_has_closed_its_heap_is_served", 3, one_closes),
    ("without_a_standard_error_nobody_writes_into_the_heap", 0, no_standard_error),
];

/// What tests and programs start.
pub(super) const STARTED: &[Program] = &[
    ("lengths by turns in a group", 0, in_a_small_group),
    ("one rank is too large for its group", 2, too_large_for_its_group),
    ("forks where its group has no room for a copy", 0, no_room_for_a_copy),
    (ANOTHER, 0, another_program),
];

pub(super) const TESTS: &[Test] = &[
    ("a_control_group_holds_what_is_live", || in_a_group("lengths by turns in a group", 0)),
    ("others_are_told_of_a_rank_that_its_control_group_ends", || {
        in_a_group("one rank is too large for its group", 2)
    }),
    ("a_child_without_room_for_its_copy_in_its_control_group_is_told", || {
        in_a_group("forks where its group has no room for a copy", 0)
    }),
];

/// The memory of the control group, and of the longest block in it.
const LIMIT: usize = 140 * MIB;
const LONGEST: usize = 110 * MIB;

/// Runs a program that may enter a control group. Of several ranks the kernel kills the last.
fn in_a_group(program: &'static str, ranks: usize) -> Result<Completion> {
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(error) => return Ok(Completion::ignored_with(format!("no control group of one's own: {error:#}"))),
    };
    let ended = job::play(program, ranks, ranks.checked_sub(1), |_, command| {
        group.name_to(command);
    })?;
    let peak = group.peak()?;
    ensure!(peak > LONGEST as u64, "no more than {peak} bytes were in the group");
    Ok(ended)
}

/// Blocks of which each fits, and no two: most are longer than all that was freed before.
fn turns() -> Result<()> {
    for turn in 1..=10u8 {
        for part in [8, 4, 2, 1] {
            let block = std::hint::black_box(vec![turn; LONGEST / part]);
            ensure!(is_shared(block.as_ptr())? && block.iter().all(|byte| *byte == turn));
            drop(block);
            let mut zeros = std::hint::black_box(vec![0; LONGEST / part]);
            ensure!(zeros.iter().all(|byte| *byte == 0));
            zeros.fill(turn);
        }
    }
    Ok(())
}

fn lengths_by_turns() -> Result<()> {
    turns()?;
    // The most that was ever there.
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("a field")?;
    let most = 1024 * most.trim().trim_end_matches("kB").trim().parse::<usize>()?;
    ensure!(most < LONGEST + 30 * MIB, "{most} bytes for {LONGEST} at a time");
    Ok(())
}

/// The kernel ends the process if it has more.
fn in_a_small_group() -> Result<()> {
    control_group::enter()?;
    turns()
}

/// The kernel would end the process in the middle of the copy.
fn no_room_for_a_copy() -> Result<()> {
    control_group::enter()?;
    let values = vec![5u64; LONGEST / size_of::<u64>()];
    let text = complaints(&values)?;
    ensure!(text.contains("does not exist in this child"), "{text}");
    ensure!(values.iter().all(|value| *value == 5));
    drop(values);
    // What was freed is not copied, whether it keeps its pages or not.
    let freed = std::hint::black_box(vec![1u8; 60 * MIB]);
    let values = vec![5u64; 30 * MIB / size_of::<u64>()];
    drop(freed);
    in_child(|| values.iter().all(|value| *value == 5))
}

/// The kernel kills the last rank, of which the other reads. The other has an error that names it, and all that it had.
fn too_large_for_its_group() -> Result<()> {
    let comm = Config::from_env()?.join()?;
    let own = vec![comm.rank() as u64; 500_000];
    let mut all = vec![0; 1_000_000];
    let mut kept = Vec::new();
    if comm.rank() == 1 {
        control_group::enter()?;
    }
    let error = loop {
        if let Err(error) = comm.allgather(&own, &mut all) {
            break error;
        }
        ensure!(all.iter().enumerate().all(|(index, value)| *value == (index / 500_000) as u64));
        if comm.rank() == 1 {
            kept.push(vec![1u8; 3 * MIB]);
            ensure!(kept.len() * 3 * MIB < 2 * LIMIT, "there is no limit");
        }
    };
    ensure!(matches!(error, Error::RankDied { rank: 1, .. }), "{error:?}");
    ensure!(own.iter().all(|value| *value == 0) && vec![1u8; 50 * MIB].iter().all(|byte| *byte == 1));
    Ok(())
}

/// In a namespace of its own in which the file says so: the setting itself is the whole machine's.
fn strict_overcommit() -> Result<()> {
    let told = std::env::temp_dir().join(format!("overcommit-{}", std::process::id()));
    std::fs::write(&told, "2\n")?;
    let nothing = None::<&str>;
    let mounted = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing))
        .and_then(|()| {
            mount(Some(&told), "/proc/sys/vm/overcommit_memory", nothing, MsFlags::MS_BIND, nothing)
        });
    std::fs::remove_file(&told)?;
    mounted.map_err(|error| NotAllowed(format!("a file over a setting: {error}")))?;
    ensure!(std::fs::read_to_string("/proc/sys/vm/overcommit_memory")? == "2\n", "it is not there");
    ensure_of_the_system()
}

const ANOTHER: &str = "another program";

/// The child of a fork executes this program again, and has nothing of its parent's heap.
fn becomes_another() -> Result<()> {
    let own = vec![5u64; 4_000_000];
    ensure!(is_shared(own.as_ptr())?);
    let path = CString::new(std::env::current_exe()?.as_os_str().as_bytes())?;
    let variable = CString::new(format!("{}={ANOTHER}", job::PROGRAM))?;
    for _ in 0..3 {
        // SAFETY: the child writes a number of its own copy, and executes a program.
        let child = match unsafe { fork() }? {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                let _ = nix::unistd::execve(&path, &[&path], &[&variable]);
                // SAFETY: ends the child without running the parent's exit handlers.
                unsafe { libc::_exit(1) }
            }
        };
        let status = waitpid(child, None)?;
        ensure!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    }
    ensure!(is_shared(own.as_ptr())? && own.iter().all(|value| *value == 5));
    Ok(())
}

fn another_program() -> Result<()> {
    ensure!(!std::fs::read_to_string("/proc/self/maps")?.contains("intranode_heap"), "its parent's mapping");
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let link = std::fs::read_link(entry?.path()).unwrap_or_default();
        ensure!(!link.to_string_lossy().contains("intranode_heap"), "its parent's descriptor");
    }
    play(&mut fastrand::Rng::with_seed(3), 300)?;
    ensure!(is_shared(vec![1u8; MIB].as_ptr())?);
    Ok(())
}

/// What is there stays there; what is beyond it is the system's, or an error.
fn later_limits() -> Result<()> {
    let mut first = vec![1u8; 20 * MIB];
    let limits = [Resource::RLIMIT_AS, Resource::RLIMIT_DATA, Resource::RLIMIT_FSIZE, Resource::RLIMIT_NOFILE];
    for limit in limits {
        let before = getrlimit(limit)?;
        setrlimit(limit, 0, before.1)?;
        let mut more: Vec<Vec<u8>> = Vec::new();
        for _ in 0..200 {
            let mut block = Vec::new();
            if block.try_reserve_exact(MIB).is_ok() {
                block.resize(MIB, 2);
                more.push(block);
            }
        }
        let right = more.iter().all(|block| block.iter().all(|byte| *byte == 2));
        let shared = more.first().map(|block| is_shared(block.as_ptr()));
        let number = more.len();
        drop(more);
        first.rotate_left(1);
        setrlimit(limit, before.0, before.1)?;
        // The first blocks are in what was mapped already.
        ensure!(right && number >= 40, "{number} blocks under {limit:?}");
        // Descriptors are what it takes to look.
        ensure!(limit == Resource::RLIMIT_NOFILE || shared.context("a block")??, "{limit:?}");
    }
    ensure!(first.iter().all(|byte| *byte == 1));
    let more: Vec<Vec<u8>> = (0..200).map(|_| vec![3; MIB]).collect();
    ensure!(is_shared(more[199].as_ptr())? && more.iter().all(|block| block.iter().all(|byte| *byte == 3)));
    Ok(())
}

/// As programs do that close what they do not know, before they join.
fn one_closes() -> Result<()> {
    let first = vec![1u8; MIB];
    let closes = number("INTRANODE_RANK")? == 1;
    if closes {
        // SAFETY: the heap checks that its descriptor is the one that it has opened; nothing else has any.
        ensure!(unsafe { libc::close_range(3, 1000, 0) } == 0);
    }
    let comm = Config::from_env()?.join()?;
    for turn in 0..4 {
        gather(&comm, 140_000, turn)?;
    }
    let of_others = if comm.rank() == 1 { 2 } else { 1 };
    ensure!(foreign()? == of_others, "{} mappings", foreign()?);
    collectives(&comm)?;
    ensure!(is_shared(first.as_ptr())? && first.iter().all(|byte| *byte == 1));
    Ok(())
}

/// The number of a stream that is closed is the next file's.
fn no_standard_error() -> Result<()> {
    // SAFETY: nothing else of this process uses it meanwhile.
    ensure!(unsafe { libc::close(libc::STDERR_FILENO) } == 0);
    let block = vec![5u8; MIB];
    ensure!(is_shared(block.as_ptr())?);
    eprintln!("this is written nowhere");
    ensure!(block.iter().all(|byte| *byte == 5), "it was written into a block");
    Ok(())
}
