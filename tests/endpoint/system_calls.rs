//! What it costs to wake an endpoint, in system calls, as ptrace(2) counts them.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::{Address, Endpoint, EndpointError};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::child::{self, Child};
use super::steps::stepping;
use super::{Role, Test, unique};

pub(super) const TESTS: &[Test] = &[("case_38_a_sleeper_is_woken_by_three_system_calls", three)];

pub(super) const ROLES: &[Role] = &[("answers asleep", answers_asleep)];

/// Calls that are made before those that are traced, and these.
const CALLS: [usize; 2] = [20, 200];

/// The system calls that wait for descriptors, for as long as the fourth argument says.
#[cfg(target_arch = "x86_64")]
const WAITS: &[i64] = &[libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
#[cfg(not(target_arch = "x86_64"))]
const WAITS: &[i64] = &[libc::SYS_epoll_pwait];

fn answers_asleep(args: &[String]) -> Result<()> {
    let mut server = Endpoint::builder().spin(Duration::ZERO).listen(&args[0])?;
    child::say("listens")?;
    let mut answer = || -> Result<(), EndpointError> {
        let call = server.recv_unexpected(&mut [])?;
        server.send_expected(call.peer, call.tag, &[])
    };
    (0..CALLS[0]).try_for_each(|_| answer())?;
    stepping::begin()?;
    (0..CALLS[1]).try_for_each(|_| answer())?;
    stepping::stop()
}

/// Lets a process that has called [`stepping::begin`] go on to its [`stepping::stop`], and from there untraced. Returns how many system calls it has
/// made in between. Before each of them it waits for `before`, which is told the number and the arguments.
/// `None`: the system does not let it be traced.
fn system_calls(pid: u32, mut before: impl FnMut(i64, [u64; 6])) -> Result<Option<usize>> {
    let pid = Pid::from_raw(pid.try_into()?);
    if !stepping::has_begun(pid)? {
        return Ok(None);
    }
    let mut made = 0;
    loop {
        ptrace::syscall(pid, None)?;
        if stepping::is_at_stop(pid)? {
            break;
        }
        // It stops before each call, and behind it.
        let info = ptrace::syscall_info(pid)?;
        if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
            made += 1;
            // SAFETY: the system has written this part.
            let entry = unsafe { info.u.entry };
            before(entry.nr.cast_signed(), entry.args);
        }
    }
    ptrace::detach(pid, None)?;
    Ok(Some(made))
}

fn three() -> Result<Completion> {
    let name = unique();
    let mut server = Child::start("answers asleep", &[&name])?;
    server.says("listens")?;
    let (sleeps, asleep) = channel();
    let caller = thread::spawn(move || -> Result<()> {
        let mut client = Endpoint::builder().spin(Duration::ZERO).client()?;
        let peer = client.connect(&Address::local(&name)?)?;
        for number in 0..CALLS.iter().sum::<usize>() {
            // The first one that is traced may come before the server is.
            if number > CALLS[0] {
                asleep.recv()?;
            }
            client.send_unexpected(peer, number as u64, &[])?;
            client.recv_expected(peer, number as u64, &mut [])?;
        }
        Ok(())
    });
    let before = |number: i64, args: [u64; 6]| {
        if WAITS.contains(&number) && args[3] != 0 {
            // After the last call nobody waits for it.
            let _ = sleeps.send(());
        }
    };
    let Some(made) = system_calls(server.pid(), before)? else {
        return Ok(Completion::ignored_with(stepping::NOT_TRACED));
    };
    caller.join().ok().context("no panic")??;
    server.ends()?;
    // It waits, reads what has woken it, and wakes the caller. Now and then it looks around.
    ensure!((2 * CALLS[1]..CALLS[1] * 7 / 2).contains(&made), "{made} system calls for {} answers", CALLS[1]);
    Ok(Completion::Completed)
}
