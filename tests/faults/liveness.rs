//! Rows 23 to 26: damaged liveness words, forbidden system calls, other PID namespaces.

use std::fs::DirEntry;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::Error;
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
    ("row_23_a_rank_closes_descriptors_that_it_does_not_know", descriptors_are_closed),
    ("row_24_futex_waitv_is_switched_off", || futex_waitv_is_refused("barriers", true)),
    ("row_24_futex_waitv_gives_eperm", || futex_waitv_is_refused("refused with EPERM", false)),
    ("row_24_futex_waitv_gives_enosys", || futex_waitv_is_refused("refused with ENOSYS", false)),
    ("row_25_another_pid_namespace", another_pid_namespace),
    ("row_25_every_rank_in_a_pid_namespace_of_its_own", every_rank_in_a_pid_namespace_of_its_own),
    ("row_26_an_unprivileged_user", || an_unprivileged_user("barriers")),
    ("row_26_an_unprivileged_user_under_a_container_s_profile", || an_unprivileged_user("in a container")),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("refused with EPERM", || refused(Errno::EPERM)),
    ("refused with ENOSYS", || refused(Errno::ENOSYS)),
    ("in a container", in_a_container),
    ("in another PID namespace", in_another_pid_namespace),
    ("sends its pid", sends_its_pid),
    ("closes what it does not know", closes_what_it_does_not_know),
];

/// The time within which the end of a process with damaged liveness words is noticed.
const BACKUP: Duration = Duration::from_millis(200);

/// Overwrites all liveness words of rank 1.
fn words_are_overwritten(size: usize) -> Result<Completion> {
    let layout = Layout::new(size, Layout::default_chunk(size))?;
    let others: Vec<usize> = (0..size).filter(|rank| *rank != 1).collect();
    for _ in 0..repeat(3) {
        // The others sleep, so that the watchers can run.
        let program = |rank| if rank == 1 { "stays away" } else { "barriers" };
        let mut job = Job::joined_with(size, program, |_| ())?;
        for slot in 0..layout.watchers() {
            overwrite(&mut job, 1, layout, layout.alive(1, slot).context("there is such a word")?)?;
        }
        job.kill(1)?;
        job.status(1)?;
        let since = now();
        let last = job.all_report_death(&others, &[1], since)?;
        if last > BACKUP {
            eprintln!("noticed after {last:?}: is the machine busy?");
        }
        job.finish(&[1])?;
    }
    Ok(Completion::Completed)
}

/// As programs do that become daemons. The numbers are those of other files then, which are no processes that have ended.
fn descriptors_are_closed() -> Result<Completion> {
    let program = |rank| if rank == 1 { "closes what it does not know" } else { "barriers" };
    let mut job = Job::joined_with(3, program, |_| ())?;
    job.await_line(1, "works")?;
    let since = job.kill(0)?;
    job.all_report_death(&[2], &[0], since)?;
    job.await_line(1, "left")?;
    job.finish(&[0])?;
    Ok(Completion::Completed)
}

fn closes_what_it_does_not_know() -> Result<()> {
    let comm = rank::join()?;
    // The watcher has opened its descriptors.
    let opened = || std::fs::read_dir("/proc/self/fd").map(|all| all.flatten().filter(is_of_a_process).count());
    while opened()? == 0 {
        comm.barrier()?;
    }
    // SAFETY: the library does not use what it has not opened.
    ensure!(unsafe { libc::close_range(3, 1000, 0) } == 0);
    let (reader, mut writer) = std::io::pipe()?;
    writer.write_all(b"readable")?;
    let readers: Vec<_> = (0..20).map(|_| reader.try_clone()).collect::<Result<_, _>>()?;
    let since = Instant::now();
    while since.elapsed() < 4 * BACKUP {
        comm.barrier()?;
    }
    rank::send("works")?;
    let error = loop {
        if let Err(error) = comm.barrier() {
            break error;
        }
    };
    ensure!(matches!(error, Error::RankDied { rank: 0, .. }), "{error}");
    drop(comm);
    for reader in &readers {
        reader.try_clone().context("the library has closed a descriptor of the program")?;
    }
    rank::send("left")?;
    rank::receive()?;
    Ok(())
}

fn is_of_a_process(descriptor: &DirEntry) -> bool {
    std::fs::read_link(descriptor.path()).is_ok_and(|name| name.to_string_lossy().contains("pidfd"))
}

/// Overwrites a liveness word, through the memory of its owner.
fn overwrite(job: &mut Job, owner: usize, layout: Layout, offset: usize) -> Result<()> {
    let name = format!("/dev/shm{}", job.name());
    let is_its_file = |line: &str| line.contains(&name) || line.contains("/dev/shm/#");
    let segment = Segment::in_process(job.pid(owner)?, layout, is_its_file)?;
    let mut word = [0; 4];
    segment.read(offset, &mut word)?;
    ensure!(u32::from_ne_bytes(word) & 0x8000_0000 != 0, "that is no liveness word: {word:?}");
    segment.write(offset, &0x1234_5678u32.to_ne_bytes())
}

fn futex_waitv_is_refused(program: &str, switched_off: bool) -> Result<Completion> {
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
            job.all_report_death(&others, &[victim], since)?;
            job.finish(&[victim])?;
        }
    }
    let mut job = job(4)?;
    job.kill(0)?;
    job.kill(1)?;
    let since = job.kill(3)?;
    job.all_report_death(&[2], &[0, 1, 3], since)?;
    job.finish(&[0, 1, 3])?;
    Ok(Completion::Completed)
}

/// A rank under a seccomp filter that refuses futex_waitv.
fn refused(error: Errno) -> Result<()> {
    refuse(&[libc::SYS_futex_waitv], error)?;
    rank::repeat(&rank::join()?, |comm| comm.barrier())
}

/// From here on these system calls fail in this process.
pub(crate) fn refuse(calls: &[libc::c_long], error: Errno) -> Result<()> {
    let rules = calls.iter().map(|call| (*call, vec![])).collect();
    let refuse = SeccompAction::Errno(error as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    Ok(apply_filter(&BpfProgram::try_from(filter)?)?)
}

/// The system calls that Docker's default profile refuses in an unprivileged container: namespaces, mounts, keys, modules,
/// tracing, NUMA and other processes' memory.
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

/// A job under the profile.
fn in_a_container() -> Result<()> {
    refuse(DENIED, Errno::EPERM)?;
    // As the profile: the C library then uses clone, whose arguments a filter can check.
    refuse(&[libc::SYS_clone3], Errno::ENOSYS)?;
    ensure!(unshare(CloneFlags::CLONE_NEWNS) == Err(Errno::EPERM), "the profile is in force");
    let comm = rank::join()?;
    rank::ensure_works(&comm, 100)?;
    let mut region = comm.region::<u64>(1 << 16)?;
    region.as_mut_slice().fill(3);
    let shared = region.publish()?;
    ensure!(shared.iter().all(|value| *value == 3));
    rank::ensure_works(&comm.split_local()?, 10)?;
    rank::send("works")?;
    rank::repeat(&comm, |comm| comm.barrier())
}

/// The unprivileged user nobody.
const NOBODY: u32 = 65534;

fn an_unprivileged_user(program: &str) -> Result<Completion> {
    let become_nobody = |command: &mut Command| {
        if nix::unistd::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
    };
    let mut job = Job::new(3);
    if let Err(error) = job.start(0, program, become_nobody) {
        return Ok(Completion::ignored_with(format!("this program cannot be run as another user: {error:#}")));
    }
    job.start(1, program, become_nobody)?;
    job.start(2, program, become_nobody)?;
    job.await_joined(0..3)?;
    if program == "in a container" {
        (0..3).try_for_each(|rank| job.await_line(rank, "works"))?;
    }
    let since = job.kill(1)?;
    job.all_report_death(&[0, 2], &[1], since)?;
    job.finish(&[1])?;
    Ok(Completion::Completed)
}

/// The victim has another process id in its own PID namespace than in that of the survivors.
fn another_pid_namespace() -> Result<Completion> {
    for _ in 0..repeat(3) {
        let mut job = Job::new(3);
        job.start(1, "in another PID namespace", |_| ())?;
        let number = job.line(1)?;
        if let Some(reason) = number.strip_prefix("not allowed: ") {
            return Ok(Completion::ignored_with(reason));
        }
        job.start(0, "barriers", |_| ())?;
        job.start(2, "barriers", |_| ())?;
        job.await_joined(0..3)?;
        let since = now();
        job.send(1, "die")?;
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

/// Each rank is process 1 of its own namespace, and no process id is valid elsewhere: only the liveness words remain.
fn every_rank_in_a_pid_namespace_of_its_own() -> Result<Completion> {
    for _ in 0..repeat(3) {
        let mut job = Job::new(3);
        for rank in 0..3 {
            job.start(rank, "in another PID namespace", |_| ())?;
            let number = job.line(rank)?;
            if let Some(reason) = number.strip_prefix("not allowed: ") {
                return Ok(Completion::ignored_with(reason));
            }
            ensure!(number == "1", "rank {rank} is {number} for itself");
        }
        job.await_joined(0..3)?;
        let since = now();
        job.send(1, "die")?;
        for rank in [0, 2] {
            let report = job.report(rank)?;
            ensure!(report.kind == "died" && report.ranks == [1], "{report:?}");
            ensure!(report.at.saturating_sub(since) < super::job::BOUND, "{report:?}");
        }
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

/// Starts the rank as the first process of a new PID namespace.
fn in_another_pid_namespace() -> Result<()> {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWPID) {
        return rank::send(&format!("not allowed: unshare: {error}"));
    }
    let status = Command::new(std::env::current_exe()?).env(PROGRAM, "sends its pid").status()?;
    ensure!(matches!(status.code(), Some(DIES | 0)), "{status}");
    Ok(())
}

/// The exit code of a rank that ends on request.
const DIES: i32 = 9;

fn sends_its_pid() -> Result<()> {
    rank::send(&std::process::id().to_string())?;
    let comm = rank::join()?;
    let input = std::thread::spawn(rank::receive);
    while !input.is_finished() {
        if let Err(error) = comm.barrier() {
            rank::send(&super::report::Report::of(&error).line())?;
            // Until the test closes its input.
            let _ = input.join();
            return Ok(());
        }
    }
    std::process::exit(DIES)
}
