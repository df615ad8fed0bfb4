//! Case 48: nothing is in the file system, however a process ends.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use intranode::Endpoint;
use libtest_mimic::Completion;
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::child::{self, Child};
use super::steps::{Partner, victim};
use super::{Role, Test, unique};

pub(super) const TESTS: &[Test] = &[("case_48_nothing_is_in_the_file_system", no_files)];

pub(super) const ROLES: &[Role] =
    &[("a partner without files", partner), ("a client without files", client), ("makes a file", makes_a_file)];

/// From now on this process is killed when it makes a file, a folder or a link.
fn end_by_files() -> Result<()> {
    let creates = |flags| {
        let flag = libc::O_CREAT as u64;
        let is_set = SeccompCondition::new(flags, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)?;
        SeccompRule::new(vec![is_set])
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = [
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_renameat2,
        libc::SYS_openat2,
    ]
    .map(|call| (call, Vec::new()))
    .into();
    rules.insert(libc::SYS_openat, vec![creates(2)?]);
    #[cfg(target_arch = "x86_64")]
    {
        rules.insert(libc::SYS_open, vec![creates(1)?]);
        for call in [libc::SYS_creat, libc::SYS_mkdir, libc::SYS_mknod, libc::SYS_link, libc::SYS_symlink] {
            rules.insert(call, Vec::new());
        }
    }
    let kill = SeccompAction::KillProcess;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, kill, std::env::consts::ARCH.try_into()?)?;
    Ok(apply_filter(&BpfProgram::try_from(filter)?)?)
}

fn partner(args: &[String]) -> Result<()> {
    end_by_files()?;
    let server = Endpoint::listen(&args[0])?;
    child::say("listens")?;
    Partner::new(server).run(None)
}

/// Goes through all steps, and says so.
fn client(args: &[String]) -> Result<()> {
    end_by_files()?;
    victim(&["connects".to_owned(), args[0].clone(), "none".to_owned()])?;
    child::say("done")?;
    while child::hear()?.is_some() {}
    Ok(())
}

fn makes_a_file(_: &[String]) -> Result<()> {
    end_by_files()?;
    tempfile::NamedTempFile::new()?;
    child::say("made")
}

fn no_files() -> Result<Completion> {
    let mut maker = Child::start("makes a file", &[])?;
    ensure!(maker.line().is_err(), "files are noticed");
    let name = unique();
    let is_taken = || -> Result<bool> { Ok(std::fs::read_to_string("/proc/net/unix")?.contains(&name)) };
    let mut server = Child::start("a partner without files", &[&name])?;
    server.says("listens")?;
    ensure!(is_taken()?);
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Child::start("a client without files", &[&name])?;
        client.says("done")?;
        clients.push(client);
    }
    clients.into_iter().try_for_each(|client| client.kill().map(drop))?;
    server.kill()?;
    ensure!(!is_taken()?, "the name is left");
    Ok(Completion::Completed)
}
