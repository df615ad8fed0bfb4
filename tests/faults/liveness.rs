//! Rows 23 to 26: what the watchers see by is damaged, forbidden, or in another world.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::segment::layout::Layout;
use libtest_mimic::Completion;
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::job::{Job, PROGRAM};
use super::report::now;
use super::segment::Segment;
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_23_a_liveness_word_is_overwritten", || words_are_overwritten(3)),
    ("row_23_the_liveness_words_of_one_of_12_are_overwritten", || words_are_overwritten(12)),
    ("row_24_sleeping_on_many_words_is_switched_off", || sleeping_is_refused("barriers", true)),
    ("row_24_sleeping_on_many_words_gives_eperm", || sleeping_is_refused("refused with EPERM", false)),
    ("row_24_sleeping_on_many_words_gives_enosys", || sleeping_is_refused("refused with ENOSYS", false)),
    ("row_25_another_space_of_process_numbers", another_space),
    ("row_25_every_rank_in_a_space_of_its_own", every_rank_in_a_space_of_its_own),
    ("row_26_an_unprivileged_user", || an_unprivileged_user("barriers")),
    ("row_26_an_unprivileged_user_under_a_container_s_profile", || an_unprivileged_user("in a container")),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("refused with EPERM", || refused(Errno::EPERM)),
    ("refused with ENOSYS", || refused(Errno::ENOSYS)),
    ("in a container", in_a_container),
    ("in another space", in_another_space),
    ("says its number", says_its_number),
];

/// How long it may take to notice the end of a process whose word is damaged.
const BACKUP: Duration = Duration::from_millis(200);

/// All the words by which others know that rank 1 is alive.
fn words_are_overwritten(size: usize) -> Result<Completion> {
    let layout = Layout::new(size, Layout::default_chunk(size))?;
    let others: Vec<usize> = (0..size).filter(|rank| *rank != 1).collect();
    for _ in 0..repeat(3) {
        // The others sleep: nobody is in the way of those who notice.
        let program = |rank| if rank == 1 { "stays away" } else { "barriers" };
        let mut job = Job::joined_with(size, program, |_| ())?;
        for slot in 0..layout.watchers() {
            overwrite(&mut job, 1, layout, layout.alive(1, slot).context("there is such a word")?)?;
        }
        job.kill(1)?;
        job.status(1)?;
        let since = now();
        let last = job.all_name(&others, &[1], since)?;
        if last > BACKUP {
            eprintln!("noticed after {last:?}: is the machine busy?");
        }
        job.finish(&[1])?;
    }
    Ok(Completion::Completed)
}

/// Writes nonsense over a liveness word, through the memory of the rank whose word it is.
fn overwrite(job: &mut Job, owner: usize, layout: Layout, offset: usize) -> Result<()> {
    let name = format!("/dev/shm{}", job.name());
    let is_its_file = |line: &str| line.contains(&name) || line.contains("/dev/shm/#");
    let segment = Segment::in_process(job.pid(owner)?, layout, is_its_file)?;
    let mut word = [0; 4];
    segment.read(offset, &mut word)?;
    ensure!(u32::from_ne_bytes(word) & 0x8000_0000 != 0, "that is no liveness word: {word:?}");
    segment.write(offset, &0x1234_5678u32.to_ne_bytes())
}

fn sleeping_is_refused(program: &str, switched_off: bool) -> Result<Completion> {
    let job = |size| {
        Job::joined_with(
            size,
            |_| program,
            |command| {
                if switched_off {
                    command.env("INTRANODE_LIVENESS", "scan");
                }
            },
        )
    };
    for size in [2, 4] {
        for _ in 0..repeat(5) {
            let mut job = job(size)?;
            let victim = fastrand::usize(0..size);
            let others: Vec<usize> = (0..size).filter(|rank| *rank != victim).collect();
            let since = job.kill(victim)?;
            job.all_name(&others, &[victim], since)?;
            job.finish(&[victim])?;
        }
    }
    let mut job = job(4)?;
    job.kill(0)?;
    job.kill(1)?;
    let since = job.kill(3)?;
    job.all_name(&[2], &[0, 1, 3], since)?;
    job.finish(&[0, 1, 3])?;
    Ok(Completion::Completed)
}

/// A rank under a policy that forbids to sleep on many words.
fn refused(error: Errno) -> Result<()> {
    refuse(&[libc::SYS_futex_waitv], error)?;
    rank::repeat(&rank::join()?, |comm| comm.barrier())
}

/// From here on the system refuses these calls to this process.
pub(crate) fn refuse(calls: &[libc::c_long], error: Errno) -> Result<()> {
    let rules = calls.iter().map(|call| (*call, vec![])).collect();
    let refuse = SeccompAction::Errno(error as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    Ok(apply_filter(&BpfProgram::try_from(filter)?)?)
}

/// What Docker's default profile refuses to a container without privileges, as far as this machine has it: everything
/// about namespaces, mounts, keys, modules, tracing, NUMA and other processes' memory.
const DENIED: &[libc::c_long] = &[
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Everything that a job does, where the profile is in force.
fn in_a_container() -> Result<()> {
    refuse(DENIED, Errno::EPERM)?;
    // So that the C library takes the older call, of which the profile can see the arguments.
    refuse(&[libc::SYS_clone3], Errno::ENOSYS)?;
    ensure!(unshare(CloneFlags::CLONE_NEWNS) == Err(Errno::EPERM), "the profile is in force");
    let comm = rank::join()?;
    rank::works(&comm, 100)?;
    let mut region = comm.region::<u64>(1 << 16)?;
    region.as_mut_slice().fill(3);
    let shared = region.publish()?;
    ensure!(shared.iter().all(|value| *value == 3));
    rank::works(&comm.split_local()?, 10)?;
    rank::say("works")?;
    rank::repeat(&comm, |comm| comm.barrier())
}

/// The user who may do least.
const NOBODY: u32 = 65534;

fn an_unprivileged_user(program: &str) -> Result<Completion> {
    let become_nobody = |command: &mut Command| {
        if nix::unistd::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
    };
    let mut job = Job::new(3);
    if let Err(error) = job.start(0, program, become_nobody) {
        return Ok(Completion::ignored_with(format!("this program can not be run as another user: {error:#}")));
    }
    job.start(1, program, become_nobody)?;
    job.start(2, program, become_nobody)?;
    job.await_joined(0..3)?;
    if program == "in a container" {
        (0..3).try_for_each(|rank| job.await_line(rank, "works"))?;
    }
    let since = job.kill(1)?;
    job.all_name(&[0, 2], &[1], since)?;
    job.finish(&[1])?;
    Ok(Completion::Completed)
}

/// The victim has another number for itself than the survivors have for it.
fn another_space() -> Result<Completion> {
    for _ in 0..repeat(3) {
        let mut job = Job::new(3);
        job.start(1, "in another space", |_| ())?;
        let number = job.line(1)?;
        if let Some(reason) = number.strip_prefix("not allowed: ") {
            return Ok(Completion::ignored_with(reason));
        }
        job.start(0, "barriers", |_| ())?;
        job.start(2, "barriers", |_| ())?;
        job.await_joined(0..3)?;
        let since = now();
        job.tell(1, "die")?;
        for rank in [0, 2] {
            let report = job.report(rank)?;
            ensure!(report.kind == "died" && report.ranks == [1], "{report:?}");
            ensure!(
                report.pid.map(|pid| pid.to_string()).as_ref() == Some(&number),
                "{report:?}, not {number}"
            );
            ensure!(report.at.saturating_sub(since) < super::job::BOUND, "{report:?}");
        }
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

/// Each is number 1 for itself, and none can see another: only the words in the segment tell.
fn every_rank_in_a_space_of_its_own() -> Result<Completion> {
    for _ in 0..repeat(3) {
        let mut job = Job::new(3);
        for rank in 0..3 {
            job.start(rank, "in another space", |_| ())?;
            let number = job.line(rank)?;
            if let Some(reason) = number.strip_prefix("not allowed: ") {
                return Ok(Completion::ignored_with(reason));
            }
            ensure!(number == "1", "rank {rank} is {number} for itself");
        }
        job.await_joined(0..3)?;
        let since = now();
        job.tell(1, "die")?;
        for rank in [0, 2] {
            let report = job.report(rank)?;
            ensure!(report.kind == "died" && report.ranks == [1], "{report:?}");
            ensure!(report.at.saturating_sub(since) < super::job::BOUND, "{report:?}");
        }
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

/// Starts the real rank as the first process of a new space.
fn in_another_space() -> Result<()> {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWPID) {
        return rank::say(&format!("not allowed: unshare: {error}"));
    }
    let status = Command::new(std::env::current_exe()?).env(PROGRAM, "says its number").status()?;
    ensure!(matches!(status.code(), Some(DIES | 0)), "{status}");
    Ok(())
}

/// How a rank ends that was told to die.
const DIES: i32 = 9;

fn says_its_number() -> Result<()> {
    rank::say(&std::process::id().to_string())?;
    let comm = rank::join()?;
    let input = std::thread::spawn(rank::heard);
    while !input.is_finished() {
        if let Err(error) = comm.barrier() {
            rank::say(&super::report::Report::of(&error).line())?;
            // Until the test lets it go.
            let _ = input.join();
            return Ok(());
        }
    }
    std::process::exit(DIES)
}
